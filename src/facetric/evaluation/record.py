"""`EvaluationReport`: every score of an embedded set, and how each was computed. One frozen record, saved as JSON."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from facetric.evaluation.clusterings import (
    CalibratedClustering,
    ClusteringScores,
    FacilityClustering,
    KMeansClusterings,
    Restart,
)
from facetric.files import write_atomically

FORMAT = 5


@dataclass(frozen=True)
class EvaluationReport:
    """Scores as fractions in [0, 1]; None (or an empty dict) for scores that were not computed.

    The number of clusters is that of the classes. Clustering scores (`nmi` to `purity`) are those of `facility_location`, k-means
    started from medoids, or, where that was not asked for, the mean over the random starts of `kmeans`; `clusters` says which.
    `before` holds what there was before training: pretrained features, a closed-form head.
    `method` says how everything was computed; `source` what was embedded, and is empty for bare arrays.
    """

    n_images: int
    n_classes: int
    dimension: int
    metric: str
    recall_at_k: dict[int, float] = field(default_factory=dict)
    precision_at_1: float | None = None
    r_precision: float | None = None
    map_at_r: float | None = None
    n_queries: int | None = None  # that were scored
    n_left_out: int | None = None  # queries whose class has no other image
    n_gallery: int | None = None
    clusters: str | None = None  # "facility_location" or "kmeans"
    nmi: float | None = None
    vmeasure: float | None = None
    ami: float | None = None
    ari: float | None = None
    pairwise_precision: float | None = None
    pairwise_recall: float | None = None
    pairwise_f1: float | None = None
    bcubed_precision: float | None = None
    bcubed_recall: float | None = None
    bcubed_f1: float | None = None
    purity: float | None = None
    facility_location: FacilityClustering | None = None
    kmeans: KMeansClusterings | None = None
    calibrated: CalibratedClustering | None = None  # the number of clusters is not given
    before: dict[str, EvaluationReport] = field(default_factory=dict)  # the same scores without training, by name
    method: dict[str, Any] = field(default_factory=dict)
    source: dict[str, Any] = field(default_factory=dict)

    def with_source(self, **source: Any) -> EvaluationReport:
        """The same scores with more about the source of the embeddings."""
        return replace(self, source={**self.source, **source})

    def to_json(self) -> str:
        """Standard JSON with a checksum; keys of `recall_at_k` become strings."""
        return json.dumps({"format": FORMAT, "sha256": self.fingerprint, **asdict(self)}, indent=2, allow_nan=False) + "\n"

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything in the report."""
        return _digest(json.loads(json.dumps(asdict(self), allow_nan=False)))

    @classmethod
    def from_json(cls, text: str) -> EvaluationReport:
        """What `to_json` wrote."""
        try:
            values = json.loads(text)
            if (found := values.pop("format", None)) != FORMAT:
                raise ValueError(f"its format is {found}, this version reads {FORMAT}")
            if values.pop("sha256") != _digest(values):
                raise ValueError("its checksum is wrong")
            return cls._of(values)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
            raise ValueError(f"damaged or not an evaluation ({error}): evaluate again with `facetric evaluate RUN`") from None

    @classmethod
    def _of(cls, values: dict[str, Any]) -> EvaluationReport:
        """From plain JSON values."""
        values["recall_at_k"] = {int(k): value for k, value in values["recall_at_k"].items()}
        values["before"] = {name: cls._of(before) for name, before in values["before"].items()}
        if (found := values["facility_location"]) is not None:
            values["facility_location"] = FacilityClustering(**_with_scores(found))
        if (found := values["kmeans"]) is not None:
            restarts = tuple(Restart(**_with_scores(restart)) for restart in found["restarts"])
            values["kmeans"] = KMeansClusterings(**{**_with_scores(found), "restarts": restarts})
        if (found := values["calibrated"]) is not None:
            values["calibrated"] = CalibratedClustering(**_with_scores(found))
        return cls(**values)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON; the file has its old content or all of the new."""
        write_atomically(Path(path), self.to_json().encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> EvaluationReport:
        """Read what `save` wrote."""
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def __str__(self) -> str:
        from facetric.evaluation.tables import report_text

        return report_text(self)


def _with_scores(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "scores": ClusteringScores(**record["scores"])}


def _digest(values: dict[str, Any]) -> str:
    """Of plain JSON values, whatever the order of their keys."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, allow_nan=False).encode()).hexdigest()
