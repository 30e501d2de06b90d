"""The studies of `facetric reproduce`: a dataset under a setting, with the paper's losses or any others.

head       photos: a linear head of 64 dimensions is trained on the features of a frozen backbone (minutes)
finetune   photos: the last part of the backbone is trained too, from cached activations (hours on two cores)
paper      photos: the paper's own setting, GoogLeNet end to end, 10k or 20k steps; for a GPU and a model hub
scratch    glyphs: a small network from random weights
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from facetric.files import read_checksummed
from facetric.images import ImageDataset, load_dataset
from facetric.losses import ClassBalancedBatches
from facetric.runs import PAPER_RATIOS, BatchTable, DataTable, dotted_keys, new_images, parse_override, recipe
from facetric.text import did_you_mean
from facetric.training.feed import classes_tested
from facetric.training.study.spaces import CLASS_RATIO, CLASS_RATIOS, METHODS, PAPER_METHODS, PER_IMAGE, Method, Range, Space
from facetric.training.study.study import Setting, Study
from facetric.training.study.trials import middle
from facetric.training.validation import check_validation

DATASETS = ("glyphs", "cub", "cars", "products", "folder", "csv")

# configs/paper/*.toml are these, with the facility-location loss.
PAPER_STEPS = {"cub": 10_000, "cars": 20_000, "products": 20_000}
BACKBONE_RATES = (1e-4, 3e-4)  # 3e-5 was not enough for any loss but one
HEAD_RATES = (1.0, 1 / 3)  # of the rate that was found for a head alone: while the features move too, less is often better

# What a study decides itself, and the option that changes it.
_DECIDED = {
    "data.name": "the dataset is the first argument of the command",
    "data.root": "use --root",
    "data.validation_seed": "it numbers the folds of the search",
    "loss.name": "choose losses with --method",
    "run.choose_minutes": "all losses get the same recipe, that of --setting",
    "run.folder": "use --output",
    "run.name": "use --output",
    "run.seed": "the final runs have seeds 0, 1, …; --seeds says how many",
    "run.validate_every": "trials are validated after their last step, final runs are not",
}

Tables = dict[str, dict[str, Any]]
Labels = NDArray[np.int64]  # (n,) the class of each training image


def reproduction(
    dataset: str,
    folder: str | Path | None = None,
    *,
    root: str | None = None,
    setting: str = "auto",
    methods: Sequence[str] = tuple(PAPER_METHODS),
    overrides: Iterable[str] = (),
    n_trials: int | None = None,
    n_seeds: int | None = None,
    steps: int | None = None,
    trial_steps: int | None = None,
    options_from: str | Path | None = None,
) -> Study:
    """The study of a dataset, without the methods whose batches the dataset cannot fill.

    `folder` is runs/reproduce-DATASET-SETTING by default. The setting "auto" is scratch for glyphs, the paper's own for its
    datasets on a GPU, else finetune. A method may have options, which are not searched: "triplet_semihard(margin=0.3)",
    "my_losses.MyLoss(scale=8)". `overrides` such as "batches.size=64" hold for every run; `trial_steps` shortens those of
    the search. `options_from` is the folder of a finished head study: fine-tuning keeps its hyper-parameters and searches the two
    learning rates alone, four pairs, which is affordable on a CPU.
    """
    if setting == "auto":
        on_gpu = "paper" if torch.cuda.is_available() and dataset in PAPER_STEPS else "finetune"
        setting = "scratch" if dataset == "glyphs" else on_gpu
    settings = ("scratch",) if dataset == "glyphs" else ("head", "finetune", *(("paper",) if dataset in PAPER_STEPS else ()))
    _refuse_unknown("dataset", dataset, DATASETS)
    _refuse_unknown(f"--setting for {dataset}", setting, settings)
    suited = dict(map(_method, methods))
    if len(suited) < len(set(methods)):
        raise ValueError(f"every --method needs a file name of its own; got {', '.join(methods)}: leave one out")
    if options_from is not None and setting != "finetune":
        raise ValueError(f"--options-from is for --setting finetune; got {setting!r}: leave it out")
    overrides = list(overrides)
    given = dict(parse_override(override) for override in overrides)
    if steps is not None and "run.steps" in given:
        raise ValueError(f"--steps {steps} and --set run.steps={given['run.steps']} set the same: give one")
    if given.get("run.steps") == 0:
        raise ValueError("--set run.steps=0: a study trains: use --steps with 10 or more")
    for key in given.keys() & _DECIDED.keys():
        raise ValueError(f"--set {key} is not for a study: {_DECIDED[key]}")
    chosen = replace(_setting(dataset, setting, root, steps, overrides), overrides=given)
    if given.keys() & {"batches.class_ratio", "batches.images_per_class"}:
        chosen = replace(chosen, searched={key: where for key, where in chosen.searched.items() if key != CLASS_RATIO})
    if "batches.images_per_class" in given:
        chosen.tables["batches"].pop("class_ratio", None)  # the other way to say it
    if setting == "scratch":  # a head that is not made from features has the scale of random weights, which is not searched
        for name, method in suited.items():
            searched = {key: where for key, where in method.searched.items() if key != "model.head_scale"}
            suited[name] = replace(method, searched=searched)
    if options_from is not None:
        suited, n_grid = _with_choices(suited, Path(options_from)), len(BACKBONE_RATES) * len(HEAD_RATES)
        chosen = replace(chosen, searched={"optimizer.backbone_lr": BACKBONE_RATES}, n_trials=n_grid)
    if trial_steps is not None and "run.steps" in chosen.searched:
        raise ValueError(f"--trial-steps {trial_steps}: this study searches the number of steps: give it with --steps too")
    chosen = replace(chosen, n_trials=n_trials or chosen.n_trials, n_seeds=n_seeds or chosen.n_seeds, trial_steps=trial_steps)
    study = Study(Path(folder or f"runs/reproduce-{dataset}-{setting}").expanduser().absolute(), chosen, suited)
    _refuse_set_keys(study)
    return _feasible(study)


def paper_tables(dataset: str, root: str | None) -> Tables:
    """The paper's own setting, without the loss."""
    steps = PAPER_STEPS[dataset]
    return {
        "run": {"steps": steps, "precision": "bf16", "validate_every": 1000, "checkpoint_every": 500, "log_every": 20},
        "data": {"name": dataset, "root": root or f"datasets/{dataset}", "size": 256, "threads": 8},
        "model": {"backbone": "googlenet", "weights": "hub", "head_init": "pca"},
        "batches": {"size": 128, "class_ratio": PAPER_RATIOS.get(dataset, 0.25)},
        "optimizer": {"name": "rmsprop", "backbone_lr": 1e-5, "head_lr": 1e-4, "weight_decay": 1e-5, "warmup_steps": 500},
    }


