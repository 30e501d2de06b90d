"""`EvaluationReport`: every score of an embedded set, and how each was computed. One frozen record, saved as JSON."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from facetric.evaluation.clustering import ClusteringScores, FacilityClustering
from facetric.files import write_atomically

FORMAT = 2


@dataclass(frozen=True)
class Restart:
    """One k-means clustering of the set."""

    seed: int
    objective: float  # Σ squared distances to the own center; lower is better
    n_iterations: int
    scores: ClusteringScores


@dataclass(frozen=True)
class EvaluationReport:
    """Scores as fractions in [0, 1]; None (or an empty dict) for scores that were not computed.

    Clustering scores are means over the k-means restarts; `nmi_sd` is the standard deviation over them (n − 1; 0 for one).
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
    nmi: float | None = None
    nmi_sd: float | None = None
    vmeasure: float | None = None
    ami: float | None = None
    ari: float | None = None
    pairwise_f1: float | None = None
    purity: float | None = None
    restarts: tuple[Restart, ...] = ()
    facility_location: FacilityClustering | None = None
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
            values["recall_at_k"] = {int(k): value for k, value in values["recall_at_k"].items()}
            values["restarts"] = tuple(
                Restart(**{**restart, "scores": ClusteringScores(**restart["scores"])}) for restart in values["restarts"]
            )
            if (facility := values["facility_location"]) is not None:
                scores = facility["scores"]
                values["facility_location"] = FacilityClustering(
                    **{**facility, "scores": ClusteringScores(**scores) if scores else None}
                )
            return cls(**values)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
            raise ValueError(f"damaged or not an evaluation ({error}): evaluate again with `facetric evaluate RUN`") from None

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


def _digest(values: dict[str, Any]) -> str:
    """Of plain JSON values, whatever the order of their keys."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, allow_nan=False).encode()).hexdigest()
