"""What the report shows of a run folder, as one frozen record. Every piece may be missing; what is missing is noted."""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facetric.evaluation import EvaluationReport
from facetric.metrics import Metric, unit_rows
from facetric.report.cards import Panel, ScoreTable, panels, score_table
from facetric.runs import Run, read_rows


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


@dataclass(frozen=True, eq=False)
class RunRecord:
    """Everything that the report shows of a run, except thumbnails and map positions."""

    title: str
    dataset: str = ""
    images: ShownImages | None = None
    scores: ScoreTable = field(default_factory=ScoreTable)
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
    config = _text(run.config_file, notes)
    environment = _text(run.environment_file, notes)
    dataset = _dataset_name(config, run.config_file, notes)
    try:
        json.loads(environment or "{}" * (not run.environment_file.is_file()))
    except (ValueError, RecursionError) as error:
        notes.append(f"{run.environment_file.name} is damaged ({error}).")
    evaluation, chosen = _evaluation(run, notes), run.why_chosen()
    metric: Metric = "cosine" if evaluation is not None and evaluation.metric == "cosine" else "euclidean"
    return RunRecord(
        title=title,
        dataset=dataset,
        images=_images(run, metric, notes),
        scores=ScoreTable() if evaluation is None else score_table(evaluation, dataset=dataset, run_name=title, chosen=chosen),
        panels=_panels(run.metrics_file, notes, may_lack_validation=bool(chosen)),
        config=config,
        environment=environment,
        command=_command(environment),
        notes=tuple(notes),
        made_from="" if evaluation is None else evaluation.fingerprint,
    )


def without_common_folder(names: Sequence[str]) -> list[str]:
    """The names without the folders that they all begin with.

    >>> without_common_folder(["/data/birds/a/1.jpg", "/data/birds/b/1.jpg"]), without_common_folder(["image 1", "image 2"])
    (['a/1.jpg', 'b/1.jpg'], ['image 1', 'image 2'])
    """
    first, last = min(names, default=""), max(names, default="")  # what these two share, all share
    n_shared = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    n_cut = first.rfind("/", 0, n_shared) + 1
    return [name[n_cut:] for name in names]


def _images(run: Run, metric: Metric, notes: list[str]) -> ShownImages | None:
    path = run.embeddings_file()
    if not path.is_file():
        notes.append(f"There is no {path.name}, so there is no map: `facetric evaluate` writes it.")
        return None
    try:
        embeddings = run.embeddings()
    except (OSError, ValueError, EOFError) as error:
        notes.append(f"There is no map: {error}")
        return None
    if embeddings.vectors.ndim != 2 or 0 in embeddings.vectors.shape:
        notes.append(f"{path.name} holds vectors of shape {embeddings.vectors.shape}, so there is no map.")
        return None
    vectors = embeddings.vectors.astype(np.float32)
    if not np.isfinite(vectors).all():
        notes.append("Some embeddings hold NaN or infinity; they are shown as 0 here.")
        vectors = np.nan_to_num(vectors, nan=0.0, posinf=0.0, neginf=0.0)
    if metric == "cosine":
        vectors = unit_rows(vectors)
    values, codes = np.unique(embeddings.labels, return_inverse=True)
    known = _class_names(run, notes)
    names = tuple(known[value] if 0 <= value < len(known) else f"class {value}" for value in values.tolist())
    in_memory = any(name.startswith("#") for name in embeddings.names)
    images = tuple(f"image {name[1:]}" if name.startswith("#") else name for name in embeddings.names)
    return ShownImages(vectors, codes.reshape(-1).astype(np.int32), names, images, metric, are_files=not in_memory)


def _class_names(run: Run, notes: list[str]) -> tuple[str, ...]:
    try:
        return run.manifest.class_names
    except (ValueError, OSError) as error:
        notes.append(f"Classes are named by number: {' '.join(str(error).split())}")
        return ()


def _evaluation(run: Run, notes: list[str]) -> EvaluationReport | None:
    """The scores, if they match the embeddings and the checkpoint."""
    path = run.evaluation_file()
    if not path.is_file():
        notes.append(f"There is no {path.name}, so there are no scores: `facetric evaluate` writes it.")
        return None
    try:
        return run.evaluation()
    except (OSError, ValueError) as error:
        notes.append(f"There are no scores: {error}")
        return None


def _panels(path: Path, notes: list[str], *, may_lack_validation: bool) -> tuple[Panel, ...]:
    if not path.is_file():
        notes.append(f"There is no {path.name}, so there are no training curves.")
        return ()
    rows, n_broken = read_rows(path)
    if n_broken:
        notes.append(f"{n_broken} line{'s' * (n_broken > 1)} of {path.name} cannot be read and were left out.")
    made = panels(rows)
    if not rows and not n_broken:
        notes.append(f"{path.name} is empty: no step was trained, and there are no training curves.")
    elif not made:
        notes.append(f"{path.name} has no rows with a step and a number, so there are no training curves.")
    elif not may_lack_validation and not any(panel.title.startswith("Validation") for panel in made):
        notes.append("The run was not validated while it trained.")
    return made


def _text(path: Path, notes: list[str]) -> str:
    if not path.is_file():
        notes.append(f"There is no {path.name}.")
        return ""
    return path.read_text(encoding="utf-8", errors="replace")


def _dataset_name(config: str, path: Path, notes: list[str]) -> str:
    try:
        name = str(tomllib.loads(config).get("data", {}).get("name", ""))
    except (ValueError, AttributeError, RecursionError):  # ValueError: also a number of too many digits
        notes.append(f"{path.name} cannot be read as TOML.")
        return ""
    if not name and path.is_file():
        notes.append(f"{path.name} names no dataset.")
    return name


def _command(environment: str) -> str:
    """The command that trained the run, from environment.json."""
    try:
        command = json.loads(environment).get("command", "")
    except (ValueError, AttributeError):
        return ""
    if isinstance(command, list) and command:
        program, *arguments = map(str, command)
        short = "facetric" if Path(program).name in {"facetric", "__main__.py"} else Path(program).name
        return shlex.join([short, *arguments])
    return str(command)