def _feasible(study: Study) -> Study:
    """The study without the batches that the dataset cannot fill, and the methods that need them.

    A ValueError if none remains.
    """
    left_out, methods = {}, {}
    configs = {name: study.config(name, middle(study.space(name))) for name in study.methods}
    dataset, labels = _training_labels(next(iter(configs.values())).data, n_folds=study.setting.n_folds)
    for name, config in configs.items():
        searched = study.space(name).get(CLASS_RATIO)
        ratios = searched if isinstance(searched, tuple) else (config.batches.class_ratio,)
        problems = {ratio: _batch_problem(config.batches.model_copy(update={"class_ratio": ratio}), labels) for ratio in ratios}
        possible = tuple(ratio for ratio, problem in problems.items() if problem is None)
        if not possible:
            left_out[name] = str(problems[ratios[0]])
        else:
            config.loss.build(dim=config.model.dim, n_classes=len(np.unique(labels[-1])), seed=0)  # or refused, before a folder
            filled: Space = {} if len(possible) == len(ratios) else {CLASS_RATIO: possible}  # type: ignore[dict-item]
            methods[name] = replace(study.methods[name], searched={**study.methods[name].searched, **filled})
    if not methods:
        raise ValueError("no loss is left to study: " + "; ".join(f"{name}: {why}" for name, why in left_out.items()))
    n_folds = 1 if "validation" in dataset.splits else study.setting.n_folds  # all folds would be the same
    setting = replace(study.setting, n_folds=n_folds, test_classes=classes_tested(dataset))
    return replace(study, setting=setting, methods=methods, left_out={**study.left_out, **left_out})


