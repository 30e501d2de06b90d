"""`compare_runs`: several runs in one table, runs that differ only in their seed in one row, with the paper's rows."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from statistics import mean, stdev
from typing import NamedTuple

from facetric.evaluation import CITATION, PUBLISHED, Comparison, EvaluationReport, Row, Score
from facetric.runs.run import Run, open_run
from facetric.text import class_fingerprint, printable

_IGNORED = {"seed", "name", "folder", "device", "threads", "log_every", "checkpoint_every", "loggers"}


class _Member(NamedTuple):
    folder: Path
    seed: int
    report: EvaluationReport


def compare_runs(
    runs: Sequence[str | os.PathLike[str]],
    *,
    split: str = "test",
    published: bool = True,
    reference: str | os.PathLike[str] | None = None,
) -> Comparison:
    """One row per configuration: runs whose config.toml differs in nothing but seed and name are averaged (± sd over seeds).

    Every run must have been evaluated (`facetric evaluate RUN`) on the same dataset. `reference`: one of the runs; its row is
    also compared with every other that shares two seeds or more, seed by seed.
    """
    if not runs:
        raise ValueError("there are no runs to compare: pass at least one run folder")
    folders = list({Path(run).resolve(): Path(run) for run in runs}.values())
    groups: dict[tuple[str, int], list[_Member]] = {}
    datasets: dict[str, Path] = {}
    images: dict[tuple[frozenset[tuple[str, str]], str], str] = {}
    for folder in folders:
        run = open_run(folder)
        report = run.evaluation(split)
        datasets.setdefault(_dataset(run), folder)
        size = f"{report.n_images:,} images of {report.n_classes:,} classes"
        classes = class_fingerprint(run.manifest.class_names, run.manifest.labels[run.manifest.splits == split])
        images.setdefault((run.manifest.names_with_classes(split), size), f"{size} ({classes}, {folder})")
        member = _Member(folder, run.config.run.seed, report)
        for copy in count():  # of the same seed: it has a row of its own
            members = groups.setdefault((_identity(run, report), copy), [])
            if all(other.seed != member.seed for other in members):
                members.append(member)
                break
    if len(datasets) > 1:
        found = ", ".join(f"{name} ({folder})" for name, folder in datasets.items())
        raise ValueError(f"runs of different datasets cannot share a table; got {found}: compare those of one dataset")
    if len(images) > 1:
        seed = "data.validation_seed" if split == "validation" else "data.options.seed"
        raise ValueError(
            f"runs that were scored on different images cannot share a table; got {', '.join(images.values())}: compare those of "
            f"one split, or train them with the same --set {seed}=…"
        )
    dataset = run.config.data.name
    rows = [*_baseline_rows(groups.values()), *(_row(members) for members in groups.values())]
    notes = ["± is the standard deviation over seeds, n − 1."] if any(row.n_runs > 1 for row in rows) else []
    if published and split == "test" and dataset in PUBLISHED:
        rows = [*PUBLISHED[dataset], *rows]
        notes.append(f"Rows marked (paper): {CITATION}.")
    columns = _ordered({column for row in rows for column in row.scores})
    differences = () if reference is None else _differences(list(groups.values()), Path(reference))
    return Comparison(dataset, split, columns, tuple(rows), tuple(notes), differences)


def _dataset(run: Run) -> str:
    """Its name, and where one's own images are."""
    data = run.config.data
    return data.name if data.name in PUBLISHED or data.root is None else f"{data.name} {printable(os.path.realpath(data.root))}"


def _identity(run: Run, report: EvaluationReport) -> str:
    """What two runs must have in common to be averaged: their configuration but for seed and name, and how they were scored."""
    tables = run.config.model_dump()
    tables["run"] = {key: value for key, value in tables["run"].items() if key not in _IGNORED}
    scored = {key: report.source.get(key) for key in ("views", "checkpoint", "manifest")} | {
        "metric": report.metric,
        "n_images": report.n_images,
    }
    return json.dumps({**tables, "scored": scored}, sort_keys=True, default=str)


def _differences(groups: list[list[_Member]], reference: Path) -> tuple[Row, ...]:
    """The reference's row minus each other one, over the seeds that both have."""
    own = next((members for members in groups if any(member.folder.resolve() == reference.resolve() for member in members)), None)
    if own is None:
        raise ValueError(f"the reference is not one of the runs: {reference}: pass one of them")
    ours = {member.seed: member.report.comparable_scores() for member in own}
    rows = []
    for members in groups:
        pairs = [(ours[member.seed], member.report.comparable_scores()) for member in members if member.seed in ours]
        if members is own or len(pairs) < 2:
            continue
        scores: dict[str, Score] = {}
        for column in _ordered(set.intersection(*(set(found) for pair in pairs for found in pair))):
            gains = [100 * (one[column] - other[column]) for one, other in pairs]
            scores[column] = Score(mean(gains), stdev(gains) / len(gains) ** 0.5, is_difference=True)
        rows.append(Row(f"{_row(own).name} − {_row(members).name}", len(pairs), scores))
    return tuple(rows)


def _row(members: list[_Member]) -> Row:
    found = [member.report.comparable_scores() for member in members]
    scores = {}
    for column in found[0]:
        known = [one[column] for one in found if column in one]
        if len(known) == len(found):
            scores[column] = Score(100 * mean(known), 100 * stdev(known) if len(known) > 1 else None)
    names = [printable(member.folder.resolve().name) for member in members]
    name = names[0] if len(names) == 1 else f"{_common_start(names)} ({len(names)} seeds)"
    return Row(name, len(members), scores)


def _baseline_rows(groups: Iterable[list[_Member]]) -> list[Row]:
    """What there was before training, once for all runs that started from the same."""
    rows: dict[str, Row] = {}
    for members in groups:
        own = _row(members).name
        found = next((member.report.baselines for member in members if member.report.baselines), {})
        for name, baseline in found.items():
            scores = {column: Score(100 * value) for column, value in baseline.comparable_scores().items()}
            row = Row(f"{name}, d = {baseline.dim:,}", 0, scores)
            if rows.setdefault(row.name, row).scores != scores:
                rows.setdefault(f"{row.name} ({own})", replace(row, name=f"{row.name} ({own})"))
    return list(rows.values())


def _ordered(columns: Iterable[str]) -> tuple[str, ...]:
    """NMI, Recall@K by K, the rest."""
    ranks = {"NMI": (0, 0), "medoid NMI": (0, 1), "MAP@R": (2, 0)}
    return tuple(sorted(columns, key=lambda column: ranks.get(column) or (1, int(column.removeprefix("R@")))))


def _common_start(names: list[str]) -> str:
    """What the names of seeds have in common, without the dangling "-seed" of `runs/cub-seed0`."""
    start = os.path.commonprefix(names)  # noqa: RUF071  letters are meant
    return re.sub(r"([-_](seed|run|s))?[-_.+]*\d*$", "", start, flags=re.IGNORECASE) or names[0]
