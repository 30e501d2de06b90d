"""The calibration of the packaged network, which comes with the install; `benchmarks/packaged_calibration.py` makes it."""

from __future__ import annotations

import json
from importlib.resources import files

from facetric.clustering import Calibration


def packaged_calibration(fingerprint: str) -> tuple[Calibration | None, str]:
    """The calibration of the network with this fingerprint, and the classes it was chosen on; None for any other network."""
    record = json.loads((files("facetric.inference") / "packaged_calibration.json").read_text(encoding="utf-8"))
    if record["model"] != fingerprint:
        return None, ""
    return Calibration.from_dict(record["calibration"]), record["classes"]
