"""How to fine-tune: one lever at a time and together, on halves of the training classes of CUB. The test classes are not touched.

    FACETRIC_DATA=path/to/datasets python benchmarks/recipe.py [--steps 60] [--splits 2] [--rows base blocks.2 …]

Every row trains on half of the 100 training classes and is scored on the other half, once for each split. A finished training is
one line of --output; the command continues where it was stopped, and --show prints the table so far. Columns: the trained head;
the closed-form head refitted to the fine-tuned features; the same after going half of the way back to the pretrained weights; the
same with the weights averaged over the second half of the steps. At 64 and 512 dimensions, Recall@1 / MAP@R / NMI.
"""

import argparse
import os
import time
from pathlib import Path

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn
from torch.nn.functional import cross_entropy, normalize, one_hot

from facetric.embedder import encode
from facetric.embedder.heads import closed_form_head
from facetric.evaluation import evaluate
from facetric.images.readers import load_dataset
from facetric.losses import SubsampledLoss
from facetric.report.figures import PALETTE, PLOT_STYLE, write_plot
from facetric.runs import parse_config
from facetric.training.choice_candidates import hold_out, train_in_memory
from facetric.training.session import torch_settings
from kept_results import keep, kept_results

BASE = {
    "run": {"validate_every": 1},
    "data": {"name": "cub", "size": 256},
    "model": {"freeze_through": "blocks.4", "cached_views": 2, "head_init": "whitened", "head_refit": True},
    "loss": {"name": "facility_location", "n_subsets": 16},
    "batches": {"size": 96, "class_ratio": 0.25},
    "optimizer": {"backbone_lr": 1e-4, "head_lr": 1e-4, "weight_decay": 1e-5, "warmup_steps": 5, "schedule": "cosine"},
}

GEM, NESTED, DEEP = {"model.pooling": "gem"}, {"model.dim": 512, "loss.nested": [64]}, {"model.freeze_through": "blocks.2"}
ALL = {**DEEP, **NESTED, **GEM}  # the recipe of configs/cub_512.toml
FASTER = {"optimizer.backbone_lr": 2.7e-4, "optimizer.head_lr": 2.7e-4}
SOFTMAX = {"loss.name": "pytorch_metric_learning.NormalizedSoftmaxLoss", "loss.options": {"temperature": 0.05}}
SOFTMAX_FROM_MEANS = {"loss.name": "recipe.SoftmaxFromMeans", "optimizer.loss_lr": 1e-3}
MULTI_SIMILARITY = {"loss.name": "pytorch_metric_learning.MultiSimilarityLoss", "loss.options": {"alpha": 2.4, "beta": 47}}
ROWS = {
    "frozen": {"run.steps": 0, "optimizer.warmup_steps": 0},
    "frozen, GeM": {"run.steps": 0, "optimizer.warmup_steps": 0, **GEM},
    "base": {},
    "start from PCA": {"model.head_init": "pca"},
    "whole batch, no subsets": {"loss.n_subsets": 0},
    "softmax": SOFTMAX,
    "softmax, proxies from class means": SOFTMAX_FROM_MEANS,
    "MultiSimilarity": MULTI_SIMILARITY,
    "4 views": {"model.cached_views": 4},
    "AdamW": {"optimizer.name": "adamw"},
    "rate x 2.7": FASTER,
    "C/m .5": {"batches.class_ratio": 0.5},
    "C/m .5, rate x 2.7": {"batches.class_ratio": 0.5, **FASTER},
    "GeM": GEM,
    "nested": NESTED,
    "blocks.3": {"model.freeze_through": "blocks.3"},
    "blocks.2": DEEP,
    "blocks.2, nested": {**DEEP, **NESTED},
    "blocks.2, nested, GeM": ALL,
    "blocks.2, nested, GeM, start from PCA": {**ALL, "model.head_init": "pca"},
    "blocks.2, nested, GeM, C/m .5": {**ALL, "batches.class_ratio": 0.5},
    "blocks.2, nested, GeM, rate x 2.7": {**ALL, **FASTER},
    "blocks.2, nested, GeM, softmax from class means": {**ALL, **SOFTMAX_FROM_MEANS},
    "blocks.2, nested, GeM, MultiSimilarity": {**ALL, **MULTI_SIMILARITY},
    "blocks.2, nested, GeM, class means as proxies": {**ALL, "loss.name": "recipe.PrototypeSoftmax"},
    "blocks.2, nested, GeM, ours + softmax": {**ALL, **SOFTMAX_FROM_MEANS, "loss.name": "recipe.ClusteringAndSoftmax"},
}
TOGETHER = "blocks.2, nested, GeM"
WIDTHS = (64, 512)