def _training_labels(data: DataTable, *, n_folds: int) -> tuple[ImageDataset, list[Labels]]:
    """The dataset, and the labels that each fold of the search trains on, then those of the final runs.

    A ValueError if the dataset has no test classes, or a fold too little to validate on.
    """
    dataset = load_dataset(data.name, data.root, **data.options)
    n_test = len(np.unique(dataset.labels[dataset.splits == "test"]))
    if n_test < 2:
        raise ValueError(
            f"a study needs 2 test classes or more; {data.root or data.name} has {n_test}: add classes, raise the test fraction "
            "with --set data.options.test_fraction=0.5, or check the split column of the CSV file"
        )
    parts = [new_images(data.model_copy(update={"validation_seed": i}), validate=True, dataset=dataset) for i in range(n_folds)]
    for part in parts:
        check_validation(part.labels[part.splits == "validation"], can_be_off=False)
    return dataset, [part.labels[part.splits == "train"] for part in (*parts, dataset)]


def _batch_problem(batches: BatchTable, label_sets: list[Labels]) -> str | None:
    """Why some of these training sets cannot fill a batch; None if all can."""
    shape = {"batch_size": batches.size, "class_ratio": batches.class_ratio, "images_per_class": batches.images_per_class}
    try:
        for labels in label_sets:
            ClassBalancedBatches(labels, **shape)  # type: ignore[arg-type]
    except ValueError as error:
        return str(error)
    return None


