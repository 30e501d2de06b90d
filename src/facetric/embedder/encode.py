"""Many images through a network, in order, without gradients."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from facetric.embedder.network import Network
from facetric.images.sources import made_ahead

# Crops per forward pass. On a CPU the layers' outputs should stay in the cache of a core.
CPU_BATCH, GPU_BATCH = 8, 256
_this_thread, _lock = threading.local(), threading.Lock()


def usable_device(name: str) -> str:
    """An available device; with several GPUs, that of this process. "auto" is cuda, else mps, else cpu."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(device for device, usable in there.items() if usable)
    if not there.get(name, False):
        offer = ", ".join(["auto", *(device for device, usable in there.items() if usable)])
        raise ValueError(f"device must be one of {offer} on this machine; got {name!r}: choose one of these")
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if name == "cuda" else name


def batch_size_for(embedder: Network) -> int:
    """Crops per forward pass that suit the device."""
    return CPU_BATCH if _device(embedder).type == "cpu" else GPU_BATCH


@contextmanager
def inference(embedder: Network) -> Iterator[Network]:
    """The embedder to embed with (`Network.for_inference`); the mode of the one given is restored."""
    was_training = embedder.training
    try:
        yield embedder.for_inference()
    finally:
        embedder.train(was_training)


def outputs_in_order(
    embedder: Network, batches: Iterable[Callable[[], Tensor | NDArray[np.float32]]], run: Callable[[Tensor], Tensor]
) -> Iterator[Tensor]:
    """run(batch) for every batch, in order, on the host.

    On a CPU a thread makes a batch and runs the network on it by itself: decoding overlaps with the network, no thread waits for
    another within a layer, and the numbers do not depend on how many there are. For a GPU two threads make batches ahead.
    """
    device = _device(embedder)
    if device.type != "cpu":
        for batch in made_ahead(batches, 2):
            with torch.inference_mode():
                yield run(torch.as_tensor(batch).to(device)).cpu()
        return
    with _lock:
        n_threads = torch.get_num_threads()
    yield from made_ahead((partial(_made_and_run, make, run) for make in batches), n_threads)


def _made_and_run(make: Callable[[], Tensor | NDArray[np.float32]], run: Callable[[Tensor], Tensor]) -> Tensor:
    _run_alone()
    with torch.inference_mode():
        return run(torch.as_tensor(make()))


def _run_alone() -> None:
    """Let torch use this thread of the pool only, without a word to the other threads of the process.

    `set_num_threads` is for the thread that calls it and for all that have not used torch yet; another thread takes the second
    part back at once.
    """
    if getattr(_this_thread, "is_alone", False):
        return
    with _lock:
        n_threads = torch.get_num_threads()
        torch.set_num_threads(1)
        restoring = threading.Thread(target=torch.set_num_threads, args=(n_threads,))
        restoring.start()
        restoring.join()
    _this_thread.is_alone = True


def _device(embedder: Network) -> torch.device:
    return next(embedder.parameters()).device
