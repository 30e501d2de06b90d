"""`evaluate_run`: from a run folder to embeddings.npz and evaluation.json."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from facetric.clustering import Calibration, calibrate
from facetric.embedder import (
    WHOLE,
    Network,
    Vectors,
    cached_activations,
    cached_vectors,
    calibration_file,
    encode,
    load_network,
    network_fingerprint,
    read_calibration,
    save_calibration,
    usable_device,
)
from facetric.evaluation import EvaluationReport, evaluate
from facetric.images import ImageDataset
from facetric.metrics import Metric, checked_ks, count_incomparable
from facetric.progress import OnStep
from facetric.runs.baselines import starts
from facetric.runs.manifest import DataChanges
from facetric.runs.run import DivergedError, Run, open_run
from facetric.runs.splits import SPLITS, run_images

MIN_CLASSES = 4  # what `calibrate` asks for
PRODUCTS_KS, OTHER_KS = (1, 10, 100, 1000), (1, 2, 4, 8)
_log = logging.getLogger("facetric")


@dataclass(frozen=True, eq=False)
class RunEvaluation:
    """What was found, and where it was written."""

    report: EvaluationReport
    report_path: Path
    embeddings_path: Path
    changes: DataChanges  # of the dataset since training


def evaluate_run(
    run: str | os.PathLike[str],
    *,
    split: str = "test",
    checkpoint: str = "best",
    ks: Sequence[int] | None = None,
    n_restarts: int = 5,
    seed: int = 0,
    facility: bool = True,
    before: bool = True,
    memory_gib: float = 1.0,
    batch_size: int | None = None,
    device: str = "auto",
    on_progress: OnStep | None = None,
) -> RunEvaluation:
    """Embed one split of the run's data with its best (else its last) checkpoint, score it, and write both files.

    The split is the manifest's, as training saw it; images that were added, removed or changed since are counted and named in
    a warning, and added ones are left out. The test split writes embeddings.npz and evaluation.json, another one
    embeddings-SPLIT.npz and evaluation-SPLIT.json. Neighbors are by cosine when the model normalizes its embeddings, else
    Euclidean.

    A run with four validation classes or more is also clustered without the number of classes, as `calibrate` advises on these;
    best.calibration.json keeps the advice. `facility=False` leaves that and the clustering from medoids out.

    `before`: also score what there was before training (`runs/before.py`), in the report's `before`.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}; got {split!r}: choose one of these")
    opened = open_run(run)
    weights = opened.checkpoint(checkpoint)
    dataset, changes = run_images(opened, split)
    n_others = len(dataset) - 1
    usual = [k for k in (PRODUCTS_KS if opened.config.data.name == "products" else OTHER_KS) if k <= n_others]
    ks = checked_ks(ks or usual or (1,), n_others)  # fail now, not hours later
    if not facility and n_restarts == 0:
        raise ValueError(
            "there are no clusters to score with facility=False and n_restarts=0: ask for at least one of them (leave out "
            "--no-facility, or pass --restarts 5)"
        )
    if not memory_gib > 0:
        raise ValueError(f"memory_gib must be above 0; got {memory_gib}: 1 is plenty for a million images (--memory 1)")
    for line in changes.lines():
        _log.warning("%s", line)
    with opened.locked("evaluated"):
        embedder = load_network(weights).to(usable_device(device))
        source = {
            "views": "center crop",
            "n_views": 1,
            "crop": embedder.preprocessing.crop,
            "dataset": opened.config.data.name,
            "split": split,
            "checkpoint": weights.name,
            "model": network_fingerprint(embedder),
            "manifest": opened.manifest.fingerprint,
        }
        images = dataset.source
        if embedder.freeze_through == WHOLE:  # what comes before the head is the same for all runs on these images
            vectors = encode(embedder, cached_activations(embedder, images, n_views=0, center=True), progress=on_progress)
        else:
            vectors = cached_vectors(embedder, images, batch_size=batch_size, progress=on_progress)
        embeddings = Vectors(vectors, tuple(images.names), dataset.labels, model=str(source["model"]), source=source)
        report_path, embeddings_path = opened.evaluation_file(split), opened.embeddings_file(split)
        with opened.writing():
            embeddings.save(embeddings_path)
        on_step = on_progress or (lambda name, done, total: None)
        metric: Metric = "cosine" if embedder.normalize else "euclidean"
        if n_bad := count_incomparable(embeddings.vectors, metric):
            raise DivergedError(
                f"with {weights} the embeddings of {n_bad:,} of {len(embeddings.vectors):,} images are zero or not finite: train "
                "again with lower rates (--set optimizer.head_lr=… --set optimizer.backbone_lr=…)"
            )
        calibration = None
        if facility and split == "test":
            calibration = run_calibration(opened, embedder, weights, on_step=on_step)
        scored = partial(
            evaluate, labels=dataset.labels, ks=ks, n_restarts=n_restarts, seed=seed, facility=facility, memory_gib=memory_gib
        )
        report = scored(embeddings.vectors, metric=metric, calibration=calibration, progress=on_progress)
        report = report.with_source(**source, embeddings=embeddings.fingerprint)
        if before:
            report = replace(report, baselines=_before(opened, dataset, scored, usable_device(device), on_step))
        with opened.writing():
            if split == "test" and calibration is None:
                _calibrate_on_test(opened, weights, embeddings)
            report.save(report_path)
    return RunEvaluation(report, report_path, embeddings_path, changes)


