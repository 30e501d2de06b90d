"""Photos from files to vectors: plain PyTorch, facetric's torch engine and onnxruntime; with --against, another version as well.

    FACETRIC_DATA=... python benchmarks/engines.py [--backbones resnet18 ...] [--images 200] [--rounds 9] [--megapixels 12]
    FACETRIC_DATA=... python benchmarks/engines.py --against SRC_OF_0.2

The plain way is what most programs do: the network in eval mode, batches of 64, all threads on one batch, decoding in two threads
beside it. Each contender is a process of its own that embeds the same photos in short rounds, in turns: ratios are those of
medians, and memory is the peak of the process, an import of torch included. Photos come from FACETRIC_DATA, the folder that holds
CUB_200_2011; --megapixels makes larger ones of them first, as a phone would. --against takes the folder `src` of facetric 0.2 and
needs the default backbone; networks that no package has get random weights. --backbones all: every named network.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from facetric.machine import prepare_process

prepare_process()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from PIL import Image  # noqa: E402

PACKAGED = "tf_efficientnet_lite0"
PLAIN, TORCH, ONNX = "plain PyTorch", "torch", "onnxruntime"
OLD = {"0.2, torch": "torch", "0.2, onnxruntime": "onnx"}
Encode = Callable[[list[Path]], Any]


def plain(network: Any, paths: list[Path]) -> Any:
    """Batches of 64, all threads on one batch, whole files decoded."""
    from facetric.images import open_image
    from facetric.machine import made_ahead

    def batch(part: list[Path]) -> torch.Tensor:
        pixels = np.stack([network.preprocessing.pixels(open_image(path)) for path in part])
        return torch.from_numpy(network.crop(pixels)).contiguous()

    tasks = (partial(batch, paths[first : first + 64]) for first in range(0, len(paths), 64))
    with torch.inference_mode():
        found = [
            network.backbone.forward_head(network.backbone.forward_features(x), pre_logits=True) for x in made_ahead(tasks, 2)
        ]
        return torch.nn.functional.normalize(torch.cat(found), dim=1).numpy()


def contender(name: str, backbone: str) -> Encode:
    """What embeds photos."""
    import facetric

    if name in OLD:
        model: Any = facetric.load(engine=OLD[name])  # type: ignore[call-arg]
        return model.embed
    from facetric.embedder import Embedder, build_network, encode, named_network
    from facetric.images import Files

    row = named_network(backbone)
    network = build_network(backbone, dim=None, weights="packaged" if row and row.package else "none").eval()
    if name == PLAIN:
        return partial(plain, network)
    if name == TORCH:
        network = network.for_inference()
        return lambda paths: encode(network, Files(paths))
    embedder = Embedder(network)
    start = time.perf_counter()
    embedder.prepare(10**6)
    print(f"exported and checked in {time.perf_counter() - start:.1f} s", file=sys.stderr)
    return embedder.encode


def work(name: str, backbone: str, folder: Path) -> None:
    """Embed the photos that are listed in the folder at every line of stdin; the vectors are left there."""
    paths = [Path(line) for line in (folder / "photos.txt").read_text().splitlines()]
    run = contender(name, backbone)
    run(paths[:16])
    for _ in sys.stdin:
        start = time.perf_counter()
        vectors = run(paths)
        print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, flush=True)
        np.save(folder / f"{name}.npy", vectors)


def started(name: str, backbone: str, folder: Path, source: Path | None) -> subprocess.Popen[str]:
    environment = {**os.environ, "FACETRIC_CACHE": str(folder / "cache")}
    if source is not None:
        environment["PYTHONPATH"] = str(source)
    command = [sys.executable, __file__, "--worker", name, backbone, str(folder)]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def measure(backbone: str, paths: Sequence[Path], options: argparse.Namespace, folder: Path) -> None:
    (folder / "photos.txt").write_text("\n".join(map(str, paths)))
    sources: dict[str, Path | None] = {PLAIN: None, TORCH: None, ONNX: None}
    if options.against is not None:
        sources |= dict.fromkeys(OLD, options.against)
    workers = {name: started(name, backbone, folder, source) for name, source in sources.items()}
    times: dict[str, list[float]] = {name: [] for name in workers}
    memory: dict[str, float] = {}
    for number in range(options.rounds + 1):
        for name, worker in workers.items():
            assert worker.stdin is not None
            assert worker.stdout is not None
            worker.stdin.write("again\n")
            worker.stdin.flush()
            seconds, memory[name] = map(float, worker.stdout.readline().split())
            times[name] += [seconds] if number else []  # the first round waits for the process to be ready
    for worker in workers.values():
        worker.communicate()
    medians = {name: float(np.median(seconds)) for name, seconds in times.items()}
    expected = np.load(folder / f"{TORCH}.npy")
    print(f"\n{backbone}, {len(paths)} photos, {options.rounds} rounds")
    for name, seconds in medians.items():
        apart = np.linalg.norm(np.load(folder / f"{name}.npy") - expected, axis=1).max()
        rate, ratio = len(paths) / seconds, medians[PLAIN] / seconds
        print(
            f"  {name:17} {rate:6.1f} images/s  {ratio:5.2f}x plain PyTorch, {apart:.1e} from torch, {memory[name]:5.0f} MB",
            flush=True,
        )
    if options.against is not None:
        ratio = min(medians[name] for name in OLD) / medians[ONNX]
        print(f"  this version against the faster engine of 0.2: {ratio:.2f}x", flush=True)


def enlarged(paths: Sequence[Path], megapixels: float, folder: Path) -> list[Path]:
    """The photos at so many megapixels, with noise as of a sensor, as JPEG of quality 88."""
    side, rng, made = round((megapixels * 1e6) ** 0.5), np.random.default_rng(0), []
    for number, path in enumerate(paths):
        picture = np.asarray(Image.open(path).convert("RGB").resize((side, side), Image.Resampling.BICUBIC), dtype=np.float32)
        noisy = picture + 4 * rng.standard_normal(picture.shape, dtype=np.float32)
        made.append(folder / f"{number}.jpg")
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(made[-1], quality=88)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description="Photos from files to vectors, engine by engine.")
    parser.add_argument("--backbones", nargs="+", default=[PACKAGED])
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--megapixels", type=float, help="enlarge the photos to this many first")
    parser.add_argument("--against", type=Path, help="the folder src of facetric 0.2")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker[0], options.worker[1], Path(options.worker[2]))
        return
    if "FACETRIC_DATA" not in os.environ:
        raise SystemExit("set FACETRIC_DATA to the folder that holds CUB_200_2011")
    photos = sorted((Path(os.environ["FACETRIC_DATA"]) / "CUB_200_2011" / "images").glob("*/*.jpg"))
    chosen = photos[:: max(1, len(photos) // options.images)][: options.images]
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}")
    with tempfile.TemporaryDirectory(prefix="facetric-benchmark-") as temporary:
        if options.megapixels:
            chosen = enlarged(chosen, options.megapixels, Path(temporary))
        from facetric.embedder import NETWORKS

        for backbone in NETWORKS if options.backbones == ["all"] else options.backbones:
            measure(backbone, chosen, options, Path(temporary))


if __name__ == "__main__":
    main()
