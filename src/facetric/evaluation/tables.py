"""The comparison of several runs as a table, and the paper's own tables.

Oh Song, Jegelka, Rathod, Murphy: Deep Metric Learning via Facility Location, CVPR 2017, Tables 1 to 3: NMI and Recall@K in
percent, embeddings of 64 dimensions, Inception with batch normalization.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import Literal, get_args

from tabulate import tabulate

Format = Literal["text", "markdown", "latex", "csv"]
_TABLES = {"text": "plain", "markdown": "pipe", "latex": "latex"}  # the names of tabulate
_DIFFERENCES = "Paired differences: mean over the seeds that both have ± its standard error."


@dataclass(frozen=True)
class Score:
    """One cell: a mean in percent, and the standard deviation over seeds when there are several."""

    mean: float
    sd: float | None = None  # of a difference its standard error
    is_difference: bool = False

    def __str__(self) -> str:
        mean = f"{self.mean:+.2f}" if self.is_difference else f"{self.mean:.2f}"
        return mean if self.sd is None else f"{mean} ± {self.sd:.2f}"


@dataclass(frozen=True)
class Row:
    """One configuration (with its runs) or one line of the paper."""

    name: str
    n_runs: int  # 0 for the paper's, and for baselines
    scores: dict[str, Score]  # by column


@dataclass(frozen=True)
class Comparison:
    """A table of runs on one dataset and split. `str` gives its text."""

    dataset: str
    split: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    differences: tuple[Row, ...] = ()  # of one row to the others, paired by seed

    def is_best(self, row: Row, column: str) -> bool:
        """Whether the row has the best of several values, as they are printed: what looks equal is equally bold."""
        printed = [round(one.scores[column].mean, 2) for one in self.rows if column in one.scores]
        return column in row.scores and len(printed) > 1 and round(row.scores[column].mean, 2) == max(printed)

    def __str__(self) -> str:
        return self.text()

    def text(self, format: Format = "text") -> str:
        """The whole table with its title and notes, as text, Markdown, LaTeX or CSV; the best of a column is bold, or starred."""
        if format not in get_args(Format):
            raise ValueError(f"format must be one of {', '.join(get_args(Format))}; got {format!r}: choose one of these")
        if format == "csv":
            return self._csv()
        starred = ("* best of the column.",) if format != "markdown" and len(self.rows) > 1 else ()
        title, *notes = map(_one_line, (f"{self.dataset}, {self.split} split, in percent", *starred, *self.notes))
        blocks = [_comments([title], format), self._table(self.rows, format), _comments(notes, format)]
        if self.differences:
            blocks += [_comments([_DIFFERENCES], format), self._table(self.differences, format)]
        return "\n\n".join(block for block in blocks if block)

    def _table(self, rows: tuple[Row, ...], format: Format) -> str:
        cells = [[_one_line(row.name).replace("|", "\\|" if format == "markdown" else "|")] for row in rows]
        for row, line in zip(rows, cells, strict=True):
            for column in self.columns:
                best = "{}" if rows is self.differences or not self.is_best(row, column) else "{}*"
                bold = best.replace("{}*", "**{}**") if format == "markdown" else best
                line.append(bold.format(row.scores.get(column, "–")))
        align = ("left", *("right" for _ in self.columns))
        return tabulate(cells, ["", *self.columns], _TABLES[format], disable_numparse=True, colalign=align)

    def _csv(self) -> str:
        """A line per row, the mean and the standard deviation of every column as numbers; of differences the standard error."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["name", "runs", *(name for column in self.columns for name in (column, f"{column} sd"))])
        for row in (*self.rows, *self.differences):
            scores = [row.scores.get(column) for column in self.columns]
            cells = [cell for score in scores for cell in ((None, None) if score is None else (score.mean, score.sd))]
            writer.writerow([row.name, row.n_runs, *("" if cell is None else f"{cell:.4f}" for cell in cells)])
        return file.getvalue().rstrip("\n")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _comments(lines: list[str], format: Format) -> str:
    if format == "latex":
        return "\n".join(f"% {line}" for line in lines)
    return ("\n\n" if format == "markdown" else "\n").join(lines)


CITATION = "Oh Song et al., Deep Metric Learning via Facility Location, CVPR 2017"


def _paper(ks: tuple[int, ...], *rows: tuple[float, ...]) -> tuple[Row, ...]:
    """NMI and Recall@K of the paper's methods."""
    columns = ("NMI", *(f"R@{k}" for k in ks))
    methods = ("Triplet semihard", "Lifted struct", "Npairs", "Clustering")
    scores = [dict(zip(columns, map(Score, row), strict=True)) for row in rows]
    return tuple(Row(f"{name} (paper)", 0, found) for name, found in zip(methods, scores, strict=True))


PUBLISHED: dict[str, tuple[Row, ...]] = {
    "cub": _paper(
        (1, 2, 4, 8),
        (55.38, 42.59, 55.03, 66.44, 77.23),
        (56.50, 43.57, 56.55, 68.59, 79.63),
        (57.24, 45.37, 58.41, 69.51, 79.49),
        (59.23, 48.18, 61.44, 71.83, 81.92),
    ),
    "cars": _paper(
        (1, 2, 4, 8),
        (53.35, 51.54, 63.78, 73.52, 82.41),
        (56.88, 52.98, 65.70, 76.01, 84.27),
        (57.79, 53.90, 66.76, 77.75, 86.35),
        (59.04, 58.11, 70.64, 80.27, 87.81),
    ),
    "products": _paper(
        (1, 10, 100),
        (89.46, 66.67, 82.39, 91.85),
        (88.65, 62.46, 80.81, 91.93),
        (89.37, 66.41, 83.24, 93.00),
        (89.48, 67.02, 83.65, 93.23),
    ),
}
