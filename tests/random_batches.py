"""Random clustering problems, with and without ties."""

import numpy as np


def random_batch(rng, *, n_points=None, ties=None):
    """Points in the plane with labels, every class present. `ties` puts the points on a coarse grid: duplicates and ties."""
    m = int(rng.integers(2, 13)) if n_points is None else n_points
    n_classes = int(rng.integers(1, m + 1))
    labels = np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, m - n_classes)])
    rng.shuffle(labels)
    if ties is None:
        ties = bool(rng.integers(2))
    points = rng.integers(0, 3, size=(m, 2)).astype(float) if ties else rng.normal(size=(m, 2))
    return points, labels


def distance_matrix(points):
    return np.sqrt(((points[:, None] - points[None]) ** 2).sum(-1))
