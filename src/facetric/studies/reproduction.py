"""The studies that `facetric reproduce` knows: a dataset under a setting, with the paper's losses or any others.

head       photos: the backbone stays as it is, a linear head of 64 dimensions is trained on its features (minutes)
finetune   photos: the last part of the backbone is trained too, from cached activations (hours on two cores)
paper      photos: the paper's own setting, GoogLeNet end to end, 10k or 20k steps; for a GPU and a model hub
scratch    glyphs: a small network from random weights
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from facetric.config.defaults import PAPER_RATIOS, choose_run
from facetric.studies.protocol import Setting, Study
from facetric.studies.spaces import METHODS, PAPER_METHODS, Method, Range, Space

DATASETS = ("glyphs", "cub", "cars", "products", "folder", "csv")

# configs/paper/*.toml are these, with the facility-location loss.
PAPER_STEPS = {"cub": 10_000, "cars": 20_000, "products": 20_000}
BACKBONE_RATES = (3e-5, 1e-4)


def reproduction(
    dataset: str,
    folder: str | Path,
    *,
    root: str | None = None,
    setting: str = "auto",
    methods: Sequence[str] = tuple(PAPER_METHODS),
    n_trials: int | None = None,
    n_seeds: int | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    options_from: str | Path | None = None,
    gpu: bool = False,
) -> Study:
    """The study of a dataset. `setting="auto"`: scratch for glyphs, paper with a GPU, else finetune.

    `options_from`, the folder of a finished study of heads: its choices stand, and fine-tuning searches only the learning rate
    of the backbone, on a grid. That makes the search affordable on a CPU.
    """
    if dataset not in DATASETS:
        raise ValueError(f"the dataset must be one of {', '.join(DATASETS)}; got {dataset!r}: choose one of these")
    if setting == "auto":
        setting = auto_setting(dataset, gpu=gpu)
    usual = ("scratch",) if dataset == "glyphs" else ("head", "finetune", *(("paper",) if dataset in PAPER_STEPS else ()))
    if setting not in usual:
        raise ValueError(f"the setting for {dataset} must be one of {', '.join(usual)}; got {setting!r}: choose one of these")
    known = METHODS
    for name in methods:
        if name not in known:
            raise ValueError(f"a method must be one of {', '.join(known)}; got {name!r}: choose from these")
    if options_from is not None and setting != "finetune":
        raise ValueError(f"options_from is for the setting finetune; got {setting!r}: leave it out")
    chosen = _setting(dataset, setting, root, steps)
    if batch_size is not None:
        chosen.tables["batches"]["size"] = batch_size
    if options_from is not None:
        chosen = replace(chosen, searched={"optimizer.backbone_lr": BACKBONE_RATES}, n_trials=len(BACKBONE_RATES))
    chosen = replace(chosen, n_trials=n_trials or chosen.n_trials, n_seeds=n_seeds or chosen.n_seeds)
    found = {} if options_from is None else _choices(Path(options_from), methods)
    fitting = {name: _fitting(known[name], setting) for name in methods}
    fitting |= {name: replace(fitting[name], searched={}, fixed=options) for name, options in found.items()}
    return Study(Path(folder).expanduser().absolute(), chosen, fitting)


def auto_setting(dataset: str, *, gpu: bool) -> str:
    """The setting for a dataset on a machine."""
    if dataset == "glyphs":
        return "scratch"
    return "paper" if gpu and dataset in PAPER_STEPS else "finetune"


def paper_tables(dataset: str, root: str | None) -> dict[str, dict[str, Any]]:
    """The paper's own setting, but for the loss."""
    steps = PAPER_STEPS[dataset]
    return {
        "run": {"steps": steps, "precision": "bf16", "validate_every": 1000, "checkpoint_every": 500, "log_every": 20},
        "data": {"name": dataset, "root": root or f"datasets/{dataset}", "size": 256, "threads": 8},
        "model": {"backbone": "googlenet", "weights": "hub", "head_init": "pca"},
        "batches": {"size": 128, "class_ratio": PAPER_RATIOS.get(dataset, 0.25)},
        "optimizer": {"name": "rmsprop", "backbone_lr": 1e-5, "head_lr": 1e-4, "weight_decay": 1e-5, "warmup_steps": 500},
    }


def _setting(dataset: str, setting: str, root: str | None, steps: int | None) -> Setting:
    if setting == "paper":
        return Setting(
            _with_steps(paper_tables(dataset, root), steps),
            {"optimizer.head_lr": Range(1e-5, 1e-3), "optimizer.backbone_lr": Range(1e-6, 1e-4)},
            n_trials=8,
        )
    config = choose_run(dataset, root).config.model_dump(exclude_none=True)
    tables = {name: config[name] for name in ("run", "data", "model", "batches", "optimizer")}
    if setting == "scratch":
        tables["run"]["steps"] = 250  # fewer than configs/glyphs.toml: the order of the losses shows by then
        return Setting(
            _with_steps(tables, steps),
            {"optimizer.head_lr": Range(3e-4, 1e-2)},
            tied={"optimizer.backbone_lr": "optimizer.head_lr"},
            n_trials=6,
        )
    if setting == "head":
        tables["model"] |= {"freeze_through": "all", "cached_views": 1}
        tables["data"]["augment"] = "none"
        searched: Space = {"optimizer.head_lr": Range(1e-5, 1e-3)}
        if steps is None:
            searched["run.steps"] = (150, 300, 600)
        return Setting(_with_steps(tables, steps), searched, n_folds=3)
    return Setting(
        _with_steps(tables, steps),
        {"optimizer.head_lr": Range(3e-5, 1e-3), "optimizer.backbone_lr": Range(3e-6, 3e-4)},
        n_trials=6,
    )


def _choices(folder: Path, methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What a study has chosen for these methods, but for the number of steps."""
    path = folder / "study.json"
    if not path.is_file():
        raise ValueError(f"{folder} is no finished study, study.json is missing: run the study of heads first")
    kept = json.loads(path.read_text())
    missing = [name for name in methods if name not in kept]
    if missing:
        raise ValueError(f"the study {folder} has no {', '.join(missing)}; it has {', '.join(kept)}: choose from these")
    return {name: {key: value for key, value in kept[name]["chosen"].items() if key != "run.steps"} for name in methods}


def _with_steps(tables: dict[str, dict[str, Any]], steps: int | None) -> dict[str, dict[str, Any]]:
    return tables if steps is None else {**tables, "run": {**tables["run"], "steps": steps}}


def _fitting(method: Method, setting: str) -> Method:
    """Where the head is not made from features, its scale is that of random weights, and is not searched."""
    if setting != "scratch":
        return method
    return replace(method, searched={key: where for key, where in method.searched.items() if key != "model.head_scale"})
