"""What there was before training: the pretrained features, and a closed-form head on them, as vectors to score beside a run.

Features are the activations of a backbone that is frozen as a whole: computed once for an image, in the cache folder, and shared
by all runs on it. A network that starts from random weights has no such features; it is scored as it starts, and so
are the pixels, with and without a closed-form head.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

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
from facetric.progress import OnStep
from facetric.runs.run import Run
from facetric.runs.splits import run_images, size_and_pad

FEATURES, CLOSED_FORM = "pretrained features", "closed-form head"
PIXELS, UNTRAINED, CLOSED_FORM_ON_PIXELS = "raw pixels", "untrained network", "closed-form head on pixels"
_log = logging.getLogger("facetric")


@dataclass(frozen=True, eq=False)
class Start:
    """The images of an evaluation as vectors that needed no training; compared by cosine."""

    name: str
    vectors: NDArray[np.float32]  # (n, d)
    source: dict[str, Any] = field(default_factory=dict)


def starts(run: Run, dataset: ImageDataset, *, device: str, on_step: OnStep) -> Iterator[Start]:
    """What a run is compared with, on the images of `dataset` (one center crop each).

    What cannot be computed any more (weights or training images are gone) is left out with a warning.
    """
    try:
        network = start_network(run).to(device)
        if network.freeze_batchnorm:
            yield from _pretrained(run, network, dataset, on_step)
        else:
            yield from _untrained(run, network, dataset, on_step)
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


def _pretrained(run: Run, network: Network, dataset: ImageDataset, on_step: OnStep) -> Iterator[Start]:
    source = {"backbone": network.name, "views": "center crop", "pooling": network.pooling}
    features = _features(_cache(network, dataset, "Pretrained features", on_step))
    yield Start(FEATURES, features, source)
    training = _training_images(run)
    known = _features(_cache(network, training, "Pretrained features of training images", on_step))
    head = _head(known, training.labels, network.dim, on_step)
    yield Start(CLOSED_FORM, head(features), {**source, "shrinkage": head.shrinkage})


def _untrained(run: Run, network: Network, dataset: ImageDataset, on_step: OnStep) -> Iterator[Start]:
    in_memory = isinstance(dataset.images, np.ndarray)  # pictures of one size
    if in_memory:
        pixels = _pixels(dataset, network)
        yield Start(PIXELS, pixels)
    cache = _cache(network, dataset, "Untrained network", on_step)
    yield Start(UNTRAINED, encode(network, cache), {"backbone": network.name, "views": "center crop"})
    if in_memory:
        training = _training_images(run)
        head = _head(_pixels(training, network), training.labels, network.dim, on_step)
        yield Start(CLOSED_FORM_ON_PIXELS, head(pixels), {"shrinkage": head.shrinkage})


def _training_images(run: Run) -> ImageDataset:
    return run_images(run, "train")[0]


def _pixels(dataset: ImageDataset, network: Network) -> NDArray[np.float32]:
    """Of images in memory, with the black border that the network sees."""
    pad = (network.preprocessing.pad, network.preprocessing.pad)
    return np.pad(np.asarray(dataset.images, dtype=np.float32), ((0, 0), pad, pad)).reshape(len(dataset), -1)


def _head(known: NDArray[np.float32], labels: NDArray[np.int64], dim: int, on_step: OnStep) -> ClosedForm:
    n_images, n_features = known.shape
    if dim != n_features:
        dim = min(dim, n_images - 1, n_features)  # fewer than the run's where there are too few images
    on_step("Closed-form head", 0, 1)
    head = closed_form_head(known, labels, dim)
    on_step("Closed-form head", 1, 1)
    return head


def _cache(network: Network, dataset: ImageDataset, title: str, on_step: OnStep) -> Activations:
    return cached_activations(network, dataset.source, n_views=0, center=True, step=title, progress=on_step)


def _features(activations: Activations) -> NDArray[np.float32]:
    return activations.inputs(np.arange(len(activations)))
