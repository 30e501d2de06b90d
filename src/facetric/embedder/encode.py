"""`encode`: images through a network, in order and without gradients. The only loop that does so."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from facetric.embedder.network import Network
from facetric.images import ImageSource
from facetric.machine import made_ahead

if TYPE_CHECKING:
    from facetric.embedder.onnx_engine import OnnxEngine

# Images per forward pass. On a CPU the layers' outputs should stay in the cache of a core.
CPU_BATCH, GPU_BATCH = 8, 256
Batch = Tensor | NDArray[Any]
_this_thread, _lock = threading.local(), threading.Lock()


def encode(
    network: Network | OnnxEngine,
    source: ImageSource,
    *,
    what: Literal["embedding", "features"] = "embedding",
    batch_size: int | None = None,
    n_threads: int | None = None,
    step: str = "Embedding",
    progress: Callable[[str, int, int], None] | None = None,
) -> NDArray[np.float32]:
    """The embeddings (n, dim) of all images, in order, from their center crops; the network's mode is left as it is.

    * `what`: or the pooled "features" (n, n_features). From a source of cached activations only the rest of the network is run.
    * `batch_size`: images per forward pass, by default as many as suit the device. The last bits of a vector depend on it.
    * `n_threads`: on a CPU each of them makes a batch and runs the network on it; as many as torch has unless given. For a GPU
      they make batches ahead, one per core.
    * `progress`: called with (`step`, done, n).
    """
    if batch_size is None:
        batch_size = batch_size_for(network)
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1; got {batch_size}: leave it out for one that suits the device")
    blocks = [np.arange(start, min(start + batch_size, len(source))) for start in range(0, len(source), batch_size)]
    found: list[NDArray[np.float32]] = []
    with inference(network) as ready:
        crop, run = ready.crop, ready
        if source.starts_at == "activations":
            run = ready.features_from_activations if what == "features" else ready.from_activations
        elif what == "features":
            run = ready.features
        tasks = [partial(source.inputs, rows, crop) for rows in blocks]
        for rows, vectors in zip(blocks, outputs_in_order(ready, tasks, run, n_threads), strict=True):
            found.append(vectors.float().numpy())
            if progress is not None:
                progress(step, int(rows[-1]) + 1, len(source))
    if not found:
        return np.empty((0, network.n_features if what == "features" else network.dim), dtype=np.float32)
    return np.concatenate(found)


def batch_size_for(network: Network | OnnxEngine) -> int:
    """Images per forward pass that suit the device."""
    return CPU_BATCH if network.device.type == "cpu" else GPU_BATCH


@contextmanager
def inference(network: Any) -> Iterator[Any]:
    """The network to encode with (`Network.for_inference`); the mode of the one given is restored."""
    if not isinstance(network, Network):
        yield network
        return
    was_training = network.training
    try:
        yield network.eval().for_inference()
    finally:
        network.train(was_training)


def outputs_in_order(
    network: Network | OnnxEngine,
    batches: Iterable[Callable[[], Batch]],
    run: Callable[[Tensor], Tensor],
    n_threads: int | None = None,
) -> Iterator[Tensor]:
    """run(batch) for every batch, in order, on the host.

    On a CPU a thread makes a batch and runs the network on it by itself: decoding overlaps with the network, no thread waits for
    another within a layer, and the numbers do not depend on how many there are. For a GPU threads make batches ahead.
    """
    device = network.device
    if device.type != "cpu":
        for batch in made_ahead(batches, n_threads):
            with torch.inference_mode():
                yield run(torch.as_tensor(batch).to(device)).cpu()
        return
    if n_threads is None:
        with _lock:
            n_threads = torch.get_num_threads()
    yield from made_ahead([partial(_made_and_run, make, run) for make in batches], n_threads)


def _made_and_run(make: Callable[[], Batch], run: Callable[[Tensor], Tensor]) -> Tensor:
    """In this thread of the pool only, without a word to the other threads of the process.

    `set_num_threads` is for the thread that calls it and for all that have not used torch yet; another thread takes the second
    part back at once.
    """
    if not getattr(_this_thread, "is_alone", False):
        with _lock:
            n_threads = torch.get_num_threads()
            torch.set_num_threads(1)
            restoring = threading.Thread(target=torch.set_num_threads, args=(n_threads,))
            restoring.start()
            restoring.join()
        _this_thread.is_alone = True
    with torch.inference_mode():
        return run(torch.as_tensor(make()))


def usable_device(name: str) -> str:
    """An available device; with several GPUs, that of this process. "auto" is cuda, else mps, else cpu."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(device for device, usable in there.items() if usable)
    if not there.get(name, False):
        offer = ", ".join(["auto", *(device for device, usable in there.items() if usable)])
        raise ValueError(f"device must be one of {offer} on this machine; got {name!r}: choose one of these")
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if name == "cuda" else name
