"""Engines that turn pictures into vectors: torch, torch with fused convolutions, torch in bfloat16, onnxruntime.

    FACETRIC_DATA=... python benchmarks/engines.py [--backbones resnet18 ...] [--images 500] [--rounds 3] [--memory] [--scores]

For every backbone: the largest distance of an exported file's vectors from torch's, in batches of 1 and of 32; images a second of
each engine, from uint8 pictures to vectors, in turns, the median of the rounds; with --memory the most memory that a process
took; with --scores Recall@1 of the CUB test half by each engine (the packaged network only: the others have random weights).
"torch" is the network in eval mode in batches of 32, all threads on one. bfloat16 is emulated where the processor has none.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from facetric.machine import prepare_process

prepare_process()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from facetric.embedder import Network, OnnxNetwork, build_network, encode, read_network  # noqa: E402
from facetric.embedder.onnx_export import Source, write_export  # noqa: E402
from facetric.embedder.samples import sample_pictures  # noqa: E402
from facetric.images import Arrays  # noqa: E402
from facetric.images.decoding import open_image  # noqa: E402
from facetric.metrics import recall_at_k  # noqa: E402

BACKBONES = ("tf_efficientnet_lite0", "resnet18", "convnext_atto", "vit_tiny_patch16_224")
ENGINES = ("torch", "torch, fused", "onnxruntime")
ALONE = """
import sys
import numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
for picture in numpy.random.default_rng(0).integers(0, 256, (64, 1, 256, 256, 3), dtype=numpy.uint8):
    session.run(None, {"pictures": picture})
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""
Vectors = NDArray[np.float32]
Pixels = Sequence[NDArray[np.uint8]]


def source_of(backbone: str) -> Source:
    packaged = "lite" in backbone
    embedder = build_network(backbone, dim=None, weights="packaged" if packaged else "none").eval()
    return Source(embedder, "benchmark")


def plain(embedder: Network, pixels: Pixels) -> Vectors:
    batches = (np.stack(pixels[start : start + 32]) for start in range(0, len(pixels), 32))
    with torch.inference_mode():
        return np.concatenate([embedder(torch.from_numpy(embedder.crop(batch))).numpy() for batch in batches])


def engine(name: str, source: Source, file: Path) -> Callable[[Pixels], Vectors]:
    if name == "onnxruntime":
        network = read_network(file)
        return lambda pixels: encode(network, Arrays(np.stack(pixels)), batch_size=1)
    if name == "torch":
        return lambda pixels: plain(source.network, pixels)
    embedder = source.network.for_inference()
    return lambda pixels: encode(embedder, Arrays(np.stack(pixels)))


def farthest(network: OnnxNetwork, expected: Vectors, pixels: Pixels, size: int) -> float:
    found = encode(network, Arrays(np.stack(pixels)), batch_size=size)
    return float(np.linalg.norm(found - expected, axis=1).max())


def most_memory(backbone: str, name: str, file: Path) -> float:
    """Megabytes of a process that does nothing else. On Linux; getrusage would count its parent's memory too."""
    command = [sys.executable, __file__, "--child", name, str(file), "--backbones", backbone]
    if name == "alone":
        command = [sys.executable, "-c", ALONE, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1]) / 1024


