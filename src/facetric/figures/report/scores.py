"""The scores of a run as the report shows them: headline cards, and the run's row above the paper's."""

from __future__ import annotations

from dataclasses import dataclass

from facetric.evaluation.published import CITATION, PUBLISHED
from facetric.evaluation.report import EvaluationReport
from facetric.evaluation.tables import percent


@dataclass(frozen=True)
class ScoreRow:
    """A line of the table: this run, or one of the paper's."""

    name: str
    values: tuple[str, ...]  # in percent, one per column
    ours: bool = False


@dataclass(frozen=True)
class ScoreTable:
    """The scores section. All values are text, as displayed."""

    cards: tuple[tuple[str, str], ...] = ()  # name and value
    columns: tuple[str, ...] = ()
    rows: tuple[ScoreRow, ...] = ()
    notes: str = ""


def score_table(evaluation: EvaluationReport, *, dataset: str, run_name: str) -> ScoreTable:
    """The scores of a run, with the paper's rows when the dataset is one of the paper's."""
    several = len(evaluation.restarts) > 1
    own = {"NMI": percent(evaluation.nmi, evaluation.nmi_sd if several else None)} if evaluation.nmi is not None else {}
    own |= {f"R@{k}": percent(value) for k, value in evaluation.recall_at_k.items()}
    others = {
        "NMI": evaluation.nmi,
        "Recall@1": evaluation.recall_at_k.get(1),
        "MAP@R": evaluation.map_at_r,
        "R-precision": evaluation.r_precision,
        "AMI": evaluation.ami,
        "ARI": evaluation.ari,
        "V-measure": evaluation.vmeasure,
        "pairwise F1": evaluation.pairwise_f1,
        "purity": evaluation.purity,
    }
    rows = [ScoreRow(run_name, tuple(own.values()), ours=True)]
    published = PUBLISHED.get(dataset, ())
    for row in published:
        theirs = {"NMI": row.nmi, **{f"R@{k}": value for k, value in row.recall_at_k.items()}}
        rows.append(ScoreRow(row.method, tuple(f"{theirs[column]:.2f}" if column in theirs else "–" for column in own)))
    return ScoreTable(
        cards=tuple((name, percent(value)) for name, value in others.items() if value is not None),
        columns=tuple(own),
        rows=tuple(rows) if own else (),
        notes=_notes(evaluation, has_published=bool(published)),
    )


def _notes(evaluation: EvaluationReport, *, has_published: bool) -> str:
    notes = ["In percent."]
    if evaluation.n_queries is not None:
        notes.append(f"Retrieval: {evaluation.n_queries:,} queries among {evaluation.n_gallery or 0:,} images.")
    if evaluation.n_left_out:
        notes.append(f"{evaluation.n_left_out:,} images are not queries: their class has no other image.")
    if evaluation.restarts:
        spread = ", mean ± standard deviation" if len(evaluation.restarts) > 1 else ""
        notes.append(f"Clustering: k-means, k = {evaluation.n_classes:,}, {len(evaluation.restarts)} times{spread}.")
    if has_published:
        notes.append(f"Other rows: as published in {CITATION}. The best of each column is underlined.")
    return " ".join(notes)
