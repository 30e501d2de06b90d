"""The last maps of the frozen network as one vector: average, power means or maximum. The test classes of CUB are not touched.

    FACETRIC_DATA=path/to/datasets python benchmarks/pooling.py [--folders 30]

First a closed-form head at 64 and 512 dimensions, fitted to half of CUB's training classes and scored on the other half, and the
other way around: Recall@1 / MAP@R. Then small folders (8 to 40 classes of 6 to 30 photos; birds of the training half, and
characters on colored paper), two thirds of the classes fitted and the others scored: how much GeM adds to the average, with the
standard error over folders.
"""

import argparse
import os
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch

from facetric.embedder import build_network
from facetric.embedder.encode import inference, outputs_in_order
from facetric.embedder.heads import USUAL_SHRINKAGE, closed_form_head
from facetric.embedder.split import feature_maps
from facetric.images.readers import load_dataset
from facetric.images.sources import Files
from facetric.machine import prepare_process
from facetric.metrics.retrieval import retrieval
from never_worse import draw_character

AVERAGE, GEM = "average", "GeM, power 3"
WIDTHS, POWERS = (64, 512), (1, 2, 3, 4)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=Path(os.environ.get("FACETRIC_DATA", ".")) / "CUB_200_2011")
    parser.add_argument("--folders", type=int, default=30, help="of each kind")
    options = parser.parse_args()
    prepare_process()
    birds = load_dataset("cub", root=options.root).select("train")
    of_birds = pooled(list(birds.images))
    halves(of_birds, birds.labels)
    paths, labels = characters(Path(tempfile.mkdtemp()))
    for kind, features, classes in (("birds", of_birds, birds.labels), ("characters", pooled(paths), labels)):
        folders(kind, features, classes, options.folders)


def pooled(paths):
    """Every way to pool the same maps of each photo: (n, 1280) each."""
    embedder = build_network(weights="packaged").eval()
    with inference(embedder) as network:
        crop = network.crop

        def pool(images):
            maps = feature_maps(network.backbone, images).clamp(min=1e-6)
            means = [maps.pow(power).mean(dim=(2, 3)).pow(1 / power) for power in POWERS]
            return torch.stack([*means, maps.amax(dim=(2, 3))], dim=1)

        photos = Files(paths)
        blocks = (np.arange(start, min(start + 8, len(photos))) for start in range(0, len(photos), 8))
        tasks = (partial(photos.inputs, rows, crop) for rows in blocks)
        found = torch.cat(list(outputs_in_order(network, tasks, pool))).numpy()
    return {name: found[:, i] for i, name in enumerate((AVERAGE, *(f"GeM, power {power}" for power in POWERS[1:]), "maximum"))}


def halves(features, labels):
    parts = np.random.default_rng(0).permutation(np.unique(labels)).reshape(2, -1)
    print("| pooling | " + " | ".join(f"d = {width}" for width in WIDTHS) + " |\n|---|" + "---|" * len(WIDTHS))
    for name, x in features.items():
        cells = []
        for width in WIDTHS:
            found = [fitted_and_scored(x, labels, np.isin(labels, part), width, USUAL_SHRINKAGE) for part in parts]
            cells.append(" / ".join(f"{value:.1f}" for value in np.mean(found, axis=0)))
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def folders(kind, features, labels, n):
    gains = {"pretrained features": [], "closed-form head": []}
    for number in range(n):
        rng = np.random.default_rng([5, number])
        n_classes, n_images = int(rng.integers(8, 41)), int(rng.integers(6, 31))
        classes = rng.permutation(np.unique(labels))[:n_classes]
        rows = np.concatenate([rng.permutation(np.flatnonzero(labels == label))[:n_images] for label in classes])
        new, y = np.isin(labels[rows], classes[: max(2, round(n_classes / 3))]), labels[rows]
        before = [scores(features[way][rows][new], y[new]) for way in (AVERAGE, GEM)]
        fitted = [fitted_and_scored(features[way][rows], y, new, features[way].shape[1]) for way in (AVERAGE, GEM)]
        for name, (average, gem) in zip(gains, (before, fitted), strict=True):
            gains[name].append(np.subtract(gem, average))
    for name, found in gains.items():
        mean, error = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / np.sqrt(n)
        lower = (np.array(found) < 0).sum(axis=0)
        print(
            f"{kind}, {name}: GeM − average over {n} folders: Recall@1 {mean[0]:+.1f} ± {error[0]:.1f} (lower in {lower[0]}), "
            f"MAP@R {mean[1]:+.1f} ± {error[1]:.1f} (lower in {lower[1]})",
            flush=True,
        )


def fitted_and_scored(x, labels, new, width, shrinkage=None):
    return scores(closed_form_head(x[~new], labels[~new], width, shrinkage=shrinkage)(x[new]), labels[new])


def scores(vectors, labels):
    found = retrieval(vectors, labels, ks=(1,))
    return 100 * found.recall_at_k[1], 100 * found.map_at_r


def characters(place, n_classes=60):
    """Other characters and papers than those of never_worse.py."""
    drawn, rng = load_dataset("glyphs", min_images=16), np.random.default_rng(99)
    paths, labels = [], []
    for label in rng.permutation(np.unique(drawn.labels))[:n_classes]:
        for image_id in rng.permutation(np.flatnonzero(drawn.labels == label))[:16]:
            paths.append(place / f"{len(paths):05}.jpg")
            labels.append(label)
            draw_character(drawn.images[image_id], paths[-1], rng)
    return paths, np.array(labels)


if __name__ == "__main__":
    main()
