"""Scores as text: the report of one evaluation (the paper's columns first, in percent) and the comparison of several runs.

A comparison prints as text, Markdown or LaTeX, the best of every column in bold (in plain text: with a star).
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import Literal, get_args

from facetric.evaluation.report import EvaluationReport

Format = Literal["text", "markdown", "latex", "csv"]


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
    several = len(report.restarts) > 1
    paper = {"NMI": percent(report.nmi, report.nmi_sd if several else None)} if report.nmi is not None else {}
    paper |= {f"R@{k}": percent(value) for k, value in report.recall_at_k.items()}
    lines = [_what(report), "", *_grid([paper])]
    others = {
        "MAP@R": report.map_at_r,
        "R-precision": report.r_precision,
        "P@1": report.precision_at_1,
        "V-measure": report.vmeasure,
        "AMI": report.ami,
        "ARI": report.ari,
        "pairwise F1": report.pairwise_f1,
        "purity": report.purity,
    }
    lines += ["", *_grid([{name: percent(value) for name, value in others.items() if value is not None}])]
    return "\n".join([*lines, "", *_notes(report)])


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
    if report.restarts:
        plural = "clustering" if len(report.restarts) == 1 else "clusterings: mean (± standard deviation)"
        notes.append(f"k-means, k = {report.n_classes:,}: {len(report.restarts)} {plural}.")
    facility = report.facility_location
    if facility is not None and facility.scores is not None:
        notes.append(
            f"Facility location (γ = 0): NMI {percent(facility.scores.nmi)}, AMI {percent(facility.scores.ami)}, "
            f"purity {percent(facility.scores.purity)}."
        )
    elif facility is not None:
        notes.append(f"Facility location was left out: {facility.left_out}.")
    return notes


def _grid(rows: list[dict[str, str]]) -> list[str]:
    """Cells under their headings, right-aligned."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    widths = {name: max(len(name), *(len(row.get(name, "")) for row in rows)) for name in names}
    lines = ["  ".join(name.rjust(widths[name]) for name in names)]
    return lines + ["  ".join(row.get(name, "").rjust(widths[name]) for name in names) for row in rows]


@dataclass(frozen=True)
class Score:
    """One cell: a mean in percent, and the standard deviation over seeds when there are several."""

    mean: float
    sd: float | None = None

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.sd is None else f"{self.mean:.2f} ± {self.sd:.2f}"


@dataclass(frozen=True)
class Row:
    """One configuration (with its runs) or one line of the paper."""

    name: str
    n_runs: int  # 0 for the paper's
    scores: dict[str, Score]  # by column


@dataclass(frozen=True)
class Comparison:
    """A table of runs on one dataset and split."""

    dataset: str
    split: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]

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
    return "\n".join([f"{comparison.dataset}, {comparison.split} split, in percent", "", *(line.rstrip() for line in table), "",
                      *starred, *comparison.notes])  # fmt: skip


def _markdown(comparison: Comparison) -> str:
    lines = [f"| {comparison.dataset}, {comparison.split} split | " + " | ".join(comparison.columns) + " |"]
    lines.append("|---|" + "---:|" * len(comparison.columns))
    for row in comparison.rows:
        name = row.name.replace("|", "\\|")
        lines.append(f"| {name} | " + " | ".join(_cells(comparison, row, "**{}**")) + " |")
    return "\n".join([*lines, *(f"\n{note}" for note in comparison.notes)])


def _csv(comparison: Comparison) -> str:
    """A line per row, with the mean and the standard deviation of every column as numbers."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["name", "runs", *(name for column in comparison.columns for name in (column, f"{column} sd"))])
    for row in comparison.rows:
        scores = [row.scores.get(column) for column in comparison.columns]
        cells = [cell for score in scores for cell in (("", "") if score is None else (score.mean, score.sd))]
        writer.writerow([row.name, row.n_runs, *("" if cell is None or cell == "" else f"{cell:.4f}" for cell in cells)])
    return file.getvalue().rstrip("\n")


def _latex(comparison: Comparison) -> str:
    lines = [r"\begin{tabular}{l" + "r" * len(comparison.columns) + "}", r"\hline"]
    lines += [" & " + " & ".join(comparison.columns) + r" \\", r"\hline"]
    for row in comparison.rows:
        cells = [cell.replace("±", r"$\pm$").replace("–", "--") for cell in _cells(comparison, row, r"\textbf{{{}}}")]
        lines.append(f"{_escaped(row.name)} & " + " & ".join(cells) + r" \\")
    lines += [r"\hline", r"\end{tabular}"]
    notes = [
        f"% {_one_line(note)}" for note in (f"{comparison.dataset}, {comparison.split} split, in percent", *comparison.notes)
    ]
    return "\n".join([*notes, *lines])


_LATEX = {character: "\\" + character for character in "&%$#_{}"}
_LATEX |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def _escaped(name: str) -> str:
    """The name as LaTeX text on one line."""
    return "".join(_LATEX.get(character, character) for character in _one_line(name))


def _one_line(text: str) -> str:
    return " ".join(text.split())