class PrototypeSoftmax(nn.Module):
    """Softmax over cosines to the class means of the batch, each image left out of its own."""

    def __init__(self, temperature=0.05):
        super().__init__()
        self.temperature = temperature

    def forward(self, embeddings, labels):
        vectors = normalize(embeddings, dim=1)
        kinds, classes = labels.unique(return_inverse=True)
        member = one_hot(classes, len(kinds)).to(vectors)  # (m, C)
        sums = member.T @ vectors
        own = normalize((sums[classes] - vectors), dim=1)
        cosines = vectors @ normalize(sums, dim=1).T
        cosines = torch.where(member.bool(), (own * vectors).sum(dim=1, keepdim=True), cosines)
        several = member.sum(dim=0)[classes] > 1  # a class of one image has no other to be near to
        return cross_entropy(cosines[several] / self.temperature, classes[several])


class SoftmaxFromMeans(nn.Module):
    """Softmax over cosines to learned proxies; each starts as the mean of its class in the first batch that has it."""

    def __init__(self, embedding_size, num_classes, temperature=0.05):
        super().__init__()
        self.proxies, self.temperature = nn.Parameter(torch.zeros(num_classes, embedding_size)), temperature
        self.register_buffer("seen", torch.zeros(num_classes, dtype=torch.bool))

    def forward(self, embeddings, labels):
        vectors = normalize(embeddings, dim=1)
        with torch.no_grad():
            for label in labels[~self.seen[labels]].unique():
                self.proxies[label] = normalize(vectors[labels == label].sum(dim=0), dim=0)
            self.seen[labels] = True
        cosines = vectors @ normalize(self.proxies, dim=1).T
        return cross_entropy(cosines.masked_fill(~self.seen, -torch.inf) / self.temperature, labels)


class ClusteringAndSoftmax(nn.Module):
    """Our loss per clustered image, and a softmax over learned proxies."""

    def __init__(self, embedding_size, num_classes):
        super().__init__()
        self.clustering, self.softmax = SubsampledLoss(seed=0), SoftmaxFromMeans(embedding_size, num_classes)

    def forward(self, embeddings, labels):
        return self.clustering(embeddings, labels) * 2 / len(labels) + self.softmax(embeddings, labels)


