"""What the report shows of a run folder, as one frozen record. Every piece may be missing; what is missing is noted."""

from __future__ import annotations

import json
import os
import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facetric.metrics import Metric, unit_rows
from facetric.report.cards import Panel, panels, score_section
from facetric.runs import Run

_N_NEIGHBORS = 10


@dataclass(frozen=True, eq=False)
class ShownImages:
    """The test images of a run with their vectors. Labels are positions in `class_names`."""

    vectors: NDArray[np.float32]  # (n, d), of length one where the run compares by cosine
    class_labels: NDArray[np.int32]  # (n,)
    class_names: tuple[str, ...]
    image_names: tuple[str, ...]  # paths, or "image 7" for one in memory
    metric: Metric = "euclidean"
    clusters: NDArray[np.int32] | None = None  # (n,) from 0, none empty
    are_files: bool = False  # the names are paths of files: the page links them

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def n_neighbors(self) -> int:
        """That the page shows of each image."""
        return min(_N_NEIGHBORS, len(self) - 1)


@dataclass(frozen=True, eq=False)
class RunRecord:
    """Everything that the report shows of a run, except thumbnails and map positions."""

    title: str
    noun: str = "test images"
    dataset: str = ""
    images: ShownImages | None = None
    scores: Mapping[str, Any] = field(default_factory=dict)  # of `score_section`; empty without an evaluation
    panels: tuple[Panel, ...] = ()
    config: str = ""
    environment: str = ""
    command: str = ""
    notes: tuple[str, ...] = ()
    made_from: str = ""  # fingerprint of the scores, kept in the page


def read_run(folder: Path) -> RunRecord:
    """Read a run folder. A file that is missing or damaged becomes a note; a folder without any of them is an error."""
    if not folder.is_dir():
        raise ValueError(f"there is no run {folder}: pass a run folder such as runs/glyphs")
    run = Run(folder)
    files = (run.config_file, run.environment_file, run.metrics_file, run.embeddings_file(), run.evaluation_file())
    if not any(file.is_file() for file in files):
        names = ", ".join(file.name for file in files)
        raise ValueError(f"{folder} is not a run folder, it has none of {names}: pass one made by `facetric train`")
    notes: list[str] = []
    title = folder.resolve().name
    config, settings = _parsed(run.config_file, tomllib.loads, notes)
    environment, known = _parsed(run.environment_file, json.loads, notes)
    data = settings.get("data")
    dataset = str(data.get("name", "")) if isinstance(data, dict) else ""
    evaluation, chosen = None, run.why_chosen()
    try:
        evaluation = run.evaluation()
    except (OSError, ValueError) as error:  # they do not match the embeddings or the checkpoint either
        notes.append(f"There are no scores: {error}")
    metric: Metric = "cosine" if evaluation is not None and evaluation.metric == "cosine" else "euclidean"
    return RunRecord(
        title=title,
        dataset=dataset,
        images=_images(run, metric, notes),
        scores={} if evaluation is None else score_section(evaluation, dataset=dataset, run_name=title, chosen=chosen),
        panels=_panels(run, notes, may_lack_validation=bool(chosen)),
        config=config,
        environment=environment,
        command=_command(known.get("command", "")),
        notes=tuple(notes),
        made_from="" if evaluation is None else evaluation.fingerprint,
    )


def names_of(images: ShownImages) -> Sequence[str]:
    """As the page shows them: paths without what all of them begin with."""
    return without_common_folder(images.image_names) if images.are_files else images.image_names


def without_common_folder(names: Sequence[str]) -> list[str]:
    """The names without the folders that they all begin with.

    >>> without_common_folder(["/data/birds/a/1.jpg", "/data/birds/b/1.jpg"]), without_common_folder(["image 1", "image 2"])
    (['a/1.jpg', 'b/1.jpg'], ['image 1', 'image 2'])
    """
    n_cut = os.path.commonprefix(names).rfind("/") + 1  # noqa: RUF071  letters are meant, up to a slash
    return [name[n_cut:] for name in names]


def _parsed(path: Path, parse: Callable[[str], Any], notes: list[str]) -> tuple[str, dict[str, Any]]:
    """A text file and the values that it holds."""
    if not path.is_file():
        notes.append(f"There is no {path.name}.")
        return "", {}
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        values = parse(text)
        if not values or not isinstance(values, dict):
            raise ValueError("it holds no values")
    except (ValueError, RecursionError) as error:
        notes.append(f"{path.name} is damaged ({error}).")
        return text, {}
    return text, values


def _images(run: Run, metric: Metric, notes: list[str]) -> ShownImages | None:
    try:
        embeddings = run.embeddings()
        if 0 in embeddings.vectors.shape:
            raise ValueError(f"{run.embeddings_file().name} holds no vectors, its shape is {embeddings.vectors.shape}")
    except (OSError, ValueError, EOFError) as error:
        notes.append(f"There is no map: {error}")
        return None
    vectors = embeddings.vectors
    if not np.isfinite(vectors).all():
        notes.append("Some embeddings hold NaN or infinity; they are shown as 0 here.")
        vectors = np.nan_to_num(vectors, nan=0.0, posinf=0.0, neginf=0.0)
    if metric == "cosine":
        vectors = unit_rows(vectors)
    values, codes = np.unique(embeddings.labels, return_inverse=True)
    known: tuple[str, ...] = ()
    try:
        known = run.manifest.class_names
    except (ValueError, OSError) as error:
        notes.append(f"Classes are named by number: {' '.join(str(error).split())}")
    names = tuple(known[value] if 0 <= value < len(known) else f"class {value}" for value in values.tolist())
    in_memory = any(name.startswith("#") for name in embeddings.names)
    images = tuple(f"image {name[1:]}" if name.startswith("#") else name for name in embeddings.names)
    return ShownImages(vectors, codes.reshape(-1).astype(np.int32), names, images, metric, are_files=not in_memory)


def _panels(run: Run, notes: list[str], *, may_lack_validation: bool) -> tuple[Panel, ...]:
    path = run.metrics_file
    rows, n_broken = run.rows() if path.is_file() else ([], 0)
    if n_broken:
        notes.append(f"{n_broken} line{'s' * (n_broken > 1)} of {path.name} cannot be read and were left out.")
    made = panels(rows)
    if not made:
        empty = "has no rows with a step and a number" if rows or n_broken else "is empty: no step was trained"
        notes.append(f"{path.name} {empty if path.is_file() else 'is missing'}, and there are no training curves.")
    elif not may_lack_validation and not any(panel.title.startswith("Validation") for panel in made):
        notes.append("The run was not validated while it trained.")
    return made


def _command(command: object) -> str:
    """The command that trained the run, as environment.json lists it."""
    if not isinstance(command, list) or not command:
        return str(command)
    program, *arguments = map(str, command)
    short = "facetric" if Path(program).name in {"facetric", "__main__.py"} else Path(program).name
    return shlex.join([short, *arguments])
