"""How fast a network is on this machine."""

from __future__ import annotations

import time

from facetric.embedder.backbones import build_network
from facetric.embedder.encode import encode, usable_device
from facetric.embedder.onnx_export import sample_images
from facetric.images import Files
from facetric.progress import Progress

_SECONDS = 2.0


def images_per_second(name: str, *, device: str = "auto", progress: Progress | None = None) -> float:
    """Photos in memory to vectors, with all cores, by torch. Weights do not change it, so that none are downloaded."""
    network = build_network(name, dim=None, weights="none", fit="crop").to(usable_device(device)).eval().for_inference()
    photos = Files(sample_images(16))
    encode(network, photos.take([0, 1]))  # what is made once
    done, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < _SECONDS:
        encode(network, photos)
        done += len(photos)
        if progress is not None:
            progress(f"Speed of {name}", min(100, round(100 * spent / _SECONDS)), 100)
    return done / spent
