"""Data for the tests of clustering."""

import numpy as np


def blobs(n, n_classes, seed=0, *, noise=0.15, dimension=8):
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)])
    centers = rng.normal(size=(n_classes, dimension))
    return centers[labels] + noise * rng.normal(size=(n, dimension)), labels


def distances(points):
    return np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2))
