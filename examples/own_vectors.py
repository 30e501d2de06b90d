"""Vectors of your own, from any model: learn from labeled classes how near a group is, or go without, and group the rest.

python examples/own_vectors.py
"""

import numpy as np

from facetric import AverageLinkage, FacilityLocation, calibrate, evaluate

rng = np.random.default_rng(0)


def vectors_of(n_classes: int, n_each: int) -> tuple[np.ndarray, np.ndarray]:
    """Stand-ins for what an embedder gives: one direction per class, with noise."""
    labels = np.repeat(np.arange(n_classes), n_each)
    vectors = rng.normal(size=(n_classes, 32))[labels] + 0.7 * rng.normal(size=(len(labels), 32))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), labels


vectors, labels = vectors_of(n_classes=60, n_each=12)
print(evaluate(vectors, labels), end="\n\n")

calibration = calibrate(vectors, labels)
clusterer = calibration.clusterer()  # AverageLinkage(threshold=…)
new_vectors, _ = vectors_of(n_classes=25, n_each=8)
clusters = clusterer.fit_predict(new_vectors)
print(f"{clusterer}: {clusters.max() + 1} clusters, {calibration.expected(new_vectors, clusters)}")
print("the least certain:", np.argsort(-clusterer.ambiguity_)[:5])
print(f"without labels: {AverageLinkage().fit(new_vectors).n_clusters_} clusters")

# A correction: two vectors that belong together, two that do not.
corrected = AverageLinkage(calibration.threshold).fit(new_vectors, must_link=[(0, 8)], cannot_link=[(16, 17)])
print(f"corrected: {corrected.labels_.max() + 1} clusters")

print("25 representatives:", FacilityLocation(n_clusters=25).fit(new_vectors).medoid_indices_)
