"""Runs of seconds: a small part of the glyphs, a few steps. Shared by the tests of this folder."""

import json

from facetric.runs import Run
from facetric.runs.config_file import parse_config

TINY = {
    "run": {"name": "tiny", "steps": 6, "log_every": 1, "validate_every": 3, "checkpoint_every": 2, "threads": 1},
    "data": {"name": "glyphs", "options": {"min_images": 17}, "validation_fraction": 0.2, "pad": 2, "flip": False},
    "model": {"backbone": "glyphnet", "dim": 16, "weights": "none", "head_init": "orthogonal"},
    "loss": {"margin_weight": 8.0, "inference": "stochastic", "margin_decay_every": 2},
    "batches": {"size": 12},
    "optimizer": {
        "name": "adamw",
        "backbone_lr": 1e-3,
        "head_lr": 1e-3,
        "warmup_steps": 2,
        "schedule": "cosine",
        "clip_norm": 9.0,
    },
}


def tiny_tables(folder, **changes):
    """The tables of TINY in this folder; changes as run={"steps": 3}."""
    tables = {name: dict(table) for name, table in TINY.items()}
    tables["run"]["folder"] = str(folder)
    for name, table in changes.items():
        tables[name] = {"name": table["name"], **table} if name == "loss" and "name" in table else {**tables[name], **table}
    return tables


def tiny_config(folder, **changes):
    return parse_config(tiny_tables(folder, **changes))


def rows_of(folder, *, timing=False):
    """The rows of metrics.jsonl, without what depends on the clock."""
    rows = [json.loads(line) for line in Run(folder).metrics_file.read_text().splitlines()]
    left_out = set() if timing else {"timing"}
    return [{key: value for key, value in row.items() if key not in left_out} for row in rows]