def _calibrate_on_test(run: Run, weights: Path, embeddings: Vectors) -> None:
    """For runs without validation classes: kept for `load`, never used to score these classes."""
    found = None
    with suppress(ValueError):  # too few classes
        found = calibrate(embeddings.vectors, embeddings.labels)
    save_calibration(weights, found, f"{len(np.unique(embeddings.labels)):,} test classes of {run.path.name}")


def _before(
    run: Run, dataset: ImageDataset, scored: Callable[..., EvaluationReport], device: str, on_step: OnStep
) -> dict[str, EvaluationReport]:
    """The same scores for what there was before training."""
    found = {}
    for start in starts(run, dataset, device=device, on_step=on_step):

        def of_start(name: str, done: int, total: int, title: str = start.name) -> None:
            on_step(f"{title}: {name}", done, total)

        found[start.name] = scored(start.vectors, progress=of_start).with_source(**start.source)
    return found


def run_calibration(run: Run, embedder: Network, weights: Path, *, on_step: OnStep) -> Calibration | None:
    """The calibration beside the checkpoint if it is of its validation classes, else a new one, which is saved there.

    None for a run with fewer than four validation classes: training classes are no measure of how far apart new classes lie.
    None, with a warning, where validation images are gone or cannot be read.
    """
    classes = f"the validation classes of {run.path.name}"
    kept, kept_classes = read_calibration(calibration_file(weights), network_fingerprint(embedder))
    if kept is not None and kept_classes == classes:
        return kept
    if run.manifest.count("validation")[1] < MIN_CLASSES:
        return None
    try:
        dataset, _ = run_images(run, "validation")
        found = _calibrated(embedder, dataset, on_step)
    except (OSError, ValueError) as error:
        _log.warning("the number of clusters is not looked for, validation images cannot be used: %s", error)
        return None
    if found is not None:
        with run.writing():
            save_calibration(weights, found, classes)
    return found


def _calibrated(embedder: Network, dataset: ImageDataset, on_step: OnStep) -> Calibration | None:
    if np.count_nonzero(np.bincount(dataset.labels) > 1) < MIN_CLASSES:
        return None
    vectors = encode(embedder, dataset.images, step="Embedding validation classes", progress=on_step)
    on_step("Calibration", 0, 1)
    calibration = calibrate(vectors, dataset.labels)
    on_step("Calibration", 1, 1)
    return calibration
