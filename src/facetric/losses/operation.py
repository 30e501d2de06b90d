"""A loss as one operation on the embeddings, whatever it does on the host: what `torch.compile` and `torch.func` see of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor

LOSS_OF_ID: WeakValueDictionary[int, nn.Module] = WeakValueDictionary()  # operations take tensors and numbers only
_LIBRARY = torch.library.Library("facetric", "FRAGMENT")  # type: ignore[no-untyped-call]
_TAGS = [torch.Tag.nondeterministic_seeded, *(tag for name, tag in vars(torch.Tag).items() if name == "cudagraph_unsafe")]
_SCHEMA = "loss_and_gradient(Tensor embeddings, Tensor labels, int loss) -> (Tensor, Tensor)"
_LIBRARY.define(_SCHEMA, tags=_TAGS)  # type: ignore[no-untyped-call]


def is_traced(embeddings: object) -> bool:
    """Whether `torch.compile` or a transform of `torch.func` is at work on the embeddings."""
    return torch.compiler.is_compiling() or (isinstance(embeddings, Tensor) and is_functorch_wrapped_tensor(embeddings))


def precision(embeddings: Tensor) -> torch.dtype:
    """That of a loss: float32 whatever the embeddings are, or float64."""
    return torch.float64 if embeddings.dtype == torch.float64 else torch.float32


@torch.library.impl(_LIBRARY, "loss_and_gradient", "CompositeExplicitAutograd")
def _loss_and_gradient(embeddings: Tensor, labels: Tensor, loss: int) -> tuple[Tensor, Tensor]:
    """Found in a thread of its own: inside an operation torch records no gradients."""
    stream = torch.cuda.current_stream(embeddings.device) if embeddings.is_cuda else None

    def evaluate() -> tuple[Tensor, Tensor]:
        with torch.cuda.stream(stream):
            points = embeddings.clone().detach().requires_grad_()
            value = LOSS_OF_ID[loss](points, labels.clone())
            return value.detach().to(precision(embeddings)), torch.autograd.grad(value, points)[0]

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(evaluate).result()


@torch.library.register_fake("facetric::loss_and_gradient", lib=_LIBRARY)
def _shapes(embeddings: Tensor, labels: Tensor, loss: int) -> tuple[Tensor, Tensor]:
    return embeddings.new_empty((), dtype=precision(embeddings)), torch.empty_like(embeddings)


class LossOperation(torch.autograd.Function):
    """Value and gradient of the loss with this id; `vmap` takes one batch after another."""

    @staticmethod
    def forward(embeddings: Tensor, labels: Tensor, loss: int) -> tuple[Tensor, Tensor]:
        return torch.ops.facetric.loss_and_gradient(embeddings, labels, loss)  # type: ignore[no-any-return]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(output[1], inputs[0])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None]:
        if not torch.compiler.is_compiling() and upstream[1] is not None:
            raise ValueError("a loss has no second derivative under torch.func: use torch.autograd.grad(…, create_graph=True)")
        gradient, embeddings = ctx.saved_tensors
        # Only a gradient that depends on the input makes a compiled step refuse to differentiate it, instead of taking 0.
        return upstream[0] * gradient + 0.0 * embeddings, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> tuple[tuple[Tensor, ...], tuple[int, int]]:
        pairs = list(zip(arguments, in_dims, strict=True))
        batches = [[one if dim is None else one.select(dim, i) for one, dim in pairs] for i in range(info.batch_size)]
        results = zip(*(LossOperation.apply(*batch) for batch in batches), strict=True)
        return tuple(torch.stack(parts) for parts in results), (0, 0)
