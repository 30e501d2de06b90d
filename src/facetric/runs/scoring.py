"""`evaluate_run`: from a run folder to embeddings.npz and evaluation.json."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from facetric.clustering import Calibration, calibrate
from facetric.embedder import Network, load_network
from facetric.embedder.checkpoint import network_fingerprint
from facetric.embedder.embedding import embed, embed_cached, remove_blocks
from facetric.embedder.embeddings import Embeddings
from facetric.embedder.encode import usable_device
from facetric.evaluation import EvaluationReport, evaluate
from facetric.images import ImageDataset
from facetric.metrics import Metric, checked_ks, count_incomparable
from facetric.progress import OnStep
from facetric.runs.baselines import starts
from facetric.runs.manifest import DataChanges
from facetric.runs.run import DivergedError, Run, RunFolderError, open_run
from facetric.runs.splits import SPLITS, padded, run_images

MIN_CLASSES = 4  # what `calibrate` asks for
PRODUCTS_KS, OTHER_KS = (1, 10, 100, 1000), (1, 2, 4, 8)
_log = logging.getLogger("facetric")


@dataclass(frozen=True, eq=False)
class RunEvaluation:
    """What was found, and where it was written."""

    report: EvaluationReport | None  # None for every process of torchrun but the first
    report_path: Path
    embeddings_path: Path
    changes: DataChanges  # of the dataset since training


def evaluate_run(
    run: str | os.PathLike[str],
    *,
    split: str = "test",
    checkpoint: str = "best",
    views: int = 1,
    ks: Sequence[int] | None = None,
    n_restarts: int = 5,
    seed: int = 0,
    facility: bool = True,
    before: bool = True,
    memory_gib: float = 1.0,
    batch_size: int | None = None,
    device: str = "auto",
    use_cache: bool = False,
    on_progress: OnStep | None = None,
) -> RunEvaluation:
    """Embed one split of the run's data with its best (else its last) checkpoint, score it, and write both files.

    The split is the manifest's, as training saw it; images that were added, removed or changed since are counted and named in
    a warning, and added ones are left out. The test split writes embeddings.npz and evaluation.json, another one
    embeddings-SPLIT.npz and evaluation-SPLIT.json. Neighbors are by cosine when the model normalizes its embeddings, else
    Euclidean. Under torchrun all processes embed. `use_cache`: activations of the frozen part are cached, for evaluating
    many models that share it.

    A run with four validation classes or more is also clustered without the number of classes, as `calibrate` advises on these;
    calibration.json keeps the advice. `facility=False` leaves that and the clustering from medoids out.

    `before`: also score what there was before training (`runs/before.py`), in the report's `before`.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}; got {split!r}: choose one of these")
    opened = open_run(run)
    weights = opened.checkpoint(checkpoint)
    dataset, changes = run_images(opened, split)
    dataset = padded(dataset, opened.config.data.pad)
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
    rank = _join_processes()
    if rank == 0:
        for line in changes.lines():
            _log.warning("%s", line)
    with opened.locked("evaluated") if rank == 0 else nullcontext():
        model = network_fingerprint(weights)
        embedder = load_network(weights).to(usable_device(device))
        if network_fingerprint(weights) != model:
            raise RunFolderError(f"{weights} was replaced while it was read, the run is still training: evaluate it again")
        blocks = opened.blocks_folder(split)
        result = RunEvaluation(None, opened.evaluation_file(split), opened.embeddings_file(split), changes)
        if use_cache and views == 1 and embedder.freeze_through is not None:
            embeddings = embed_cached(embedder, dataset, opened.config.data.size)
        else:
            embeddings = embed(
                embedder,
                dataset,
                views=views,
                size=opened.config.data.size,
                batch_size=batch_size,
                folder=blocks,
                on_progress=None if on_progress is None else lambda done, total: on_progress("Embedding", done, total),
            )
        if rank > 0:
            _barrier()
            return result
        source = {
            **embeddings.source,
            "dataset": opened.config.data.name,
            "split": split,
            "checkpoint": weights.name,
            "model": model,
            "manifest": opened.manifest.fingerprint,
        }
        embeddings = Embeddings(embeddings.vectors, embeddings.labels, embeddings.images, source)
        with opened.writing():
            embeddings.save(result.embeddings_path)
        _barrier()  # the others have read their blocks too
        on_step = on_progress or (lambda name, done, total: None)
        metric: Metric = "cosine" if embedder.normalize else "euclidean"
        if n_bad := count_incomparable(embeddings.vectors, metric):
            raise DivergedError(
                f"with {weights} the embeddings of {n_bad:,} of {len(embeddings.vectors):,} images are zero or not finite: train "
                "again with lower rates (--set optimizer.head_lr=… --set optimizer.backbone_lr=…)"
            )
        calibration = None
        if facility and split == "test":
            calibration = run_calibration(opened, embedder, source, on_step=on_step)
        scored = partial(
            evaluate, labels=embeddings.labels, ks=ks, n_restarts=n_restarts, seed=seed, facility=facility, memory_gib=memory_gib
        )
        report = scored(embeddings.vectors, metric=metric, calibration=calibration, progress=on_progress)
        report = report.with_source(**source, embeddings=embeddings.fingerprint)
        if before:
            report = replace(report, baselines=_before(opened, dataset, scored, usable_device(device), on_step))
        with opened.writing():
            report.save(result.report_path)
        remove_blocks(blocks)  # only now: whatever stopped it, the same command resumes
    return replace(result, report=report)


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


def _join_processes() -> int:
    """The rank of this process under torchrun, with the process group joined; 0 for a single process."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return 0
    import torch.distributed as processes

    if not processes.is_initialized():
        processes.init_process_group("gloo", timeout=timedelta(hours=24))
    return processes.get_rank()


def _barrier() -> None:
    """Wait for the other processes, if there are any."""
    import torch.distributed as processes

    if processes.is_initialized():
        processes.barrier()


def run_calibration(run: Run, embedder: Network, source: dict[str, Any], *, on_step: OnStep) -> Calibration | None:
    """The calibration in the run folder if it is of this embedder, else a new one, which is saved there.

    `source` is that of the embeddings to cluster. None for a run with fewer than four validation classes: training classes are
    no measure of how far apart new classes lie. None, with a warning, where validation images are gone or cannot be read.
    """
    with suppress(ValueError):  # missing, damaged or of another checkpoint
        kept, kept_source = run.calibration()
        if kept_source == source:
            return kept
    if run.manifest.count("validation")[1] < MIN_CLASSES:
        return None
    try:
        dataset, _ = run_images(run, "validation")
        return _calibrated(run, embedder, dataset, source, on_step)
    except (OSError, ValueError) as error:
        _log.warning("the number of clusters is not looked for, validation images cannot be used: %s", error)
        return None


def _calibrated(
    run: Run, embedder: Network, dataset: ImageDataset, source: dict[str, Any], on_step: OnStep
) -> Calibration | None:
    if np.count_nonzero(np.bincount(dataset.labels) > 1) < MIN_CLASSES:
        return None
    dataset = padded(dataset, run.config.data.pad)
    found = embed(
        embedder,
        dataset,
        views=source["n_views"],
        size=run.config.data.size,
        rank=0,
        world_size=1,
        on_progress=lambda done, total: on_step("Embedding validation classes", done, total),
    )
    on_step("Calibration", 0, 1)
    calibration = calibrate(found.vectors, found.labels)
    run.save_calibration(calibration, source)
    on_step("Calibration", 1, 1)
    return calibration
