"""Many images through a network, in order, without gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from facetric.embedder.network import Network, Precision
from facetric.images.sources import made_ahead

# Crops per forward pass. On a CPU the layers' outputs should stay in the cache of a core.
CPU_BATCH, GPU_BATCH = 8, 256


def batch_size_for(embedder: Network) -> int:
    """Crops per forward pass that suit the device."""
    return CPU_BATCH if _device(embedder).type == "cpu" else GPU_BATCH


@contextmanager
def inference(embedder: Network, precision: Precision = "32") -> Iterator[Network]:
    """The embedder to embed with (`Network.for_inference`); the mode of the one given is restored."""
    was_training = embedder.training
    try:
        yield embedder.for_inference(precision)
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
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # in each thread of the pool, once it starts
    try:
        yield from made_ahead((partial(_made_and_run, make, run) for make in batches), n_threads)
    finally:
        torch.set_num_threads(n_threads)


def _made_and_run(make: Callable[[], Tensor | NDArray[np.float32]], run: Callable[[Tensor], Tensor]) -> Tensor:
    with torch.inference_mode():
        return run(torch.as_tensor(make()))


def _device(embedder: Network) -> torch.device:
    return next(embedder.parameters()).device
