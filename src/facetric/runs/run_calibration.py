"""How to cluster images like a run's when the number of classes is unknown: calibrated on its validation classes."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

import numpy as np

from facetric.clustering import Calibration, calibrate
from facetric.embedder import Network
from facetric.embedder.embedding import embed
from facetric.images import ImageDataset
from facetric.progress import OnStep
from facetric.runs.run import Run
from facetric.runs.splits import padded, run_images

_log = logging.getLogger("facetric")
MIN_CLASSES = 4  # what `calibrate` asks for


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
