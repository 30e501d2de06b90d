"""Which part of the picture, at which size? Recall@1 of the frozen backbone's features, on classes of the training half.

    FACETRIC_DATA=path/to/datasets python benchmarks/input_crops.py [--every 4]

The central crop of the 256×256 picture, resized to what the network sees. Test classes are not touched.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
import torch

from facetric.embedder import build_network
from facetric.evaluation import evaluate
from facetric.images import CenterCrop, Preprocessing
from facetric.images.readers import load_dataset
from facetric.images.sources import prepare

CROPS = ((192, 224), (224, 224), (240, 240), (256, 224), (256, 256), (256, 320))  # pixels of the picture, of the input


def main() -> None:
    """Print a line per crop."""
    parser = argparse.ArgumentParser(description="Recall@1 of frozen features by crop, on the training classes of CUB.")
    parser.add_argument("--every", type=int, default=4, help="every so many images")
    options = parser.parse_args()
    dataset = load_dataset("cub", root=Path(os.environ.get("FACETRIC_DATA", ".")) / "CUB_200_2011")
    kept = np.flatnonzero(dataset.splits == "train")[:: options.every]
    pictures, labels = prepare(dataset.source).take(kept), dataset.labels[kept]
    embedder = build_network("tf_efficientnet_lite0").eval()
    spec = embedder.preprocessing
    for crop, size in CROPS:
        cut = CenterCrop(Preprocessing(size=256, crop=crop, mean=spec.mean, std=spec.std))
        parts = []
        for start in range(0, len(kept), 16):
            rows = np.arange(start, min(start + 16, len(kept)))
            images = torch.from_numpy(pictures.inputs(rows, cut))
            if crop != size:
                images = torch.nn.functional.interpolate(images, (size, size), mode="bicubic", antialias=True)
            with torch.inference_mode():
                parts.append(torch.nn.functional.normalize(embedder.features(images)).numpy())
        report = evaluate(np.concatenate(parts), labels, ks=(1,), n_restarts=1, facility=False)
        print(f"central {crop} pixels seen at {size}: Recall@1 {100 * report.recall_at_k[1]:.2f}", flush=True)


if __name__ == "__main__":
    main()
