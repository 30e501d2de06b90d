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

from facetric.embedder import (
    FITTED_KINDS,
    WHOLE,
    Activations,
    ClosedForm,
    Network,
    build_network,
    cached_activations,
    closed_form_head,
    default_weights,
    encode,
)
from facetric.images import ImageDataset
from facetric.runs.splits import size_and_pad

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
        network = start_network(run).to(device)
        yield from (_pretrained if network.freeze_batchnorm else _untrained)(run, network, dataset, progress)
    except (OSError, ValueError) as error:
        _log.warning("not all that there was before training can be scored: %s", error)


def start_network(run: Run) -> Network:
    """The run's network before its first step, frozen as a whole. A head that is fitted to features is left at random."""
    model, seed = run.config.model, run.config.run.seed
    size, pad = size_and_pad(run.config.data)
    network = build_network(
        model.backbone,
        dim=model.dim,
        weights=model.weights or default_weights(model.backbone),
        image_size=model.image_size,
        size=size,
        pad=pad,
        pooling=model.pooling,
        freeze_through=WHOLE,
        seed=seed,
    )
    network.initialize_head(kind="orthogonal" if model.head_init in FITTED_KINDS else model.head_init, seed=seed)
    return network.eval()


def _pretrained(run: Run, network: Network, dataset: ImageDataset, progress: Progress | None) -> Iterator[Baseline]:
    source = {"backbone": network.name, "views": "center crop", "pooling": network.pooling}
    features = _features(_activations(network, dataset, "Pretrained features", progress))
    yield FEATURES, features, source
    training, _ = run.images("train")
    known = _features(_activations(network, training, "Pretrained features of training images", progress))
    head = _head(known, training.labels, run.config.model.dim)
    yield CLOSED_FORM, head(features), {**source, "shrinkage": head.shrinkage}


def _untrained(run: Run, network: Network, dataset: ImageDataset, progress: Progress | None) -> Iterator[Baseline]:
    in_memory = isinstance(dataset.images, np.ndarray)  # images of one size
    if in_memory:
        yield PIXELS, _pixels(dataset, network), {}
    activations = _activations(network, dataset, "Untrained network", progress)
    yield UNTRAINED, encode(network, activations), {"backbone": network.name, "views": "center crop"}
    if in_memory:
        training, _ = run.images("train")
        head = _head(_pixels(training, network), training.labels, run.config.model.dim)
        yield CLOSED_FORM_ON_PIXELS, head(_pixels(dataset, network)), {"shrinkage": head.shrinkage}


def _pixels(dataset: ImageDataset, network: Network) -> NDArray[np.float32]:
    """Of images in memory, with the black border that the network sees."""
    pad = (network.preprocessing.pad, network.preprocessing.pad)
    pixels = np.pad(np.asarray(dataset.images, dtype=np.float32), ((0, 0), pad, pad))
    return pixels.reshape(len(pixels), -1)


def _head(known: NDArray[np.float32], labels: NDArray[np.int64], dim: int) -> ClosedForm:
    n_images, n_features = known.shape
    if dim != n_features:
        dim = min(dim, n_images - 1, n_features)  # fewer than the run's where there are too few images
    return closed_form_head(known, labels, dim)


def _activations(network: Network, dataset: ImageDataset, step: str, progress: Progress | None) -> Activations:
    return cached_activations(network, dataset.source, n_views=0, center=True, step=step, progress=progress)


def _features(activations: Activations) -> NDArray[np.float32]:
    return activations.inputs(np.arange(len(activations.rows)))