class WeightAverage:
    """The mean of the backbone's weights over the second half of the steps."""

    def __init__(self, steps):
        self.steps, self.n, self.weights = steps, 0, {}

    def __call__(self, step, embedder):
        if 2 * step > self.steps:
            self.n += 1
            for name, tensor in embedder.backbone.state_dict().items():
                if tensor.is_floating_point():
                    mean = self.weights.setdefault(name, torch.zeros_like(tensor))
                    mean.lerp_(tensor, 1 / self.n)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=Path(os.environ.get("FACETRIC_DATA", ".")) / "CUB_200_2011")
    parser.add_argument("--only", type=int, nargs="*", help="these splits alone")
    parser.add_argument("--rows", nargs="*", default=list(ROWS), choices=ROWS)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--images", type=int, help="of each class; all when left out")
    parser.add_argument("--refit-only", action="store_true", help="without halfway and averaged: half the time")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("recipe.jsonl"))
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--picture", type=Path, help="also draw the changes against the base row")
    options = parser.parse_args()
    done = kept_results(options.output, {"images": options.images})
    if not options.show:
        dataset = load_dataset("cub", root=options.root)
        if options.images is not None:
            rows = [np.flatnonzero(dataset.labels == label)[: options.images] for label in np.unique(dataset.labels)]
            dataset = dataset.take(np.concatenate(rows))
        classes = np.unique(dataset.labels[dataset.splits == "train"])
        for split in options.only or range(options.splits):
            held_out = np.random.default_rng(split // 2).permutation(classes).reshape(2, -1)[split % 2]
            for row in options.rows:
                if not any((line["row"], line["split"], line["steps"]) == (row, split, options.steps) for line in done):
                    line = {"row": row, "split": split, "steps": options.steps, "settings": {"images": options.images}}
                    done.append({**line, **scores(row, hold_out(dataset, held_out), options)})
                    keep(options.output, done[-1])
    rows = {
        row: {line["split"]: line["scores"] for line in done if (line["row"], line["steps"]) == (row, options.steps)}
        for row in ROWS
    }
    show(rows)
    if options.picture is not None:
        draw({row: differences(of_row, rows["base"]) for row, of_row in rows.items()}, options.picture)


def scores(row, dataset, options):
    """Train one row on one split."""
    tables = {name: dict(table) for name, table in BASE.items()}
    tables["data"]["root"] = str(options.root)
    tables["run"] |= {"steps": options.steps, "threads": options.threads}
    for key, value in ROWS[row].items():
        table, name = key.split(".", 1)
        tables[table][name] = value
    start = time.perf_counter()
    average = WeightAverage(tables["run"]["steps"])
    with torch_settings(threads=options.threads):
        session = train_in_memory(parse_config(tables), dataset, on_step=average)
        assert session is not None, f"{row} diverged"
        seconds, labels = time.perf_counter() - start, session.held_out.labels
        vectors, found = session.held_out_vectors(session.embedder, step=options.steps), {}
        for width in WIDTHS:
            if width <= vectors.shape[1]:
                found[f"head {width}"] = scored(vectors[:, :width], labels)
        networks = {"refit": session.embedder}
        if average.n and not options.refit_only:
            networks["halfway"] = session.embedder.interpolated(session.pretrained, 0.5)
            networks["averaged"] = session.embedder.interpolated(average.weights, 1.0)
        for name, embedder in networks.items():
            caches = session.feed.images, session.validation
            known, new = (encode(embedder, cache, what="features") for cache in caches)
            for width in WIDTHS:
                found[f"{name} {width}"] = scored(closed_form_head(known, session.training.labels, width)(new), labels)
    return {"scores": found, "seconds": round(seconds), "threads": options.threads}


def scored(vectors, labels):
    report = evaluate(vectors, labels, ks=(1,), facility=False, n_restarts=3)
    return [round(100 * value, 2) for value in (report.recall_at_k[1], report.map_at_r, report.nmi)]


def show(rows):
    columns = [f"{kind} {width}" for kind in ("head", "refit", "halfway", "averaged") for width in WIDTHS]
    print_table("Recall@1 / MAP@R / NMI", rows, columns, "{:.1f}")
    for reference, others in (("base", ROWS), (TOGETHER, [row for row in ROWS if row.startswith("blocks.2")])):
        changes = {row: differences(rows[row], rows[reference]) for row in others if row != reference}
        print_table(f"minus {reference}, split by split", changes, columns[:4], "{:+.1f}")


def differences(of_row, reference):
    shared = of_row.keys() & reference.keys()
    return {
        split: {
            column: np.subtract(of_row[split][column], reference[split][column])
            for column in of_row[split].keys() & reference[split].keys()
        }
        for split in shared
    }


def print_table(title, rows, columns, form):
    print(f"\n| {title} | splits | " + " | ".join(columns) + " |\n|---|---:|" + "---|" * len(columns))
    for row, splits in rows.items():
        cells = [[scores[column] for scores in splits.values() if column in scores] for column in columns]
        words = [" / ".join(map(form.format, np.mean(cell, axis=0))) if cell else "–" for cell in cells]
        if splits:
            print(f"| {row} | {len(splits)} | " + " | ".join(words) + " |")


def draw(changes, path):
    """A ring for each split, a dot for their mean; the refitted head."""
    changes = {row: splits for row, splits in changes.items() if splits and row != "base"}
    with matplotlib.rc_context(PLOT_STYLE):
        figure = Figure(figsize=(11, 1 + 0.28 * len(changes)), layout="constrained")
        figure.suptitle("Change against the base row, percentage points", x=0.01, ha="left", fontsize=11, fontweight="bold")
        panels = [(width, score) for width in WIDTHS for score in (0, 1)]
        for axes, (width, score) in zip(figure.subplots(1, len(panels), sharey=True), panels, strict=True):
            axes.set_title(f"{('Recall@1', 'MAP@R')[score]}, d = {width}")
            axes.axvline(0, color="gray", linewidth=0.8)
            for place, splits in enumerate(changes.values()):
                values = [scores[f"refit {width}"][score] for scores in splits.values()]
                axes.plot(values, [place] * len(values), "o", markersize=4, color=PALETTE[6], markerfacecolor="white")
                axes.plot(np.mean(values), place, "o", markersize=5, color=PALETTE[1])
            axes.set_yticks(range(len(changes)), changes)
            axes.set_ylim(len(changes) - 0.5, -0.5)
            axes.tick_params(left=False)
    write_plot(figure, path, dpi=110)


if __name__ == "__main__":
    main()
