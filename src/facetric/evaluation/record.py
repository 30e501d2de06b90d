"""`EvaluationReport`: every score of an embedded set, and how each was computed: a record, saved as JSON, shown as text."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tabulate import tabulate

from facetric.evaluation.clusterings import KMeansClusterings, PairClustering, ScoredClustering
from facetric.files import checksummed, read_checksummed, write_atomically
from facetric.metrics import ClusteringScores

FORMAT = 8


@dataclass(frozen=True)
class EvaluationReport:
    """Scores as fractions in [0, 1]; None (or an empty dict) for scores that were not computed. `str` gives the tables.

    Clustering scores (`nmi` to `purity`) are the means over the random starts of `kmeans`, as in the literature, with as many
    clusters as classes. Those of other clusterings stay in their records: `facility_location`, k-means started from medoids, and
    `pair_linkage`; in tables and notes they bear its name, as "medoid NMI".
    `baselines` holds what there is without training: pretrained features, a closed-form head.
    `method` says how everything was computed; `source` what was embedded, and is empty for bare arrays.
    """

    n_images: int
    n_classes: int
    dim: int
    metric: str
    recall_at_k: dict[int, float] = field(default_factory=dict)
    precision_at_1: float | None = None
    r_precision: float | None = None
    map_at_r: float | None = None
    n_queries: int | None = None  # that were scored
    n_left_out: int | None = None  # queries whose class has no other image
    n_gallery: int | None = None
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
    facility_location: ScoredClustering | None = None
    kmeans: KMeansClusterings | None = None
    pair_linkage: PairClustering | None = None  # the number of clusters is not given
    baselines: dict[str, EvaluationReport] = field(default_factory=dict)  # the same scores without training, by name
    method: dict[str, Any] = field(default_factory=dict)
    source: dict[str, Any] = field(default_factory=dict)

    def comparable_scores(self) -> dict[str, float]:
        """What tables of several rows have: the paper's columns, MAP@R, and NMI from medoids; those that there are."""
        scores = {
            "NMI": self.nmi,
            "medoid NMI": None if self.facility_location is None else self.facility_location.scores.nmi,
            **{f"R@{k}": value for k, value in self.recall_at_k.items()},
            "MAP@R": self.map_at_r,
        }
        return {name: value for name, value in scores.items() if value is not None}

    def other_scores(self) -> dict[str, float]:
        """The rest, of k-means where they are of clusters; those that there are."""
        scores = {
            "R-precision": self.r_precision,
            "V-measure": self.vmeasure,
            "AMI": self.ami,
            "ARI": self.ari,
            "pairwise F1": self.pairwise_f1,
            "BCubed F1": self.bcubed_f1,
            "purity": self.purity,
        }
        return {name: value for name, value in scores.items() if value is not None}

    def notes(self) -> list[str]:
        """What was searched, which clusterings were scored, and what is in no table."""
        notes = []
        if self.n_queries is not None:
            left_out = f"; {self.n_left_out:,} left out, whose class has no other image" if self.n_left_out else ""
            notes.append(f"Retrieval: {self.n_queries:,} queries among {self.n_gallery:,} images{left_out}.")
        if self.kmeans is not None:
            n = len(self.kmeans.restarts)
            times = f"mean ± standard deviation of {n} random starts" if n > 1 else "one random start"
            found = percent(self.nmi, self.kmeans.nmi_sd if n > 1 else None)
            reached = _precision_recall(self.kmeans.scores)
            notes.append(f"Clusters: k-means, k = {self.n_classes:,} ({times}): NMI {found}. Precision and recall {reached}.")
        if self.facility_location is not None:
            scores = self.facility_location.scores
            notes.append(
                f"From k = {self.n_classes:,} medoids, then k-means from them: medoid NMI {percent(scores.nmi)}, medoid AMI "
                f"{percent(scores.ami)}. Precision and recall {_precision_recall(scores)}."
            )
        if self.pair_linkage is not None:
            notes.append(_pair_note(self.pair_linkage, self.n_classes))
        return notes

    def to_json(self) -> str:
        """Standard JSON with a checksum; keys of `recall_at_k` become strings."""
        return checksummed({"format": FORMAT, **asdict(self)}).decode()

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything in the report."""
        return str(json.loads(self.to_json())["sha256"])

    @classmethod
    def from_json(cls, text: str) -> EvaluationReport:
        """What `to_json` wrote."""
        try:
            values = read_checksummed(text.encode())
            if (found := values.pop("format")) != FORMAT:
                raise ValueError(f"its format is {found}, this version reads {FORMAT}")
            return cls._of(values)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise ValueError(f"damaged or not an evaluation ({error}): evaluate again with `facetric evaluate RUN`") from None

    @classmethod
    def _of(cls, values: dict[str, Any]) -> EvaluationReport:
        """From plain JSON values."""
        values["recall_at_k"] = {int(k): value for k, value in values["recall_at_k"].items()}
        values["baselines"] = {name: cls._of(baseline) for name, baseline in values["baselines"].items()}
        if (found := values["kmeans"]) is not None:
            found["restarts"] = tuple(_clustering(ScoredClustering, restart) for restart in found["restarts"])
        kinds = {"facility_location": ScoredClustering, "kmeans": KMeansClusterings, "pair_linkage": PairClustering}
        return cls(**values | {name: _clustering(kind, values[name]) for name, kind in kinds.items()})

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
        """The paper's row, the other scores, and notes on how they were computed."""
        named = {**self.baselines, _own_name(self.source): self} if self.baselines else {"": self}
        rows = [({"": name} if name else {}) | report._cells() for name, report in named.items()]
        others = {name: percent(value) for name, value in self.other_scores().items()}
        tables = [_plain_table(table) for table in (rows, [others]) if table[0]]
        return "\n\n".join([self._what(), *tables, "\n".join(self.notes())])

    def in_markdown(self) -> str:
        """A table with what there is without training, and the images by count and fingerprint."""
        named = {**self.baselines, "this model": self}
        rows = [{"": name, **report._cells()} for name, report in named.items()]
        classes = f"{self.n_classes:,} classes" + (f" (fingerprint {self.source['classes']})" if "classes" in self.source else "")
        table = tabulate(rows, headers="keys", tablefmt="github", disable_numparse=True, stralign="right", colalign=("left",))
        return f"{self.n_images:,} images of {classes}, {self.metric} distance, in percent:\n\n{table}"

    def _cells(self) -> dict[str, str]:
        return {name: percent(value) for name, value in self.comparable_scores().items()} | {"d": f"{self.dim:,}"}

    def _what(self) -> str:
        source = self.source
        named = f"{source['dataset']} {source['split']}: " if {"dataset", "split"} <= source.keys() else ""
        views = f", {source['views']}" if "views" in source else ""
        classes = f"{self.n_classes:,} classes" + (f" ({source['classes']})" if "classes" in source else "")
        images = f"{self.n_images:,} images of {classes}, {self.dim} dimensions"
        return f"{named}{images}, {self.metric} distance{views}"


