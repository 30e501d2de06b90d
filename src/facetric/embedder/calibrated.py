"""Where the calibration of a model is: with the install (`benchmarks/packaged_calibration.py` makes it), or in its run folder."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from importlib.resources import files
from typing import Any

import numpy as np

from facetric.clustering import Calibration, calibrate
from facetric.runs import Run

_log = logging.getLogger("facetric")


def packaged_calibration(fingerprint: str) -> tuple[Calibration | None, str]:
    """The calibration of the network with this fingerprint, and the classes it was chosen on; None for any other network."""
    record = json.loads((files("facetric.embedder") / "packaged_calibration.json").read_text(encoding="utf-8"))
    if record["model"] != fingerprint:
        return None, ""
    return Calibration.from_dict(record["calibration"]), record["classes"]


def run_calibration(run: Run, fingerprint: str) -> tuple[Calibration | None, str]:
    """The calibration of the run's model with this fingerprint, and the classes it was chosen on; None without such classes."""
    try:
        stored, source = run.calibration()
        if _made_by(fingerprint, source):
            return stored, f"the validation classes of {run.path.name}"
    except ValueError as error:  # not evaluated, too few validation classes, stale or damaged
        if run.calibration_file.is_file():
            _log.warning("%s", error)
    for split in ("test", "validation"):
        try:
            found = run.embeddings(split)
        except ValueError as error:
            if run.embeddings_file(split).is_file():
                _log.warning("%s", error)
            continue
        with suppress(ValueError):  # too few classes
            if _made_by(fingerprint, found.source):
                what = f"{len(np.unique(found.labels)):,} {split} classes of {run.path.name}"
                return calibrate(found.vectors, found.labels), what
    return None, ""


def is_evaluated(run: Run, fingerprint: str) -> bool:
    """Whether there are evaluated classes of the model with this fingerprint, however few."""
    try:
        return _made_by(fingerprint, run.embeddings("test").source)
    except ValueError:
        return False


def _made_by(fingerprint: str, source: Mapping[str, Any]) -> bool:
    """Whether vectors with this record are those of the model with this fingerprint, one crop each."""
    return source.get("model") == fingerprint and source.get("n_views") == 1 and source.get("precision", "32") == "32"
