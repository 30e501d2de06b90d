"""Scores as text: the report of one evaluation (the paper's columns first, in percent) and the comparison of several runs.

A comparison prints as text, Markdown or LaTeX, the best of every column in bold (in plain text: with a star).
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import Literal, get_args

from facetric.clustering import Estimate
from facetric.evaluation.clusterings import CalibratedClustering, ClusteringScores
from facetric.evaluation.record import EvaluationReport

Format = Literal["text", "markdown", "latex", "csv"]
DIFFERENCES = "Paired differences: mean over the seeds that both have ± its standard error."


def percent(value: float | None, sd: float | None = None) -> str:
    """A fraction as the paper prints it.

    >>> percent(0.59234), percent(0.59234, 0.0041), percent(None)
    ('59.23', '59.23 ± 0.41', '–')
    """
    if value is None:
        return "–"
    return f"{100 * value:.2f}" if sd is None else f"{100 * value:.2f} ± {100 * sd:.2f}"


def report_text(report: EvaluationReport) -> str:
    """The paper's row, the other scores, and notes on how they were computed."""
    named = {**report.before, "this run": report} if report.before else {"": report}
    rows = [({"": name} if name else {}) | _main_cells(one, map_at_r=bool(name)) for name, one in named.items()]
    lines = [_what(report), "", *_grid(rows)]
    others = {name: percent(value) for name, value in other_scores(report).items() if name not in rows[-1]}
    lines += ["", *_grid([others])] if others else []
    return "\n".join([*lines, "", *_notes(report)])


def _main_cells(report: EvaluationReport, *, map_at_r: bool) -> dict[str, str]:
    cells = {name: percent(value) for name, value in main_scores(report).items()}
    if map_at_r:
        cells |= {"MAP@R": percent(report.map_at_r), "d": f"{report.dimension:,}"}
    return cells


def main_scores(report: EvaluationReport) -> dict[str, float]:
    """NMI and Recall@K, those that there are."""
    nmi = {} if report.nmi is None else {"NMI": report.nmi}
    return nmi | {f"R@{k}": value for k, value in report.recall_at_k.items()}


def comparable_scores(report: EvaluationReport) -> dict[str, float]:
    """NMI of both clusterings by their names (the literature's is that of k-means), Recall@K, MAP@R; those that there are."""
    found = {
        "NMI": None if report.clusters == "kmeans" else report.nmi,
        "k-means NMI": None if report.kmeans is None else report.kmeans.scores.nmi,
        **{f"R@{k}": value for k, value in report.recall_at_k.items()},
        "MAP@R": report.map_at_r,
    }
    return {name: value for name, value in found.items() if value is not None}


def other_scores(report: EvaluationReport) -> dict[str, float]:
    """The scores that the paper has not, those that there are."""
    found = {
        "MAP@R": report.map_at_r,
        "R-precision": report.r_precision,
        "V-measure": report.vmeasure,
        "AMI": report.ami,
        "ARI": report.ari,
        "pairwise F1": report.pairwise_f1,
        "BCubed F1": report.bcubed_f1,
        "purity": report.purity,
    }
    return {name: value for name, value in found.items() if value is not None}


def _what(report: EvaluationReport) -> str:
    source = report.source
    named = f"{source['dataset']} {source['split']}: " if {"dataset", "split"} <= source.keys() else ""
    views = f", {source['views']}" if "views" in source else ""
    return (
        f"{named}{report.n_images:,} images of {report.n_classes:,} classes, {report.dimension} dimensions, "
        f"{report.metric} distance{views}"
    )


def _notes(report: EvaluationReport) -> list[str]:
    notes = []
    if report.n_queries is not None:
        left_out = f"; {report.n_left_out:,} left out, whose class has no other image" if report.n_left_out else ""
        notes.append(f"Retrieval: {report.n_queries:,} queries among {report.n_gallery:,} images{left_out}.")
    notes += clustering_notes(report)
    return notes