def _own_name(source: dict[str, Any]) -> str:
    return "these vectors" if "file" in source else "this run"


def percent(value: float | None, sd: float | None = None) -> str:
    """A fraction as the paper prints it.

    >>> percent(0.59234), percent(0.59234, 0.0041), percent(None)
    ('59.23', '59.23 ± 0.41', '–')
    """
    if value is None:
        return "–"
    return f"{100 * value:.2f}" if sd is None else f"{100 * value:.2f} ± {100 * sd:.2f}"


def _plain_table(rows: list[dict[str, str]]) -> str:
    """Cells under their headings, right-aligned; names, which have none, left-aligned."""
    names = ("left",) if "" in rows[0] else ()
    return tabulate(rows, headers="keys", tablefmt="plain", disable_numparse=True, stralign="right", colalign=names)


def _pair_note(found: PairClustering, n_classes: int) -> str:
    expected = ""
    if found.expected is not None:
        value, low, high = (round(100 * found.expected["precision"][part]) for part in ("value", "low", "high"))
        expected = f"; expected of pairs {value}% ({low} to {high}) and about {found.expected['recall']:.0%}"
    return (
        f"Number of clusters not given: {found.n_clusters:,} clusters for {n_classes:,} classes (pair linkage), its NMI "
        f"{percent(found.scores.nmi)}, its AMI {percent(found.scores.ami)}. Precision and recall "
        f"{_precision_recall(found.scores)}{expected}."
    )


def _precision_recall(found: ClusteringScores) -> str:
    pairs, points = (found.pairwise_precision, found.pairwise_recall), (found.bcubed_precision, found.bcubed_recall)
    return f"of pairs {' and '.join(map(percent, pairs))}, BCubed {' and '.join(map(percent, points))}"


def _clustering(kind: type[Any], record: dict[str, Any] | None) -> Any:
    return None if record is None else kind(**{**record, "scores": ClusteringScores(**record["scores"])})
