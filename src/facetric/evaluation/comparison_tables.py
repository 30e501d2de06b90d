"""A comparison as text, Markdown or LaTeX, the best of every column in bold (in plain text: with a star)."""

from __future__ import annotations

from typing import Literal, get_args

from facetric.evaluation.comparison import Comparison, Row

Format = Literal["text", "markdown", "latex"]


def comparison_text(comparison: Comparison, format: Format = "text") -> str:
    """The whole table with its title and notes."""
    if format not in get_args(Format):
        raise ValueError(f"format must be one of {', '.join(get_args(Format))}; got {format!r}: choose one of these")
    return {"text": _text, "markdown": _markdown, "latex": _latex}[format](comparison)


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


def _latex(comparison: Comparison) -> str:
    lines = [r"\begin{tabular}{l" + "r" * len(comparison.columns) + "}", r"\hline"]
    lines += [" & " + " & ".join(comparison.columns) + r" \\", r"\hline"]
    for row in comparison.rows:
        cells = [cell.replace("±", r"$\pm$").replace("–", "--") for cell in _cells(comparison, row, r"\textbf{{{}}}")]
        lines.append(f"{_escaped(row.name)} & " + " & ".join(cells) + r" \\")
    lines += [r"\hline", r"\end{tabular}"]
    notes = [f"% {note}" for note in (f"{comparison.dataset}, {comparison.split} split, in percent", *comparison.notes)]
    return "\n".join([*notes, *lines])


def _escaped(name: str) -> str:
    for character in "&%$#_{}":
        name = name.replace(character, "\\" + character)
    return name
