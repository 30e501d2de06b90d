"""Any loss on the global batch of many processes, with the gradient that one process would have.

Every process embeds its share of the batch. The shares are gathered in the order of ranks and every process computes the loss
of all of them, so each knows dL/dE for the global batch and needs only its own rows of it: nothing is sent backwards. DDP
averages gradients over the N processes while the gradient of the global batch is their *sum*, so the rows are scaled by N.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from facetric.losses.batch import BatchLoss, checked_batch, checked_loss
from facetric.losses.facility_location import FacilityLocationLoss

Result = TypeVar("Result")


class PeerError(RuntimeError):
    """Another process failed; the message is its."""


class GlobalBatch(BatchLoss):
    """`loss` on the batches of all processes together, for a training loop of your own under DistributedDataParallel.

    Call it with this process's embeddings and labels. It gathers those of all ranks and gives every process the loss of the
    global batch; after DDP's averaging the gradient of the network is that of one process with the whole batch. Ranks may have
    different numbers of images. In a single process, or without a process group, it is the loss itself.

    The solver of a `FacilityLocationLoss` runs on rank 0, which broadcasts the medoids. At the first batch rank 0 also hands
    its state of the loss (proxies, say, γ and generators) to the others, so that seeds need not agree. Weights of the loss get
    the same gradient in all processes: they need no DDP. The loss itself can be used alone as before.

    Examples:
        >>> from facetric.losses import AffinityLoss
        >>> GlobalBatch(AffinityLoss())(torch.eye(4), torch.tensor([0, 0, 1, 1]))  # one process: the loss itself
        tensor(0.2500)
    """

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = checked_loss(loss)
        self._is_shared = False

    @property
    def last(self) -> object:
        return getattr(self.loss, "last", None)

    def batch_loss(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """In one process the loss itself."""
        return self.loss(embeddings, labels)  # type: ignore[no-any-return]

    @torch.compiler.disable
    def _on_checked(self, embeddings: Tensor, labels: Tensor, *rest: object) -> Tensor:
        if n_processes() == 1:
            return super()._on_checked(embeddings, labels, *rest)  # type: ignore[no-any-return]
        failure: ValueError | None = None
        try:
            embeddings, labels = checked_batch(self, embeddings, labels, *rest, at_least=0)
        except ValueError as error:
            failure = error
        n_images = _batch_sizes(embeddings, failure)
        if not self._is_shared:
            self.loss.load_state_dict(broadcast(lambda: _on_host(self.loss.state_dict())))
            self._is_shared = True  # states stay equal from here on
        with _inferred_on_rank_0(self.loss):
            return self.batch_loss(gather_rows(embeddings, n_images), gather_rows(labels.long(), n_images))


@contextmanager
def _inferred_on_rank_0(loss: nn.Module) -> Iterator[None]:
    """Medoids are found once for all processes, as long as this lasts."""
    solving = [part for part in loss.modules() if isinstance(part, FacilityLocationLoss)]
    before = [part.share for part in solving]
    for part in solving:
        part.share = broadcast
    try:
        yield
    finally:
        for part, share in zip(solving, before, strict=True):
            part.share = share


def n_processes() -> int:
    """The size of the default process group, 1 without one."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def gather_rows(rows: Tensor, n_rows: Sequence[int]) -> Tensor:
    """The rows of all processes, in the order of ranks, with the gradient that DDP's average turns into the true one.

    `n_rows` is how many each process has.
    """
    gathered: Tensor = _GatherRows.apply(rows, n_rows)
    return gathered


def broadcast(make: Callable[[], Result], *, device: torch.device | None = None) -> Result:
    """What `make` gives on rank 0, in all processes. If it fails there, all fail."""
    if n_processes() == 1:
        return make()
    box: list[Any] = [None]
    failure: Exception | None = None
    if dist.get_rank() == 0:
        try:
            box = [(True, make())]
        except Exception as error:
            failure = error
            box = [(False, str(error) or type(error).__name__)]
    dist.broadcast_object_list(box, src=0, device=device)
    if failure is not None:
        raise failure
    fine, result = box[0]
    if not fine:
        raise PeerError(f"rank 0: {result}")
    return result  # type: ignore[no-any-return]


def _batch_sizes(embeddings: Tensor, failure: ValueError | None) -> list[int]:
    """The number of images of every rank. A batch that is refused on one rank is an error on all of them, and none waits."""
    mine = str(failure) if failure else (len(embeddings), f"{embeddings.shape[1]} dimensions in {embeddings.dtype}")
    everyone: list[Any] = [None] * n_processes()
    dist.all_gather_object(everyone, mine)
    if failure is not None:
        raise failure
    for rank, one in enumerate(everyone):
        if isinstance(one, str):
            raise PeerError(f"rank {rank}: {one}")
        if one[1] != everyone[0][1]:
            kinds = f"{everyone[0][1]} on rank 0 and {one[1]} on rank {rank}"
            raise ValueError(f"embeddings have {kinds}: run the same network everywhere")
    return [n_images for n_images, _ in everyone]


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, n_rows: Sequence[int]) -> Tensor:
        rank = dist.get_rank()
        ctx.mine = slice(sum(n_rows[:rank]), sum(n_rows[: rank + 1]))
        ctx.n_processes = len(n_rows)
        longest = max(n_rows)
        padded = torch.cat([rows, rows.new_zeros(longest - len(rows), *rows.shape[1:])])
        shares = [torch.empty_like(padded) for _ in n_rows]
        dist.all_gather(shares, padded)
        return torch.cat([share[:n] for share, n in zip(shares, n_rows, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0][ctx.mine] * ctx.n_processes, None


def _on_host(weights: dict[str, Any]) -> dict[str, Any]:
    return {key: value.cpu() if isinstance(value, Tensor) else value for key, value in weights.items()}
