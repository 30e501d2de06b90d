"""Run folders made without training: what `facetric train` leaves behind."""

from dataclasses import fields

import numpy as np
from PIL import Image

from facetric.embedder import build_network
from facetric.evaluation import EvaluationReport
from facetric.evaluation.clusterings import ScoredClustering
from facetric.metrics import ClusteringScores
from facetric.runs import Manifest, Run
from facetric.runs.config_file import parse_config
from facetric.runs.manifest import new_images


def make_pictures(root, *, n_classes=12, n_images=4):
    """A folder per class; the pictures of a class are alike."""
    rng = np.random.default_rng(0)
    for label in range(n_classes):
        (root / f"class{label:02d}").mkdir(parents=True)
        base = rng.integers(0, 200, (36, 36))
        for i in range(n_images):
            pixels = (base + rng.integers(0, 55, (36, 36))).astype(np.uint8)
            Image.fromarray(pixels).save(root / f"class{label:02d}" / f"{i}.png")
    return root


GLYPHNET = {"backbone": "glyphnet", "dim": 16, "weights": "none", "head_init": "orthogonal"}


def make_config(
    folder, *, name="first", seed=0, margin_weight=1.0, dataset="folder", root="pictures", validate=True, size=36, model=GLYPHNET
):
    half = {"options": {"test_fraction": 0.5}} if dataset == "folder" else {}
    return parse_config(
        {
            "run": {"name": name, "folder": str(folder), "seed": seed, "validate_every": 200 if validate else 0},
            "data": {"name": dataset, "root": str(root), "size": size, "validation_fraction": 0.5, "validation_seed": 0, **half},
            "model": model,
            "loss": {"name": "facility_location", "margin_weight": margin_weight},
        }
    )


def make_run(
    folder,
    *,
    name="first",
    seed=0,
    margin_weight=1.0,
    dataset="folder",
    root="pictures",
    checkpoint="best",
    validate=True,
    manifest=None,
    size=36,
    model=GLYPHNET,
):
    """A run of this dataset before its first step; `manifest` where there is no dataset to read."""
    config = make_config(
        folder,
        name=name,
        seed=seed,
        margin_weight=margin_weight,
        dataset=dataset,
        root=root,
        validate=validate,
        size=size,
        model=model,
    )
    run = Run.of(config)
    if manifest is None:
        manifest = Manifest.of(new_images(config.data, validate=validate), config.data.root)
    run.create(config, {"command": ["facetric", "train"]}, manifest)
    if checkpoint:
        table = config.model
        run.save(build_network(table.backbone, dim=table.dim, weights=table.weights, size=size, seed=seed), checkpoint)
    return run.path


def make_evaluated_run(folder, *, nmi, recall_at_1, split="test", **options):
    """A run with scores that nobody computed, of a dataset that is not there."""
    path = make_run(folder, checkpoint=None, manifest=nothing(), **options)
    report = EvaluationReport(
        n_images=10, n_classes=2, dim=64, metric="cosine", nmi=nmi,
        recall_at_k={1: recall_at_1, 2: 0.9}, map_at_r=0.2, facility_location=from_medoids(nmi - 0.01),
    )  # fmt: skip
    report.save(Run(path).evaluation_file(split))
    return path


def from_medoids(nmi):
    """A clustering from medoids with this NMI and nothing else."""
    scores = {field.name: 0.0 for field in fields(ClusteringScores)}
    return ScoredClustering(1.0, 1, ClusteringScores(**{**scores, "nmi": nmi}))


def nothing():
    """The manifest of no images."""
    return Manifest("none", (), (), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.str_), ())