def child(backbone: str, name: str, file: Path) -> None:
    pixels = [np.asarray(picture.resize((256, 256))) for picture in sample_pictures(64)]
    engine(name, source_of(backbone), file)(pixels)
    print(next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")).split()[1])


def opened(paths: Sequence[Path], embedder: Network) -> list[NDArray[np.uint8]]:
    return [embedder.preprocessing.pixels(open_image(path)) for path in paths]


def measure(backbone: str, paths: Sequence[Path], options: argparse.Namespace, file: Path) -> None:
    source = source_of(backbone)
    pixels = opened(paths, source.network)
    start = time.perf_counter()
    made = write_export(source, file, [open_image(path) for path in paths[:8]], overwrite=True, made_by="a benchmark")
    seconds = time.perf_counter() - start
    expected = engine("torch, fused", source, file)(pixels)
    network = read_network(file)
    apart = {size: farthest(network, expected, pixels, size) for size in (1, 32)}
    print(f"\n{backbone}: {made.n_bytes / 1e6:.0f} MB, exported and checked in {seconds:.0f} s; {len(pixels)} photos of CUB")
    print(f"largest distance to torch: {apart[1]:.1e} in batches of 1, {apart[32]:.1e} in batches of 32", flush=True)
    if not options.rounds:
        return
    names = [name for name in ENGINES if name in options.engines]
    engines = {name: engine(name, source, file) for name in names}
    timed = pixels[: options.timed]
    times: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        engines[name](pixels[:8])
    for _ in range(options.rounds):
        for name in names:
            start = time.perf_counter()
            engines[name](timed)
            times[name].append(time.perf_counter() - start)
    for name in names:
        ratio = np.median(times[names[0]]) / np.median(times[name])
        memory = f"  {most_memory(backbone, name, file):5.0f} MB" if options.memory else ""
        print(f"  {name:14} {len(timed) / np.median(times[name]):7.1f} images/s  {ratio:5.2f}x{memory}", flush=True)
    if options.memory:
        print(f"  onnxruntime in a program without torch and facetric: {most_memory(backbone, 'alone', file):.0f} MB", flush=True)


def scores(options: argparse.Namespace, folders: Sequence[Path], file: Path) -> None:
    """Recall@1 of the CUB test half."""
    test = [path for folder in folders[100:] for path in sorted(folder.glob("*.jpg"))][:: options.every]
    labels = np.unique([path.parent.name for path in test], return_inverse=True)[1]
    source = source_of(BACKBONES[0])
    write_export(source, file, sample_pictures(4), overwrite=True, made_by="a benchmark")
    engines = {name: engine(name, source, file) for name in ENGINES if name in options.engines}
    found: dict[str, list[Vectors]] = {name: [] for name in engines}
    for start in range(0, len(test), 256):
        pixels = opened(test[start : start + 256], source.network)
        for name, run in engines.items():
            found[name].append(run(pixels))
    print(f"\nCUB test half, {len(test)} photos, {BACKBONES[0]}, pooled features")
    for name, parts in found.items():
        print(f"  {name:14} Recall@1 {100 * recall_at_k(np.concatenate(parts), labels, ks=(1,))[1]:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Engines that turn pictures into vectors.")
    parser.add_argument("--backbones", nargs="+", default=BACKBONES)
    parser.add_argument("--engines", nargs="+", default=ENGINES)
    parser.add_argument("--images", type=int, default=500, help="to compare the vectors of")
    parser.add_argument("--timed", type=int, default=128, help="of them, to time")
    parser.add_argument("--rounds", type=int, default=3, help="0 compares the vectors only")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--scores", action="store_true", help="only Recall@1 of the CUB test half")
    parser.add_argument("--every", type=int, default=1, help="with --scores: take every n-th photo only")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.backbones[0], options.child[0], Path(options.child[1]))
        return
    if "FACETRIC_DATA" not in os.environ:
        raise SystemExit("set FACETRIC_DATA to the folder that holds CUB_200_2011")
    folders = sorted((Path(os.environ["FACETRIC_DATA"]) / "CUB_200_2011" / "images").glob("*"))
    paths = [path for folder in folders for path in sorted(folder.glob("*.jpg"))]
    chosen = paths[:: max(1, len(paths) // options.images)][: options.images]
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}")
    with tempfile.TemporaryDirectory(prefix="facetric-benchmark-") as folder:
        if options.scores:
            scores(options, folders, Path(folder) / "model.onnx")
        else:
            for backbone in options.backbones:
                measure(backbone, chosen, options, Path(folder) / "model.onnx")


if __name__ == "__main__":
    main()
