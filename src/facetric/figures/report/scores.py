"""The scores of a run as the report shows them: headline cards, and the run's row above the paper's."""

from __future__ import annotations

from dataclasses import dataclass

from facetric.evaluation.published import CITATION, PUBLISHED
from facetric.evaluation.report import EvaluationReport
from facetric.evaluation.tables import clustering_notes, comparable_scores, other_scores, percent


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
    """The scores of a run, what there was before training, and the paper's rows when the dataset is one of the paper's."""
    own = comparable_scores(evaluation)
    cards = {"NMI": evaluation.nmi, "Recall@1": evaluation.recall_at_k.get(1), **other_scores(evaluation)}
    rows = [ScoreRow(run_name, tuple(percent(value) for value in own.values()), ours=True)]
    for name, start in evaluation.before.items():
        scores = comparable_scores(start)
        rows.append(ScoreRow(f"before: {name}, d = {start.dimension:,}", tuple(percent(scores.get(column)) for column in own)))
    published = PUBLISHED.get(dataset, ())
    for row in published:
        theirs = {"k-means NMI": row.nmi, **{f"R@{k}": value for k, value in row.recall_at_k.items()}}
        rows.append(
            ScoreRow(f"{row.method} (paper)", tuple(f"{theirs[column]:.2f}" if column in theirs else "–" for column in own))
        )
    return ScoreTable(
        cards=tuple((name, percent(value)) for name, value in cards.items() if value is not None),
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
    notes += clustering_notes(evaluation)
    if has_published:
        notes.append(f"Rows marked (paper): as published in {CITATION}.")
    if has_published or evaluation.before:
        notes.append("The best of each column is underlined.")
    return " ".join(notes)
