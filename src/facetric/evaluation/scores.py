"""`evaluate`: embeddings and labels in, every score out."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from facetric.clustering import PairModel
from facetric.evaluation.clusterings import clusterings
from facetric.evaluation.record import EvaluationReport
from facetric.machine import installed_version
from facetric.metrics import Metric, score_retrieval, validated_vectors
from facetric.progress import Progress


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
    facility: bool = True,
    n_restarts: int = 5,
    pair_model: PairModel | None = None,
    seed: int = 0,
    memory_gib: float = 1.0,
    progress: Progress | None = None,
) -> EvaluationReport:
    """Score n embeddings (n, d) of any origin against their class labels (n,), integers of any size or strings.

    * ``ks``: the K of Recall@K; ``metric``: "cosine" or "euclidean", for neighbors and clusters alike.
    * ``query``, ``gallery``: rows or masks; without them every image is a query against all others. Clusters are of all rows.
    * ``retrieval``, ``clustering``: False skips that part.
    * ``n_restarts``: k-means clusterings from random starts, seeded ``seed``, ``seed`` + 1, …; the report's clustering scores are
      their means, as in the literature. 0 for none.
    * ``facility``: also cluster by facility location, k-means started from medoids (`facility_location` of the report).
    * ``pair_model``: of other classes, `facetric.calibrate`: also the clusters that `PairLinkage` finds with it, without being
      told their number.
    * ``memory_gib``: working memory of retrieval, besides the vectors; changes no score. Facility location takes up to 0.5 GiB.
    * ``progress``: called with (step, done, total).

    >>> report = evaluate([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]], [3, 3, 8, 8], ks=(1, 2), n_restarts=2)
    >>> report.recall_at_k, report.nmi, report.map_at_r
    ({1: 1.0, 2: 1.0}, 1.0, 1.0)
    """
    if not isinstance(n_restarts, int | np.integer) or n_restarts < (0 if facility else 1):
        raise ValueError(
            f"n_restarts must be a whole number, at least {0 if facility else 1}; got {n_restarts!r}: use clustering=False for "
            "no clusters"
        )
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed must be a whole number, 0 or more; got {seed!r}: choose another")
    if not retrieval and not clustering:
        raise ValueError("retrieval and clustering are both False, so there is nothing to score: leave one of them True")
    n_restarts, seed = int(n_restarts), int(seed)  # NumPy's integers are no JSON
    rows, classes = validated_vectors(vectors, labels, metric)
    found: dict[str, Any] = {}
    if retrieval:
        found |= asdict(score_retrieval(rows, classes, ks, metric, query, gallery, memory_gib, progress))
    if clustering:
        starts: dict[str, Any] = {"facility": facility, "n_restarts": n_restarts, "seed": seed}
        found |= clusterings(rows, classes, **starts, pair_model=pair_model, progress=progress or (lambda *_: None))
    return EvaluationReport(
        n_images=len(rows),
        n_classes=int(classes.max()) + 1,
        dim=rows.shape[1],
        metric=metric,
        method=_method(metric, facility and clustering, seed, n_restarts if clustering else 0),
        **found,
    )


def evaluate_vectors(
    vectors: NDArray[np.float32],
    labels: NDArray[Any],
    *,
    ks: Sequence[int] | None = None,
    facility: bool = True,
    baselines: bool = False,
    source: dict[str, Any] | None = None,
    **options: Any,
) -> EvaluationReport:
    """`evaluate` of vectors from a file, every one with a label; with `baselines` also of the same ones in random order, which is
    what chance gives. The number of clusters is also found by the pair model that comes with the install.
    """
    if not len(labels):
        raise ValueError(
            "without labels there is nothing to score against: add a column label, or name the one there is (labels=)"
        )
    if (is_empty := labels == "").any():
        raise ValueError(
            f"{int(is_empty.sum()):,} of {len(labels):,} vectors have no label, the first is row {int(is_empty.argmax())}: fill "
            "it in, or leave such rows out"
        )
    given = {"ks": ks or [k for k in (1, 2, 4, 8) if k < len(labels)] or (1,), "facility": facility, **options}
    found = evaluate(vectors, labels, pair_model=PairModel.packaged() if facility else None, **given)
    mixed = np.random.default_rng(0).permutation(len(vectors))
    chance = {"random order": evaluate(vectors[mixed], labels, **given)} if baselines else {}
    return replace(found, source=source or {}, baselines=chance)


def _method(metric: Metric, facility: bool, seed: int, n_restarts: int) -> dict[str, Any]:
    on = ", on unit vectors" if metric == "cosine" else ""
    clusters = {"facility_location": f"medoids, then Lloyd from them; k = number of classes{on}"} if facility else {}
    if n_restarts:
        clusters["kmeans"] = f"greedy k-means++ and Lloyd; k = number of classes{on}"
    return {
        "neighbors": "exact; the query is excluded by index; ties go to the lowest index",
        "clusters": clusters,
        "nmi": "geometric mean of the entropies",
        "vmeasure": "arithmetic mean of the entropies",
        "n_restarts": n_restarts,
        "seeds": list(range(seed, seed + n_restarts)),
        "versions": {
            "facetric": installed_version("facetric"),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "numba": installed_version("numba"),
        },
    }
