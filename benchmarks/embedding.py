"""Embedding photos, from JPEG files to vectors: images a second, step by step, against the plain way in PyTorch.

    FACETRIC_DATA=... python benchmarks/embedding.py [--images 1000] [--rounds 3] [--scores]

The plain way is what most programs do, and what facetric 0.1 did: the network in eval mode, batches of 64, all threads on one
batch, decoding in two threads beside it. Each step adds to the one before; all run in turns, and medians count. With --scores the
whole CUB test half is embedded and scored by Recall@1 and NMI. Photos come from FACETRIC_DATA, the
folder that holds CUB_200_2011; --megapixels makes larger ones of them first, as a phone would.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from facetric.machine import prepare_process

prepare_process()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from numpy.typing import NDArray  # noqa: E402
from PIL import Image  # noqa: E402

from facetric.embedder import Network, build_network, encode  # noqa: E402
from facetric.embedder.encode import inference, outputs_in_order  # noqa: E402
from facetric.evaluation import evaluate  # noqa: E402
from facetric.images import Files, made_ahead  # noqa: E402
from facetric.images.decoding import open_image  # noqa: E402

Vectors = NDArray[np.float32]


def plain(embedder: Network, paths: list[Path]) -> Vectors:
    """Batches of 64, all threads on one batch, whole files decoded."""
    crop = embedder.crop

    def batch(part: list[Path]) -> torch.Tensor:
        pixels = np.stack([crop.preprocessing.pixels(open_image(path)) for path in part])
        return torch.from_numpy(crop(pixels)).contiguous()

    tasks = (partial(batch, paths[first : first + 64]) for first in range(0, len(paths), 64))
    with torch.inference_mode():
        return np.concatenate([embedder(images).numpy() for images in made_ahead(tasks, 2)])


def batch_per_thread(embedder: Network, paths: list[Path], size: int = 8) -> Vectors:
    """Every thread decodes a small batch and runs the network on it by itself."""
    crop = embedder.crop
    rows = [np.arange(first, min(first + size, len(paths))) for first in range(0, len(paths), size)]
    tasks = (partial(Files(paths).inputs, part, crop) for part in rows)
    return np.concatenate([vectors.numpy() for vectors in outputs_in_order(embedder, tasks, embedder)])


def fused(embedder: Network, paths: list[Path]) -> Vectors:
    """And batch normalization and activations are part of the convolutions: what `encode` does."""
    with inference(embedder) as network:
        return batch_per_thread(network, paths)


STEPS: dict[str, Callable[[Network, list[Path]], Vectors]] = {
    "plain PyTorch": plain,
    "+ a small batch per thread": batch_per_thread,
    "+ fused convolutions": fused,
    "encode()": encode,
}


def enlarged(paths: list[Path], megapixels: float, folder: Path) -> list[Path]:
    """The photos at so many megapixels, with noise as of a sensor, as JPEG of quality 88."""
    side, rng, made = round((megapixels * 1e6) ** 0.5), np.random.default_rng(0), []
    for number, path in enumerate(paths):
        picture = np.asarray(open_image(path).resize((side, side), Image.Resampling.BICUBIC), dtype=np.float32)
        noisy = picture + 4 * rng.standard_normal(picture.shape, dtype=np.float32)
        made.append(folder / f"{number}.jpg")
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(made[-1], quality=88)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description="Embedding photos, from JPEG files to vectors.")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megapixels", type=float, help="enlarge the photos to this many first")
    parser.add_argument("--backbone", default="tf_efficientnet_lite0")
    parser.add_argument("--scores", action="store_true", help="Recall@1 and NMI of the CUB test half")
    options = parser.parse_args()
    if "FACETRIC_DATA" not in os.environ:
        raise SystemExit("set FACETRIC_DATA to the folder that holds CUB_200_2011")
    folders = sorted((Path(os.environ["FACETRIC_DATA"]) / "CUB_200_2011" / "images").glob("*"))
    paths = [path for folder in folders for path in sorted(folder.glob("*.jpg"))]
    chosen = paths[:: max(1, len(paths) // options.images)][: options.images]
    embedder = build_network(options.backbone, dim=None, weights=None if "lite" in options.backbone else "none").eval()
    with tempfile.TemporaryDirectory(prefix="facetric-benchmark-") as temporary:
        if options.megapixels:
            chosen = enlarged(chosen, options.megapixels, Path(temporary))
        times: dict[str, list[float]] = {name: [] for name in STEPS}
        vectors: dict[str, Vectors] = {}
        for step in STEPS.values():
            step(embedder, chosen[:64])
        for _ in range(options.rounds):
            for name, step in STEPS.items():
                start = time.perf_counter()
                vectors[name] = step(embedder, chosen)
                times[name].append(time.perf_counter() - start)
    print(f"{len(chosen)} photos, {options.backbone}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    first = float(np.median(times["plain PyTorch"]))
    for name, seconds in times.items():
        median = float(np.median(seconds))
        cosines = (vectors[name] * vectors["plain PyTorch"]).sum(axis=1)
        speed = f"{len(chosen) / median:6.1f} images/s  {first / median:5.2f}x"
        print(f"{name:28} {speed}   cosine to plain: smallest {cosines.min():.7f}, median {np.median(cosines):.7f}")
    if options.scores:
        test = [path for folder in folders[100:] for path in sorted(folder.glob("*.jpg"))]
        labels = np.unique([path.parent.name for path in test], return_inverse=True)[1]
        report = evaluate(encode(embedder, test), labels, ks=(1,), n_restarts=5)
        print(f"CUB test, Recall@1 {100 * report.recall_at_k[1]:.2f}  NMI {100 * (report.nmi or 0):.2f}")


if __name__ == "__main__":
    main()
