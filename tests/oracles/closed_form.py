"""The whitened head from its definition: sums over images, a matrix square root, and singular values."""

import numpy as np
from scipy.linalg import inv, sqrtm


def embedded_by_definition(features, labels, others, dim, shrinkage):
    """Embeddings (n, dim), not normalized and up to signs, of `others` by the head of `features`."""
    units, whitening, mean = _whitening(features, labels, shrinkage)
    whitened = np.array([whitening @ (unit - mean) for unit in units])
    axes = np.linalg.svd(whitened, full_matrices=False)[2][:dim]
    lengths = [sum((axes @ row) ** 2) for row in whitened]
    scale = 1 / np.sqrt(sum(lengths) / len(lengths))
    return np.array([scale * (axes @ whitening @ (row / np.linalg.norm(row) - mean)) for row in others])


def whitened_by_definition(features, labels, others, shrinkage):
    """The same in all directions, those too in which `features` do not differ; up to a rotation."""
    units, whitening, mean = _whitening(features, labels, shrinkage)
    lengths = [sum((whitening @ (unit - mean)) ** 2) for unit in units]
    scale = 1 / np.sqrt(sum(lengths) / len(lengths))
    return np.array([scale * (whitening @ (row / np.linalg.norm(row) - mean)) for row in others])


def _whitening(features, labels, shrinkage):
    units = np.array([row / np.sqrt(sum(value**2 for value in row)) for row in features])
    within = np.zeros((units.shape[1], units.shape[1]))
    for label in set(labels.tolist()):
        members = [unit for unit, own in zip(units, labels, strict=True) if own == label]
        center = sum(members) / len(members)
        for unit in members:
            within += np.outer(unit - center, unit - center) / len(units)
    ridge = shrinkage * sum(within[i, i] for i in range(len(within))) / len(within)
    return units, inv(sqrtm(within + ridge * np.eye(len(within))).real), sum(units) / len(units)


def map_at_r_by_loops(vectors, labels):
    """Mean average precision at R by cosine, over queries whose class has another image."""
    found = []
    for i, query in enumerate(vectors):
        others = [j for j in range(len(vectors)) if j != i]
        n_relevant = sum(labels[j] == labels[i] for j in others)
        if n_relevant:
            order = sorted(others, key=lambda j: -(vectors[j] @ query) / np.linalg.norm(vectors[j]))[:n_relevant]
            hits = [labels[j] == labels[i] for j in order]
            found.append(sum(hit * sum(hits[: r + 1]) / (r + 1) for r, hit in enumerate(hits)) / n_relevant)
    return float(np.mean(found))
