"""Reports as text: the paper's columns first (NMI, then Recall@K, in percent), everything else below."""

from __future__ import annotations

from facetric.evaluation.report import EvaluationReport


def percent(value: float | None, sd: float | None = None) -> str:
    """A fraction as the paper prints it.

    >>> percent(0.59234), percent(0.59234, 0.0041), percent(None)
    ('59.23', '59.23 ± 0.41', '–')
    """
    if value is None:
        return "–"
    return f"{100 * value:.2f}" if sd is None else f"{100 * value:.2f} ± {100 * sd:.2f}"


def report_text(report: EvaluationReport) -> str:
    """The paper's row, the other scores, and what a reader must know to trust them."""
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
