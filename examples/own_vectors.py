"""Vectors of your own, from any model: groups without labels, with what labeled classes teach, and with corrections.

python examples/own_vectors.py
"""

import numpy as np

from facetric import FacilityLocation, PairLinkage, calibrate, evaluate

rng = np.random.default_rng(0)


def vectors_of(n_classes: int, n_each: int) -> tuple[np.ndarray, np.ndarray]:
    """Stand-ins for what an embedder gives: one direction per class, with noise."""
    labels = np.repeat(np.arange(n_classes), n_each)
    vectors = rng.normal(size=(n_classes, 32))[labels] + 0.7 * rng.normal(size=(len(labels), 32))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), labels


vectors, labels = vectors_of(n_classes=60, n_each=12)
print(evaluate(vectors, labels), end="\n\n")

new_vectors, _ = vectors_of(n_classes=25, n_each=8)
print(f"without labels: {PairLinkage().fit(new_vectors).n_clusters_} clusters")

model = calibrate(vectors, labels)  # what these classes teach about which vectors belong together
found = PairLinkage(model).fit(new_vectors)
print(f"{model}: {found.n_clusters_} clusters, {found.expected_}")
print("look first at cluster", np.nanargmin(found.precision_), "and ask about", found.questions_[0])

# A correction: two vectors that belong together, two that do not.
corrected = PairLinkage(model).fit(new_vectors, must_link=[(0, 8)], cannot_link=[(16, 17)])
print(f"corrected: {corrected.n_clusters_} clusters")

print("25 representatives:", FacilityLocation(n_clusters=25).fit(new_vectors).medoid_indices_)
