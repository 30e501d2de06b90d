"""The paper's ablations of the facility-location loss, and some beyond it: one change at a time, scored on validation classes.

    python benchmarks/ablations.py --root datasets/CUB_200_2011      # all of them, a linear head on frozen features
    python benchmarks/ablations.py --dataset glyphs                  # subsets of the batch, a small network from scratch

Several folds of validation classes, several seeds for each; mean ± standard deviation over seeds. The test classes are not
touched. γ is searched again for every change (two values), because it has no common scale across margins, distances and batch
sizes; the best is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed, parallel_config

from facetric.machine import available_cores
from facetric.training.study import Study, reproduction
from facetric.training.study.trials import say, validation_scores

Changes = dict[str, dict[str, Any]]  # what is changed → the keys of the configuration


def subsets(number: int, size: int) -> dict[str, Any]:
    """The loss averaged over random subsets of the batch: the paper's future work."""
    return {"loss.n_subsets": number, "loss.subset_size": size}


CUB: Changes = {
    "the paper: greedy + PAM, NMI, C/m = 0.25, γ decays by 0.94": {},
    "random initialization + PAM": {"loss.inference": "random"},
    "greedy, no PAM": {"loss.refine": "none"},
    "random initialization, no PAM": {"loss.inference": "random", "loss.refine": "none"},
    "not normalized": {"loss.normalize": False},
    "C/m = 0.5": {"batches.class_ratio": 0.5},
    "C/m = 0.6 (0.75 asks for 96 classes, and 80 train)": {"batches.class_ratio": 0.6},
    "γ constant": {"loss.margin_decay": 1.0},
    "γ decays by 0.8": {"loss.margin_decay": 0.8},
    "local search instead of PAM": {"loss.refine": "local_search"},
    "stochastic greedy": {"loss.inference": "stochastic"},
    "margin AMI": {"loss.margin": "ami"},
    "margin ARI": {"loss.margin": "ari"},
    "margin F1": {"loss.margin": "f1"},
    "4 subsets of 64": subsets(4, 64),
    "16 subsets of 64": subsets(16, 64),
    "m = 256": {"batches.size": 256, "batches.class_ratio": 0.125},
    "m = 512": {"batches.size": 512, "batches.class_ratio": 0.0625},
    "m = 256, C/m = 0.25": {"batches.size": 256},
    "squared distances": {"loss.squared": True},
    "constant learning rate": {"optimizer.schedule": "constant"},
    "AdamW": {"optimizer.name": "adamw"},
}
GLYPHS: Changes = {
    "the whole batch of 128": {},
    "4 subsets of 64": subsets(4, 64),
    "16 subsets of 64": subsets(16, 64),
    "16 subsets of 32": subsets(16, 32),
}
WEIGHTS = (64.0, 128.0)  # γ for 128 images; it grows with what is clustered, because F is a sum over it


def main() -> None:
    """Score every change and print a table in Markdown."""
    parser = argparse.ArgumentParser(description="One change of the loss at a time.")
    parser.add_argument("--dataset", choices=("cub", "glyphs"), default="cub")
    parser.add_argument("--root", help="path of CUB_200_2011")
    parser.add_argument("--lr", type=float, help="of the head; of the whole network for glyphs")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folds", type=int, default=3, help="sets of validation classes")
    parser.add_argument("--jobs", type=int, default=available_cores())
    parser.add_argument("--output", help="folder of the scores; finished runs are not repeated")
    options = parser.parse_args()
    changes, setting, rate, steps = (CUB, "head", 1e-4, 300) if options.dataset == "cub" else (GLYPHS, "scratch", 3e-3, 100)
    rate, steps = options.lr or rate, options.steps or steps
    kept = Path(options.output or f"runs/ablations-{options.dataset}.json")
    kept.parent.mkdir(parents=True, exist_ok=True)
    done: dict[str, dict[str, list[float]]] = json.loads(kept.read_text()) if kept.is_file() else {}
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="facetric-ablations-") as folder:
        study = reproduction(
            options.dataset, folder, root=options.root, setting=setting, methods=("facility_location",), steps=steps
        )
        study.prepare()
        tasks = [(name, weight) for name in changes for weight in WEIGHTS if f"{name}; γ = {weight:g}" not in done]
        work = delayed(partial(_scores, study, rate, options.seeds, options.folds))
        with parallel_config("loky", inner_max_num_threads=1):
            scored = Parallel(options.jobs, return_as="generator")(work((changes[name], weight)) for name, weight in tasks)
            for (name, weight), scores in zip(tasks, scored, strict=True):
                done[f"{name}; γ = {weight:g}"] = scores
                kept.write_text(json.dumps(done, indent=1, ensure_ascii=False))
                say(f"{name}; γ = {weight:g}: NMI {_cell(scores['nmi'])}, R@1 {_cell(scores['recall_at_1'])}")
    print("| change | best γ | NMI | R@1 | MAP@R |\n|---|---:|---:|---:|---:|")
    for name in changes:
        found = {weight: done[f"{name}; γ = {weight:g}"] for weight in WEIGHTS}
        best = max(
            found, key=lambda weight: statistics.mean(found[weight]["nmi"]) + statistics.mean(found[weight]["recall_at_1"])
        )
        cells = " | ".join(_cell(found[best][key]) for key in ("nmi", "recall_at_1", "map_at_r"))
        print(f"| {name} | {best:g} | {cells} |")
    print(f"\n{(time.perf_counter() - start) / 60:.0f} minutes, {options.jobs} runs at a time")


def _scores(study: Study, rate: float, n_seeds: int, n_folds: int, job: tuple[dict[str, Any], float]) -> dict[str, list[float]]:
    """Percent, one number per seed: the mean over the folds."""
    change, weight = job
    scale = change.get("loss.subset_size", change.get("batches.size", 128)) / 128
    found: dict[str, list[float]] = {"nmi": [], "recall_at_1": [], "map_at_r": []}
    for seed in range(n_seeds):
        scores = []
        for fold in range(n_folds):
            parameters = {
                "optimizer.head_lr": rate,
                "loss.margin_weight": weight * scale,
                "loss.margin_decay": 0.94,
                "data.validation_seed": fold,
                **change,
            }
            place = {"folder": str(study.folder), "name": f"{os.getpid()}-{seed}-{fold}"}
            config = study.config("facility_location", parameters, seed=seed, threads=1, **place)
            scores.append(validation_scores(config))
        for key, values in found.items():
            values.append(100 * statistics.mean(score[key] for score in scores))
    return found


def _cell(values: list[float]) -> str:
    return f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}" if len(values) > 1 else f"{values[0]:.2f}"


if __name__ == "__main__":
    main()