def clustering_notes(report: EvaluationReport) -> list[str]:
    """Which clusterings were scored, and what both found where there are both."""
    notes, facility, kmeans = [], report.facility_location, report.kmeans
    if facility is not None:
        pairs, points = _precision_recall(facility.scores, "pairwise"), _precision_recall(facility.scores, "bcubed")
        notes.append(
            f"Clusters: k = {report.n_classes:,} medoids, then k-means from them. Precision and recall of pairs {pairs}, BCubed "
            f"{points}."
        )
    if kmeans is not None:
        several = len(kmeans.restarts) > 1
        found = percent(kmeans.scores.nmi, kmeans.nmi_sd if several else None)
        times = f"mean ± standard deviation of {len(kmeans.restarts)} random starts" if several else "one random start"
        notes.append(
            f"k-means as in the literature, k = {report.n_classes:,}: NMI {found}, AMI {percent(kmeans.scores.ami)} ({times})."
        )
    if report.calibrated is not None:
        notes.append(_calibrated_note(report.calibrated, report.n_classes))
    return notes


def _calibrated_note(found: CalibratedClustering, n_classes: int) -> str:
    method, expected = str(found.calibration["method"]).replace("_", " "), found.calibration["expected"]
    kinds = {"of pairs": "pairwise", "BCubed": "bcubed"}
    reached = ", ".join(f"{name} {_precision_recall(found.scores, kind)}" for name, kind in kinds.items())
    return (
        f"Number of clusters not given: {found.n_clusters:,} clusters for {n_classes:,} classes ({method}, calibrated on "
        f"validation classes), NMI {percent(found.scores.nmi)}, AMI {percent(found.scores.ami)}. "
        f"Precision and recall {reached}; expected of pairs {Estimate(**expected['precision'])} and about "
        f"{expected['recall']:.0%}."
    )


def _precision_recall(scores: ClusteringScores, kind: str) -> str:
    return " and ".join(percent(getattr(scores, f"{kind}_{name}")) for name in ("precision", "recall"))


