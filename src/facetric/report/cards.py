"""The scores of a run as the report shows them: headline cards, and the run's row above the paper's."""

from __future__ import annotations

from dataclasses import dataclass

from facetric.evaluation import CITATION, PUBLISHED, EvaluationReport, clustering_notes, comparable_scores, other_scores, percent

_OF_100 = {  # scores that count images
    "Recall@1": "For {} of 100 images, the most similar other image is of the same class.",
    "purity": "{} of 100 images are of the most frequent class in their cluster.",
}
_MEANINGS = {
    "NMI": "How much the clusters tell about the classes: 100 when they are the same, near 0 when they have nothing in common.",
    "k-means NMI": "The same for plain k-means, as in the literature.",
    "MAP@R": "Do the images of a class come first among an image's neighbors? 100: all of them do. Early errors cost the most.",
    "R-precision": "Take as many neighbors of an image as its class has other images: how many of 100 are of its class.",
    "V-measure": "Does a cluster hold one class, and does a class lie in one cluster? 100 if both are always so.",
    "AMI": "NMI, corrected for chance: 0 for random clusters, 100 when clusters and classes are the same.",
    "ARI": "Do pairs of images belong together? Corrected for chance: 0 for random clusters, 100 when all pairs agree.",
    "pairwise F1": "Pairs of images: are those in one cluster of one class, and those of one class in one cluster? 100: all are.",
    "BCubed F1": "For an average image: how much of its cluster is of its class, and how much of its class is in its cluster.",
}


def meaning(score: str, value: float | None = None) -> str:
    """What a score says, in one line for people who do not know its name.

    >>> meaning("purity", 0.613), meaning("R@4")
    ('61 of 100 images are of the most frequent class in their cluster.', 'Images with one of their class among the 4 nearest.')
    """
    if score in _OF_100 and value is not None:
        return _OF_100[score].format(round(100 * value))
    if score.startswith("R@"):
        return f"Images with one of their class among the {score.removeprefix('R@')} nearest."
    return _MEANINGS.get(score, "")


@dataclass(frozen=True)
class ScoreCard:
    """A score on its own."""

    name: str
    value: str  # in percent
    meaning: str


@dataclass(frozen=True)
class ScoreRow:
    """A line of the table: this run, or one of the paper's."""

    name: str
    values: tuple[str, ...]  # in percent, one per column
    ours: bool = False


@dataclass(frozen=True)
class ScoreTable:
    """The scores section. All values are text, as displayed."""

    cards: tuple[ScoreCard, ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[ScoreRow, ...] = ()
    notes: str = ""


def score_table(evaluation: EvaluationReport, *, dataset: str, run_name: str, chosen: str = "") -> ScoreTable:
    """The scores of a run, what there was before training, and the paper's rows when the dataset is one of the paper's.

    `chosen` says which recipe was chosen, and why.
    """
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
        cards=tuple(ScoreCard(name, percent(value), meaning(name, value)) for name, value in cards.items() if value is not None),
        columns=tuple(own),
        rows=tuple(rows) if own else (),
        notes=_notes(evaluation, has_published=bool(published)) + (f" Recipe {chosen}." if chosen else ""),
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
