"""Run folders made by hand: what `facetric train` leaves behind, without training."""

import numpy as np
from PIL import Image

from facetric.evaluation import EvaluationReport
from facetric.models import build_embedder, save_embedder

CONFIG = """
[run]
name = "{name}"
seed = {seed}

[data]
name = "{dataset}"
root = "{root}"
size = 36
validation_fraction = 0.5
validation_seed = 0

[loss]
name = "facility_location"
margin_weight = {margin_weight}
"""


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


def make_run(folder, *, name="first", seed=0, margin_weight=1.0, dataset="folder", root="pictures", checkpoint="best"):
    path = folder / name
    (path / "checkpoints").mkdir(parents=True)
    (path / "config.toml").write_text(
        CONFIG.format(name=name, seed=seed, margin_weight=margin_weight, dataset=dataset, root=root)
    )
    if checkpoint:
        embedder = build_embedder("glyphnet", dim=16, weights="none", seed=seed)
        save_embedder(embedder, path / "checkpoints" / f"{checkpoint}.safetensors")
    return path


def make_evaluated_run(folder, *, nmi, recall_at_1, split="test", **options):
    """A run with scores that nobody computed."""
    path = make_run(folder, checkpoint=None, **options)
    report = EvaluationReport(
        n_images=10, n_classes=2, dimension=64, metric="cosine", nmi=nmi, recall_at_k={1: recall_at_1, 2: 0.9}, map_at_r=0.2
    )
    report.save(path / ("evaluation.json" if split == "test" else f"evaluation-{split}.json"))
    return path
