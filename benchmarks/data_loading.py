"""Images per second, ready to train on: from JPEG files and from the prepared cache, against torchvision's ImageFolder.

    python benchmarks/data_loading.py            # 1,500 generated JPEGs of 500×375, the original size of CUB's
    FACETRIC_DATA=... python benchmarks/data_loading.py   # the folder that holds CUB_200_2011

All three resize to 256×256, take a random 227 crop, flip and normalize, in batches of 128. The cache is built in a temporary
folder, and the time to build it is printed: it is paid once.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

from facetric.images import Files, Preprocessing, RandomCrop
from facetric.images.sources import prepare
from facetric.losses.sampler import ClassBalancedBatches
from facetric.training.feed import Feed

BATCH_SIZE = 128


def main() -> None:
    """Time the three side by side and print two ratios."""
    parser = argparse.ArgumentParser(description="Images per second from files and from the prepared cache.")
    parser.add_argument("--images", type=int, default=1500, help="how many images at most, spread over the classes")
    parser.add_argument("--workers", type=int, default=min(4, os.cpu_count() or 1), help="worker processes, or threads")
    parser.add_argument("--rounds", type=int, default=3, help="times that each is measured; the median counts")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="facetric-benchmark-") as temporary:
        folder = Path(temporary)
        root = _sample(options.images, folder)
        compare(root, folder / "cache", n_workers=options.workers, n_rounds=options.rounds)


def compare(root: Path, cache: Path, *, n_workers: int, n_rounds: int) -> None:
    """Print images per second of the three ways to load one folder of class folders."""
    preprocessing = Preprocessing()
    steps = [
        transforms.Resize((preprocessing.size, preprocessing.size)),
        transforms.RandomCrop(preprocessing.crop),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize(preprocessing.mean, preprocessing.std),
    ]
    plain = datasets.ImageFolder(str(root), transforms.Compose(steps))
    paths = [Path(path) for path, _ in plain.samples]
    n_classes = len(plain.classes)
    width, height = np.median([_size(path) for path in paths], axis=0)
    print(f"{len(paths)} JPEGs of {n_classes} classes, median {width:.0f}×{height:.0f} pixels, all in the system's file cache")
    print(f"{n_workers} workers, {os.cpu_count()} cores; torch {torch.__version__}")

    os.environ["FACETRIC_CACHE"] = str(cache)
    start = time.perf_counter()
    prepared = prepare(Files(paths), n_threads=n_workers)
    seconds = time.perf_counter() - start
    n_bytes = prepared.pixels.nbytes
    print(f"cache built in {seconds:.1f} s ({len(paths) / seconds:.0f} images/s), {n_bytes / 1e6:.0f} MB")

    ratio = min(0.25, n_classes / BATCH_SIZE)
    batches = ClassBalancedBatches(plain.targets, batch_size=BATCH_SIZE, class_ratio=ratio)
    crop = RandomCrop(preprocessing)
    loaders = {
        "torchvision ImageFolder + DataLoader": DataLoader(
            plain, BATCH_SIZE, shuffle=True, drop_last=True, num_workers=n_workers, persistent_workers=True
        ),
        "facetric from JPEG files": Feed(Files(paths), plain.targets, batches, crop, n_threads=n_workers),
        "facetric from the prepared cache": Feed(prepared, plain.targets, batches, crop, n_threads=n_workers),
    }
    speeds: dict[str, list[float]] = {name: [] for name in loaders}
    for _ in range(n_rounds):  # in turns, so that a busy moment of the machine hits all
        for name, loader in loaders.items():
            n_passes = 10 if "cache" in name else 1  # a pass from the cache is too short to time
            speeds[name].append(_images_per_second(itertools.chain.from_iterable(itertools.repeat(loader, n_passes))))
    medians = {name: float(np.median(values)) for name, values in speeds.items()}
    for name, values in speeds.items():
        print(f"{name:38} {medians[name]:8.0f} images/s   ({min(values):.0f} to {max(values):.0f} in {n_rounds} rounds)")
    baseline, files, cached = medians.values()
    print(f"files / ImageFolder: {files / baseline:.2f}x")
    print(f"cache / ImageFolder: {cached / baseline:.2f}x")


def _size(path: Path) -> tuple[int, int]:
    with Image.open(path) as image:
        return image.size


def _images_per_second(loader: Iterable[tuple[torch.Tensor, ...]]) -> float:
    """Over all batches but the first, which also pays for starting workers and compiling."""
    n_images, start = 0, 0.0
    for number, batch in enumerate(loader):
        if number == 0:
            start = time.perf_counter()
        else:
            n_images += len(batch[0])
    return n_images / (time.perf_counter() - start)


def _sample(n_images: int, folder: Path) -> Path:
    """A folder of class folders: links to an even sample of CUB, or generated pictures of the same size."""
    root = folder / "images"
    if home := os.environ.get("FACETRIC_DATA"):
        found = sorted((Path(home) / "CUB_200_2011" / "images").glob("*/*.jpg"))
        if not found:
            raise SystemExit(f"FACETRIC_DATA is {home}, which has no CUB_200_2011/images/*/*.jpg: point it there, or unset it")
        for path in found[:: max(1, len(found) // n_images)]:
            link = root / path.parent.name / path.name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path.resolve())
        print("real images: CUB-200-2011")
        return root
    rng = np.random.default_rng(0)
    for number in range(n_images):
        path = root / f"class{number % 100:03}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 256, (24, 32, 3), dtype=np.uint8))
        coarse.resize((500, 375), Image.Resampling.BICUBIC).save(path, quality=90)
    print("generated images")
    return root


if __name__ == "__main__":
    main()
