"""How to fine-tune: one lever at a time and together, on halves of the training classes of CUB. The test classes are not touched.

    FACETRIC_DATA=path/to/datasets python benchmarks/recipe.py [--steps 60] [--splits 2] [--rows base deeper …]

Every row trains on half of the 100 training classes and is scored on the other half, once for each split. A finished training is
one line of --output; the command continues where it was stopped, and --show prints the table so far. Columns: the trained head,
and the closed-form head refitted to the fine-tuned features, at 64 and 512 dimensions; Recall@1 / MAP@R / NMI.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import torch

from facetric.config.config_file import parse_config
from facetric.data import load_dataset
from facetric.evaluation import evaluate
from facetric.models.closed_form import closed_form_head
from facetric.models.trunk_cache import extract_features
from facetric.training.session import torch_settings
from facetric.training.trial import hold_out, run_trial

BASE = {
    "run": {"validate_every": 1},
    "data": {"name": "cub", "size": 256},
    "model": {
        "freeze_through": "blocks.4",
        "cached_views": 2,
        "head_init": "whitened",
        "head_refit": True,
    },
    "loss": {"name": "facility_location_subsets"},
    "batches": {"size": 96, "class_ratio": 0.25},
    "optimizer": {"backbone_lr": 1e-4, "head_lr": 1e-4, "weight_decay": 1e-5, "warmup_steps": 5, "schedule": "cosine"},
}
DEEP, NESTED = {"model.freeze_through": "blocks.3"}, {"model.dim": 512, "loss.nested": [64]}
SOFTMAX = {"loss.name": "pytorch_metric_learning.NormalizedSoftmaxLoss", "loss.options": {"temperature": 0.05}}
HALF = {"batches.class_ratio": 0.5, "optimizer.backbone_lr": 2.7e-4, "optimizer.head_lr": 2.7e-4}
ROWS = {
    "frozen": {"run.steps": 0, "optimizer.warmup_steps": 0},
    "base": {},
    "pca": {"model.head_init": "pca"},
    "blocks.3": DEEP,
    "nested": NESTED,
    "blocks.3, nested": {**DEEP, **NESTED},
    "blocks.2, nested": {"model.freeze_through": "blocks.2", **NESTED},
    "blocks.3, nested, C/m .5, rate x2.7": {**DEEP, **NESTED, **HALF},
    "blocks.3, nested, rate x2.7": {**DEEP, **NESTED, "optimizer.backbone_lr": 2.7e-4, "optimizer.head_lr": 2.7e-4},
    "blocks.3, nested, softmax": {**DEEP, **NESTED, **SOFTMAX},
}
WIDTHS = (64, 512)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=Path(os.environ.get("FACETRIC_DATA", ".")) / "CUB_200_2011")
    parser.add_argument("--rows", nargs="*", default=list(ROWS), choices=ROWS)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--images", type=int, help="of each class; all when left out")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("recipe.jsonl"))
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    done = [json.loads(line) for line in options.output.read_text().splitlines()] if options.output.exists() else []
    if not options.show:
        dataset = load_dataset("cub", root=options.root)
        if options.images is not None:
            rows = [np.flatnonzero(dataset.labels == label)[: options.images] for label in np.unique(dataset.labels)]
            dataset = dataset.take(np.concatenate(rows))
        classes = np.unique(dataset.labels[dataset.splits == "train"])
        for split in range(options.splits):
            held_out = np.random.default_rng(split // 2).permutation(classes).reshape(2, -1)[split % 2]
            for row in options.rows:
                if not any((line["row"], line["split"], line["steps"]) == (row, split, options.steps) for line in done):
                    line = {
                        "row": row,
                        "split": split,
                        "steps": options.steps,
                        **scores(row, hold_out(dataset, held_out), options),
                    }
                    done.append(line)
                    with options.output.open("a") as file:
                        file.write(json.dumps(line) + "\n")
                    print(json.dumps(line), flush=True)
    show([line for line in done if line["steps"] == options.steps])


def scores(row, dataset, options):
    """Train one row on one split."""
    tables = {name: dict(table) for name, table in BASE.items()}
    tables["data"]["root"] = str(options.root)
    tables["run"] |= {"steps": options.steps, "threads": options.threads}
    for key, value in ROWS[row].items():
        table, name = key.split(".", 1)
        tables[table][name] = value
    start = time.perf_counter()
    with torch_settings(threads=options.threads):
        trial = run_trial(parse_config(tables), dataset)
        assert trial is not None, f"{row} diverged"
        trained, labels = time.perf_counter(), trial.plan.held_out.labels
        found = {}
        vectors = trial.embed()
        for width in WIDTHS:
            if width <= vectors.shape[1]:
                found[f"head {width}"] = scored(vectors[:, :width], labels)
        embedder = trial.session.embedder
        known = extract_features(embedder, trial.session.refit.cache, on_progress=lambda done, total: None)
        held_out = extract_features(embedder, trial.validator.cache, on_progress=lambda done, total: None)
        for width in WIDTHS:
            head = closed_form_head(known, trial.plan.training.labels, width)
            found[f"refit {width}"] = scored(head(held_out), labels)
    return {"scores": found, "seconds": round(trained - start), "threads": torch.get_num_threads()}


def scored(vectors, labels):
    report = evaluate(vectors, labels, ks=(1,), facility=False, n_restarts=3)
    return [round(100 * value, 2) for value in (report.recall_at_k[1], report.map_at_r, report.nmi)]


def show(lines):
    columns = [f"{kind} {width}" for kind in ("head", "refit") for width in WIDTHS]
    print("| Recall@1 / MAP@R / NMI | splits | " + " | ".join(columns) + " |\n|---|---:|" + "---|" * len(columns))
    for row in ROWS:
        of_row = [line["scores"] for line in lines if line["row"] == row]
        if of_row:
            cells = [[scores[column] for scores in of_row if column in scores] for column in columns]
            words = [" / ".join(f"{value:.1f}" for value in np.mean(cell, axis=0)) if cell else "–" for cell in cells]
            print(f"| {row} | {len(of_row)} | " + " | ".join(words) + " |")


if __name__ == "__main__":
    main()