def _grid(rows: list[dict[str, str]]) -> list[str]:
    """Cells under their headings, right-aligned; names, which have none, left-aligned."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    widths = {name: max(len(name), *(len(row.get(name, "")) for row in rows)) for name in names}
    lines = [{name: name for name in names}, *rows]
    return ["  ".join(_aligned(line.get(name, ""), widths[name], name) for name in names) for line in lines]


def _aligned(cell: str, width: int, heading: str) -> str:
    return cell.rjust(width) if heading else cell.ljust(width)


@dataclass(frozen=True)
class Score:
    """One cell: a mean in percent, and the standard deviation over seeds when there are several."""

    mean: float
    sd: float | None = None

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.sd is None else f"{self.mean:.2f} ± {self.sd:.2f}"


@dataclass(frozen=True)
class Difference(Score):
    """The mean of paired differences, and its standard error."""

    def __str__(self) -> str:
        return f"{self.mean:+.2f} ± {self.sd:.2f}"


@dataclass(frozen=True)
class Row:
    """One configuration (with its runs) or one line of the paper."""

    name: str
    n_runs: int  # 0 for the paper's, and for what there was before training
    scores: dict[str, Score]  # by column


@dataclass(frozen=True)
class Comparison:
    """A table of runs on one dataset and split."""

    dataset: str
    split: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    differences: tuple[Row, ...] = ()  # of one row to the others, paired by seed

    def best(self, column: str) -> float | None:
        """The best value of a column, as it is printed: what looks equal is equally bold."""
        values = [round(row.scores[column].mean, 2) for row in self.rows if column in row.scores]
        return max(values) if len(values) > 1 else None

    def is_best(self, row: Row, column: str) -> bool:
        return column in row.scores and round(row.scores[column].mean, 2) == self.best(column)


def comparison_text(comparison: Comparison, format: Format = "text") -> str:
    """The whole table with its title and notes."""
    if format not in get_args(Format):
        raise ValueError(f"format must be one of {', '.join(get_args(Format))}; got {format!r}: choose one of these")
    return {"text": _text, "markdown": _markdown, "latex": _latex, "csv": _csv}[format](comparison)


def _cells(comparison: Comparison, row: Row, bold: str) -> list[str]:
    cells = []
    for column in comparison.columns:
        score = row.scores.get(column)
        cell = "–" if score is None else str(score)
        cells.append(bold.format(cell) if comparison.is_best(row, column) else cell)
    return cells


def _text(comparison: Comparison) -> str:
    lines = [["", *comparison.columns], *([row.name, *_cells(comparison, row, "{}*")] for row in comparison.rows)]
    widths = [max(len(line[i].rstrip("*")) for line in lines) for i in range(len(lines[0]))]

    def padded(cell: str, width: int) -> str:  # the star hangs over, so that figures stand in line
        return cell.rjust(width + 1) if cell.endswith("*") else cell.rjust(width) + " "

    table = [line[0].ljust(widths[0]) + "  " + " ".join(map(padded, line[1:], widths[1:])) for line in lines]
    starred = ["* best of the column."] if len(comparison.rows) > 1 else []
    pairs = [{"": row.name} | {column: str(score) for column, score in row.scores.items()} for row in comparison.differences]
    paired = ["", DIFFERENCES, "", *_grid(pairs)] if pairs else []
    return "\n".join([f"{comparison.dataset}, {comparison.split} split, in percent", "", *(line.rstrip() for line in table), "",
                      *starred, *comparison.notes, *paired])  # fmt: skip


def _markdown(comparison: Comparison) -> str:
    lines = [f"| {comparison.dataset}, {comparison.split} split | " + " | ".join(comparison.columns) + " |"]
    lines.append("|---|" + "---:|" * len(comparison.columns))
    for row in comparison.rows:
        name = row.name.replace("|", "\\|")
        lines.append(f"| {name} | " + " | ".join(_cells(comparison, row, "**{}**")) + " |")
    lines += [f"\n{note}" for note in comparison.notes]
    if comparison.differences:
        lines += [
            f"\n{DIFFERENCES}\n",
            "| | " + " | ".join(comparison.columns) + " |",
            "|---|" + "---:|" * len(comparison.columns),
        ]
        for row in comparison.differences:
            lines.append(
                f"| {row.name} | " + " | ".join(str(row.scores.get(column, "–")) for column in comparison.columns) + " |"
            )
    return "\n".join(lines)


def _csv(comparison: Comparison) -> str:
    """A line per row, with the mean and the standard deviation of every column as numbers; of differences the standard error."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["name", "runs", *(name for column in comparison.columns for name in (column, f"{column} sd"))])
    for row in (*comparison.rows, *comparison.differences):
        scores = [row.scores.get(column) for column in comparison.columns]
        cells = [cell for score in scores for cell in (("", "") if score is None else (score.mean, score.sd))]
        writer.writerow([row.name, row.n_runs, *("" if cell is None or cell == "" else f"{cell:.4f}" for cell in cells)])
    return file.getvalue().rstrip("\n")


def _latex(comparison: Comparison) -> str:
    lines = [r"\begin{tabular}{l" + "r" * len(comparison.columns) + "}", r"\hline"]
    lines += [" & " + " & ".join(comparison.columns) + r" \\", r"\hline"]
    for row in comparison.rows:
        lines.append(_latex_line(row.name, _cells(comparison, row, r"\textbf{{{}}}")))
    if comparison.differences:
        lines.append(r"\hline")
    for row in comparison.differences:
        lines.append(_latex_line(row.name, [str(row.scores.get(column, "–")) for column in comparison.columns]))
    lines += [r"\hline", r"\end{tabular}"]
    title, paired = f"{comparison.dataset}, {comparison.split} split, in percent", (DIFFERENCES,) * bool(comparison.differences)
    notes = [f"% {_one_line(note)}" for note in (title, *comparison.notes, *paired)]
    return "\n".join([*notes, *lines])


def _latex_line(name: str, cells: list[str]) -> str:
    return " & ".join([_escaped(name), *(cell.replace("±", r"$\pm$").replace("–", "--") for cell in cells)]) + r" \\"


_LATEX = {character: "\\" + character for character in "&%$#_{}"}
_LATEX |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def _escaped(name: str) -> str:
    """The name as LaTeX text on one line."""
    return "".join(_LATEX.get(character, character) for character in _one_line(name))


def _one_line(text: str) -> str:
    return " ".join(text.split())
