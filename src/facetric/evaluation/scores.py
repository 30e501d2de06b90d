"""`evaluate`: embeddings and labels in, every score out."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from facetric.evaluation.clustering import ClusteringScores, facility_location, kmeans
from facetric.evaluation.report import EvaluationReport, Restart
from facetric.metrics.neighbors import BLOCK_SIZE, TILE_SIZE, Metric
from facetric.metrics.retrieval import retrieval_of
from facetric.metrics.vectors import validated_vectors
from facetric.progress import OnStep


def evaluate(
    vectors: ArrayLike,
    labels: ArrayLike,
    *,
    ks: Sequence[int] = (1, 2, 4, 8),
    metric: Metric = "cosine",
    query: ArrayLike | None = None,
    gallery: ArrayLike | None = None,
    retrieval: bool = True,
    clustering: bool = True,
    facility: bool = False,
    n_restarts: int = 5,
    seed: int = 0,
    memory_gib: float = 1.0,
    block_size: int = BLOCK_SIZE,
    on_progress: OnStep | None = None,
) -> EvaluationReport:
    """Score n embeddings (n, d) of any origin against their class labels (n,), integers of any size or strings.

    * ``ks``: the K of Recall@K; ``metric``: "cosine" or "euclidean", for neighbors and clusters alike.
    * ``query``, ``gallery``: rows or masks; without them every image is a query against all others. Clusters are of all rows.
    * ``retrieval``, ``clustering``: False skips that part.
    * ``facility``: also facility-location clustering (γ = 0), where feasible; the report says when it is not.
    * ``n_restarts``: k-means clusterings, seeded ``seed``, ``seed`` + 1, …; their mean and standard deviation are reported.
    * ``memory_gib``: working memory, besides the vectors. Neither it nor ``block_size`` changes a retrieval or k-means score.
    * ``on_progress``: called with (name of the step, done, total).

    >>> report = evaluate([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]], [3, 3, 8, 8], ks=(1, 2), n_restarts=2)
    >>> report.recall_at_k, report.nmi, report.map_at_r
    ({1: 1.0, 2: 1.0}, 1.0, 1.0)
    """
    if not isinstance(n_restarts, int) or n_restarts < 1:
        raise ValueError(f"n_restarts must be a whole number, at least 1; got {n_restarts!r}: use clustering=False for none")
    if not retrieval and not clustering:
        raise ValueError("retrieval and clustering are both False, so there is nothing to score: leave one of them True")
    rows, classes = validated_vectors(vectors, labels, metric)
    step = on_progress or (lambda name, done, total: None)
    found: dict[str, Any] = {}
    if retrieval:
        found |= asdict(
            retrieval_of(rows, classes, ks=ks, metric=metric, query=query, gallery=gallery, memory_gib=memory_gib,
                         block_size=block_size, on_progress=lambda done, total: step("Neighbors", done, total))
        )  # fmt: skip
    if clustering:
        found |= _clusterings(rows, classes, n_restarts, seed, step)
        if facility:
            step("Facility location", 0, 1)
            found["facility_location"] = facility_location(rows, classes, memory_gib=memory_gib)
            step("Facility location", 1, 1)
    return EvaluationReport(
        n_images=len(rows),
        n_classes=int(classes.max()) + 1,
        dimension=rows.shape[1],
        metric=metric,
        method=_method(metric, seed, n_restarts if clustering else 0, memory_gib, block_size),
        **found,
    )


def _clusterings(
    rows: NDArray[np.float32], classes: NDArray[np.int64], n_restarts: int, seed: int, step: OnStep
) -> dict[str, Any]:
    """k-means with as many clusters as classes, restarted; mean scores, and every restart."""
    restarts = []
    step("k-means", 0, n_restarts)
    for i in range(n_restarts):
        found = kmeans(rows, int(classes.max()) + 1, seed=seed + i)
        scores = ClusteringScores.of(classes, found.assignment)
        restarts.append(Restart(seed + i, found.objective, found.n_iterations, scores))
        step("k-means", i + 1, n_restarts)
    table = [asdict(restart.scores) for restart in restarts]
    means = {name: float(np.mean([scores[name] for scores in table])) for name in table[0]}
    nmis = [restart.scores.nmi for restart in restarts]
    return {**means, "nmi_sd": float(np.std(nmis, ddof=1)) if n_restarts > 1 else 0.0, "restarts": tuple(restarts)}


def _method(metric: Metric, seed: int, n_restarts: int, memory_gib: float, block_size: int) -> dict[str, Any]:
    return {
        "neighbors": "exact; the query is excluded by index; ties go to the lowest index",
        "clusters": "k-means++ and Lloyd, k = number of classes" + (", on unit vectors" if metric == "cosine" else ""),
        "nmi": "geometric mean of the entropies",
        "vmeasure": "arithmetic mean of the entropies",
        "n_restarts": n_restarts,
        "seeds": list(range(seed, seed + n_restarts)),
        "memory_gib": memory_gib,
        "block_size": block_size,
        "tile_size": TILE_SIZE,
        "versions": {
            "facetric": version("facetric"),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "numba": version("numba"),
        },
    }
