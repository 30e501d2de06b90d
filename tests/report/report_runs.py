"""Runs for the tests of the report: folders with all pieces, and pictures whose JPEGs are as large as photographs'."""

import json
import math
from functools import cache

import numpy as np
from PIL import Image

from facetric.embedder import Vectors
from facetric.evaluation import evaluate
from facetric.report.run_record import ShownImages
from facetric.report.sprites import Thumbnails
from facetric.runs import Manifest

HOSTILE = (
    '<img src=x onerror="document.title=1">',
    "</script><script>document.title='2'</script>",
    'it\'s "quoted" & {{title}} `${n}`',
    "owl 🦉 \u202eright to left",
    "undecodable \udcff byte",
    "<!--",
    "",
    "x" * 300,
)


def write_run(folder, *, n_images=60, n_classes=6, dataset="folder", names=None, seed=0, config=True):
    """A run folder as training and evaluation leave it; every piece can be removed afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    images = clumps(n_images, n_classes, seed=seed)
    paths = np.array(names or [f"/data/class {label}/{i}.jpg" for i, label in enumerate(images.class_labels)])
    source = {"dataset": dataset, "split": "test"}
    Vectors(images.vectors, tuple(paths), images.class_labels.astype(np.int64), source=source).save(folder / "embeddings.npz")
    evaluate(images.vectors, images.class_labels, n_restarts=2).save(folder / "evaluation.json")
    if config:
        (folder / "config.toml").write_text(f'[run]\nname = "tried"\n\n[data]\nname = "{dataset}"\n')
    if not (folder / "manifest.json").exists():
        known, test = tuple(f"class {i}" for i in range(n_classes)), np.full(n_images, "test")
        manifest = Manifest(dataset, known, tuple(paths.tolist()), images.class_labels.astype(np.int64), test, ("",) * n_images)
        (folder / "manifest.json").write_text(manifest.to_json())
    command = ["/somewhere/bin/facetric", "train", "configs/birds.toml", "--set", "run.name=first try"]
    (folder / "environment.json").write_text(json.dumps({"command": command, "seed": 0}))
    rows = [
        {
            "step": step,
            "loss": math.exp(-step / 50),
            "batch_nmi": None,
            "backbone_lr": 1e-4,
            "timing": {"images_per_second": 900.0},
        }
        for step in range(10, 210, 10)
    ]
    rows += [{"step": step, "validation": {"recall_at_1": step / 300, "nmi": 0.5}} for step in (0, 100, 200)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def clumps(n_images, n_classes, *, seed=0, spread=0.6, names=None):
    """Vectors in clumps, one per class, that overlap: some nearest neighbors are wrong. The first two axes are a map."""
    rng = np.random.default_rng(seed)
    labels = np.sort(np.arange(n_images) % n_classes).astype(np.int32)
    centers = rng.normal(size=(n_classes, 8)) * 2
    vectors = (centers[labels] + spread * rng.normal(size=(n_images, 8))).astype(np.float32)
    class_names = tuple(names or [f"class {i}" for i in range(n_classes)])
    return ShownImages(vectors, labels, class_names, tuple(f"image {i}" for i in range(n_images)), "euclidean", labels)


def thumbnails_of(pixels, **options):
    """Of images in memory, (n, height, width) or (n, height, width, 3)."""
    return Thumbnails(lambda image_id, _: Image.fromarray(pixels[image_id]), **options)


def photographs(*, side=96, limit=192):
    return Thumbnails(lambda image_id, _: Image.fromarray(photograph(image_id, side=side)), side=limit)


def photograph(image_id, *, side=96):
    """A picture with the spectrum of photographs (1/f); shifts of fifty of them, so that it costs little to make thousands."""
    return np.roll(_landscape(image_id % 50, side), (image_id * 7 % side, image_id * 13 % side), axis=(0, 1))


@cache
def _landscape(seed, side):
    rng = np.random.default_rng(seed)
    frequencies = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.fftfreq(side)[None]) + 1 / side
    noise = np.fft.ifft2(np.fft.fft2(rng.normal(size=(3, side, side))) / frequencies).real
    return np.clip(128 + 55 * noise / noise.std(), 0, 255).astype(np.uint8).transpose(1, 2, 0)  # (side, side, 3)
