"""What there was before training: the pretrained features, and a closed-form head on them, as vectors to score beside a run.

Features are the activations of a backbone that is frozen as a whole: computed once for an image, in the cache folder, and
shared by all runs on it. A network that starts from random weights has no such features; it is scored as it starts, and so
are the pixels, with and without a closed-form head.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from facetric.embedder import WHOLE, Network, Vectors, build_network, closed_form_vectors
from facetric.images import ImageDataset

if TYPE_CHECKING:
    from facetric.runs.run import Run

FEATURES, CLOSED_FORM = "pretrained features", "closed-form head"
PIXELS, UNTRAINED, CLOSED_FORM_ON_PIXELS = "raw pixels", "untrained network", "closed-form head on pixels"
Baseline = tuple[str, NDArray[np.float32], dict[str, Any]]  # name, vectors (n, d) to compare by cosine, source
Progress = Callable[[str, int, int], None]
_log = logging.getLogger("facetric")


def baselines_of(run: Run, dataset: ImageDataset, *, device: Any, progress: Progress | None) -> Iterator[Baseline]:
    """What a run is compared with, on the images of `dataset` (one center crop each).

    What cannot be computed any more (weights or training images are gone) is left out with a warning.
    """
    try:
        network = _built(run, dim=None).to(device)
        if network.freeze_batchnorm:
            yield from _pretrained(run, network, dataset, progress)
        else:
            yield from _untrained(run, start_network(run).to(device), dataset, progress)
    except (OSError, ValueError) as error:
        _log.warning("not all that there was before training can be scored: %s", error)


def start_network(run: Run) -> Network:
    """The run's network before its first step, frozen as a whole. A head that is fitted to features is left at random."""
    model = run.config.model
    kind = "default" if model.head_init == "default" else "orthogonal"
    return _built(run, dim=model.dim).with_head(kind=kind, seed=run.config.run.seed)


def _built(run: Run, *, dim: int | None) -> Network:
    """Without `dim` its vectors are the features."""
    model, data = run.config.model, run.config.data
    return build_network(
        model.backbone,
        dim=dim,
        weights=model.weights,
        image_size=model.image_size,
        size=data.size,
        pad=data.pad,
        normalize=dim is not None,
        pooling=model.pooling,
        freeze_through=WHOLE,
        seed=run.config.run.seed,
    )


def _pretrained(run: Run, network: Network, dataset: ImageDataset, progress: Progress | None) -> Iterator[Baseline]:
    source = {"backbone": network.name, "views": "center crop", "pooling": network.pooling}
    features = Vectors.of(network, dataset.source, step="Pretrained features", progress=progress).vectors
    yield FEATURES, features, source
    training, _ = run.images("train")
    known = Vectors.of(network, training.source, step="Pretrained features of training images", progress=progress).vectors
    vectors, shrinkage = closed_form_vectors(known, training.labels, features, run.config.model.dim)
    yield CLOSED_FORM, vectors, {**source, "shrinkage": shrinkage}


def _untrained(run: Run, network: Network, dataset: ImageDataset, progress: Progress | None) -> Iterator[Baseline]:
    in_memory = isinstance(dataset.images, np.ndarray)  # images of one size
    if in_memory:
        yield PIXELS, _pixels(dataset, network), {}
    found = Vectors.of(network, dataset.source, step="Untrained network", progress=progress)
    yield UNTRAINED, found.vectors, {"backbone": network.name, "views": "center crop"}
    if in_memory:
        training, _ = run.images("train")
        known, pixels = (_pixels(part, network) for part in (training, dataset))
        vectors, shrinkage = closed_form_vectors(known, training.labels, pixels, run.config.model.dim)
        yield CLOSED_FORM_ON_PIXELS, vectors, {"shrinkage": shrinkage}


def _pixels(dataset: ImageDataset, network: Network) -> NDArray[np.float32]:
    """Of images in memory, with the black border that the network sees."""
    pad = (network.preprocessing.pad, network.preprocessing.pad)
    pixels = np.pad(np.asarray(dataset.images, dtype=np.float32), ((0, 0), pad, pad))
    return pixels.reshape(len(pixels), -1)