def _refuse_unknown(what: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        hint = did_you_mean(name, known) or ": choose one of these"
        raise ValueError(f"{what} must be one of {', '.join(known)}; got {name!r}{hint}")


def _method(text: str) -> tuple[str, Method]:
    """What a method is called in files, and its loss with the options that it was given, which are not searched.

    >>> name, method = _method("triplet_semihard(margin=0.3)")
    >>> name, method.loss, method.searched
    ('triplet_semihard-margin-0.3', {'name': 'triplet_semihard', 'margin': 0.3}, {})
    """
    name, _, inner = text.strip().removesuffix(")").partition("(")
    if "." not in name:
        _refuse_unknown("--method", name, METHODS)
    method = METHODS.get(name, Method(name, {"name": name}, {}))
    try:
        options = tomllib.loads(f"options = {{{inner}}}")["options"]
    except (ValueError, RecursionError):
        example = f"--method '{name}(margin=0.5, mode=\"hard\", squared=true)'"
        raise ValueError(f"--method takes a loss and its options by name, as in {example}; got {text!r}") from None
    loss = method.loss
    if "." in loss["name"]:
        options = {"options": {**loss.get("options", {}), **options}}
    keys = list(dotted_keys({"loss": options}))
    searched = {key: where for key, where in method.searched.items() if key.removesuffix(PER_IMAGE) not in keys}
    title = f"{method.title} ({inner})" if inner else method.title
    return re.sub(r"[^\w.+-]+", "-", text).strip("-"), replace(method, title=title, loss=loss | options, searched=searched)


def _setting(dataset: str, setting: str, root: str | None, steps: int | None, overrides: list[str]) -> Setting:
    tables = paper_tables(dataset, root) if setting == "paper" else _chosen_tables(dataset, root, overrides)
    if setting == "scratch":
        tables["run"]["steps"] = 250  # fewer than in configs/glyphs.toml: enough to rank the losses
    elif setting == "head":
        tables["model"] |= {"freeze_through": "all", "cached_views": 1}
        tables["data"]["augment"] = "none"
    if steps is not None:
        tables["run"]["steps"] = steps
    usual, head, backbone = tables["batches"].get("class_ratio"), "optimizer.head_lr", "optimizer.backbone_lr"
    # How many classes a batch has is searched with the rate, because either alone does little.
    ratios: Space = {} if usual is None else {CLASS_RATIO: tuple(dict.fromkeys((usual, *CLASS_RATIOS)))}
    lengths: Space = {"run.steps": (150, 300, 600)} if steps is None else {}
    return {
        "paper": Setting(tables, {head: Range(1e-5, 1e-3), backbone: Range(1e-6, 1e-4)}, n_trials=8),
        "scratch": Setting(tables, {head: Range(3e-4, 1e-2), **ratios}, tied={backbone: head}, n_trials=6),
        "head": Setting(tables, {head: Range(1e-5, 1e-3), **ratios, **lengths}, n_folds=3),
        "finetune": Setting(tables, {head: Range(1e-5, 3e-4), backbone: BACKBONE_RATES, **ratios}, n_trials=6),
    }[setting]


def _chosen_tables(dataset: str, root: str | None, overrides: list[str]) -> Tables:
    """What `facetric train --data` would train, without the loss, its name and its place."""
    kept = [override for override in overrides if not override.startswith("loss.")]
    chosen = recipe(dataset, root, overrides=kept, choose=False)
    config = chosen.config.model_dump(exclude_none=True)
    tables = {name: config[name] for name in ("run", "data", "model", "batches", "optimizer")}
    for key in ("name", "folder"):
        del tables["run"][key]
    if tables["batches"]["size"] > 3:
        tables["batches"]["size"] -= tables["batches"]["size"] % 2  # N-pairs needs pairs, and all losses get the same batch
    return tables


def _with_choices(methods: dict[str, Method], folder: Path) -> dict[str, Method]:
    """The methods with the hyper-parameters that a study of heads has chosen for them, but for rates and steps."""
    path, found = folder / "study.json", {}
    if not path.is_file():
        raise ValueError(f"--options-from {folder}: study.json is missing, the study is not finished: finish it first")
    try:
        kept = {name: entry["chosen"] for name, entry in read_checksummed(path.read_bytes()).items() if "chosen" in entry}
    except (ValueError, TypeError) as error:
        raise ValueError(f"--options-from {folder}: study.json is damaged ({error}): restore it") from None
    if missing := [name for name in methods if name not in kept]:
        raise ValueError(
            f"--options-from {folder}: the study has no {', '.join(missing)}; it has {', '.join(kept)}: choose losses of these "
            "with --method"
        )
    for name, method in methods.items():
        fixed = {key: value for key, value in kept[name].items() if key not in {"run.steps", "optimizer.head_lr"}}
        rate = kept[name].get("optimizer.head_lr")
        searched: Space = {} if rate is None else {"optimizer.head_lr": tuple(rate * factor for factor in HEAD_RATES)}
        found[name] = replace(method, searched=searched, fixed=fixed)
    return found


def _refuse_set_keys(study: Study) -> None:
    """A key that is searched, or that a method decides, cannot be set for every run."""
    setting = study.setting
    for key in setting.overrides:
        for name, method in study.methods.items():
            own = dotted_keys({"loss": method.loss})
            if _meets(key, [*study.space(name), *setting.tied]):
                way_out = "use --steps" if key == "run.steps" else "leave it out"
                raise ValueError(f"--set {key}: the study searches this setting for {name}: {way_out}")
            if _meets(key, method.fixed):
                raise ValueError(f"--set {key}: --options-from gives this setting for {name}: leave one of them out")
            if _meets(key, own):
                raise ValueError(
                    f"--set {key}: this setting belongs to {name}: leave it out, or choose other losses with --method"
                )


def _meets(key: str, others: Iterable[str]) -> bool:
    """Whether one of the others is this key, or lies in the same inline table."""
    names = [other.removesuffix(PER_IMAGE) for other in others]
    return any(key == other or other.startswith(key + ".") or key.startswith(other + ".") for other in names)
