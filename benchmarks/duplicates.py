"""Copies of photos: how many are found, and how many distinct photos are taken for copies.

python benchmarks/duplicates.py path/to/CUB_200_2011/images [--photos 2000] [--sample 500] [--look-alikes] [--scale 100000]

Every sampled photo is copied in several ways, and each copy is compared with its original: by the hash and the alignment of
`facetric duplicates`, and with --look-alikes by the packaged network. False alarms are links among the photos themselves; those
of a dataset that holds copies are worth looking at. --scale times the comparison of that many sketches, which are those of the
photos with noise.
"""

import argparse
import io
import time
from pathlib import Path

import numpy as np
from PIL import Image

from facetric.machine import prepare_process

prepare_process()

from facetric.images import list_images, open_image  # noqa: E402
from facetric.photos.duplicates import N_SAMPLE, altered, look_alike_groups, similarity_of_copies  # noqa: E402
from facetric.photos.ingest import drawn, read_looks  # noqa: E402
from facetric.photos.near import near_groups, sketches  # noqa: E402


def compressed(image, quality):
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return Image.open(buffer).convert("RGB")


def cropped(image, left, top, right, bottom):
    width, height = image.size
    return image.crop((round(left * width), round(top * height), round((1 - right) * width), round((1 - bottom) * height)))


def resized(image, fraction):
    return image.resize((round(fraction * image.width), round(fraction * image.height)), Image.Resampling.LANCZOS)


COPIES = {
    "half the size": lambda image: resized(image, 0.5),
    "a quarter of the size": lambda image: resized(image, 0.25),
    "JPEG quality 50": lambda image: compressed(image, 50),
    "JPEG quality 20": lambda image: compressed(image, 20),
    "2% of width and height cropped": lambda image: cropped(image, 0.01, 0.01, 0.01, 0.01),
    "5% of width and height cropped": lambda image: cropped(image, 0.025, 0.025, 0.025, 0.025),
    "5% cropped on one side": lambda image: cropped(image, 0.05, 0, 0, 0),
    "5% cropped at a corner": lambda image: cropped(image, 0.05, 0.05, 0, 0),
    "5% cropped on every side": lambda image: cropped(image, 0.05, 0.05, 0.05, 0.05),
    "3% cropped, half the size, JPEG quality 50": lambda image: compressed(resized(cropped(image, 0, 0.03, 0.02, 0), 0.5), 50),
    "not a copy: mirrored": lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--photos", type=int, default=2000)
    parser.add_argument("--sample", type=int, default=500)
    parser.add_argument("--look-alikes", action="store_true")
    parser.add_argument("--scale", type=int, default=0)
    options = parser.parse_args()
    listed = list_images(options.folder)
    rng = np.random.default_rng(0)
    chosen = np.sort(rng.choice(len(listed.images), min(options.photos, len(listed.images)), replace=False))
    start = time.perf_counter()
    looks, _ = read_looks([listed.root / listed.images[i] for i in chosen], None)
    paths = [path for path, *_ in looks]
    read = time.perf_counter() - start
    grays, colors = sketches([look for *_, look in looks])
    near_groups(grays[:2], colors[:2])  # compiled
    start = time.perf_counter()
    groups = near_groups(grays, colors)
    compared = time.perf_counter() - start
    n = len(paths)
    print(f"{n:,} photos: read in {read:.1f} s, {n * (n - 1) // 2:,} pairs compared in {compared:.1f} s")
    print("linked among themselves:")
    for i in np.flatnonzero(groups != np.arange(n)):
        print(f"  {paths[i]}  {paths[groups[i]]}")
    sample = rng.choice(n, min(options.sample, n), replace=False)
    pictures = [open_image(paths[i]) for i in sample]
    print(f"found of {len(sample)} copies each:")
    for name, copy in COPIES.items():
        n_found = 0
        for i, picture in zip(sample, pictures, strict=True):
            gray, color = drawn(copy(picture))
            n_found += near_groups(np.stack([grays[i], gray]), np.stack([colors[i], color]))[1] == 0
        print(f"  {100 * n_found / len(sample):6.2f}%  {name}")
    if options.look_alikes:
        look_alikes(paths, sample, pictures)
    if options.scale:
        scale(grays, colors, options.scale, rng)


def look_alikes(paths, sample, pictures):
    from facetric.embedder import load

    model = load()
    vectors = model.encode(paths)
    some = np.unique(np.linspace(0, len(paths) - 1, N_SAMPLE).astype(int))
    at_least = model.preprocessing.at_least
    threshold = similarity_of_copies(
        model.encode([altered(open_image(paths[i], at_least=at_least)) for i in some]), vectors[some]
    )
    groups = look_alike_groups(vectors, threshold)
    linked = np.flatnonzero(groups != np.arange(len(groups)))
    largest = np.bincount(groups).max()
    print(f"look-alikes, similarity {threshold:.3f}: {len(linked)} of {len(paths):,} photos linked, at most {largest} together:")
    for i in linked[:20]:
        print(f"  {paths[i]}  {paths[groups[i]]}")
    for name, copy in {"altered": altered, **COPIES}.items():
        copies = model.encode([copy(picture) for picture in pictures])
        found = ((copies * vectors[sample]).sum(axis=1) >= threshold).mean()
        print(f"  {100 * found:6.2f}%  {name}")


def scale(grays, colors, n, rng):
    rows = rng.integers(0, len(grays), n)
    noise = np.repeat(np.repeat(rng.integers(-40, 41, (n, 8, 8), dtype=np.int16), 4, axis=1), 4, axis=2)
    start = time.perf_counter()
    groups = near_groups(np.clip(grays[rows] + noise, 0, 255).astype(np.uint8), colors[rows])
    linked = (groups != np.arange(n)).sum()
    print(f"{n:,} sketches compared in {time.perf_counter() - start:.0f} s, {linked:,} linked")


if __name__ == "__main__":
    main()
