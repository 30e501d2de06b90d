"""A training step from the cached trunk, against the same step with modules one by one (facetric 0.1) and against the full
forward and backward; and the time in loss, sampler and logging.

    python benchmarks/train_step.py            # generated pictures
    FACETRIC_DATA=... python benchmarks/train_step.py   # the folder that holds CUB_200_2011

All steps train the same network with the same loss on batches of the same size, in turns. The cached step runs what comes
behind `freeze_through` on activations read from the disk, with convolution, batch normalization and activation in one pass
(`models/fused_training.py`) or one by one; the full step crops the pictures and runs everything. The cache is built in a
temporary folder, and the time to build it is printed: it is paid once.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from facetric.embedder import Network, build_network
from facetric.embedder.activations import Activations, cached_activations
from facetric.images import Arrays, Files, RandomCrop
from facetric.images.sources import prepare
from facetric.losses import ClassBalancedBatches, FacilityLocationLoss
from facetric.runs import OptimizerTable
from facetric.training.step import parameter_groups


def main() -> None:
    """Time the two steps side by side and print two figures."""
    parser = argparse.ArgumentParser(description="A step from the cached trunk against a full step.")
    parser.add_argument("--backbone", default="tf_efficientnet_lite0")
    parser.add_argument("--freeze-through", default="blocks.4")
    parser.add_argument("--batch", type=int, default=128, help="images per step")
    parser.add_argument("--images", type=int, default=256, help="images to draw batches from")
    parser.add_argument("--rounds", type=int, default=5, help="steps of each kind; the median counts")
    options = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(prefix="facetric-benchmark-") as temporary:
        folder = Path(temporary)
        os.environ["FACETRIC_CACHE"] = str(folder)
        images, labels = _sample(options.images)
        weights = None if options.backbone == "tf_efficientnet_lite0" else "none"
        frozen, one_by_one, whole = (
            build_network(options.backbone, weights=weights, freeze_through=through)
            for through in (options.freeze_through, options.freeze_through, None)
        )
        one_by_one._trained = (one_by_one.backbone,)
        print(f"{options.backbone} at {whole.preprocessing.crop} px, batches of {options.batch}, cut at {options.freeze_through}")
        print(f"{torch.get_num_threads()} threads on {os.cpu_count()} cores; torch {torch.__version__}")
        start = time.perf_counter()
        cache = cached_activations(frozen, Arrays(images), n_views=2)
        seconds = time.perf_counter() - start
        n_crops = 2 * len(images)
        print(f"trunk: {n_crops / seconds:.0f} crops/s, {cache.values[0].nbytes / 2e3:.0f} kB a crop")

        crop = RandomCrop(whole.preprocessing)
        batches = ClassBalancedBatches(labels, batch_size=options.batch, class_ratio=0.25)
        rng = np.random.default_rng(0)
        with (folder / "metrics.jsonl").open("w") as log:
            steps = {
                "full forward and backward": _Step(
                    whole, lambda ids: torch.from_numpy(crop(images[ids], rng)), batches, labels, log
                ),
                "cached, one by one": _Step(one_by_one, lambda ids: _cached(cache, ids, rng), batches, labels, log),
                "cached trunk": _Step(frozen, lambda ids: _cached(cache, ids, rng), batches, labels, log),
            }
            for number in range(options.rounds + 1):  # in turns, so that a busy moment of the machine hits both
                for step in steps.values():
                    step.run(number)
    medians = {name: float(np.median(step.totals[1:])) for name, step in steps.items()}  # the first one compiles
    for name, step in steps.items():
        parts = ", ".join(f"{part} {100 * spent / sum(step.spent.values()):.1f}%" for part, spent in step.spent.items())
        print(f"{name:26} {medians[name]:7.3f} s a step, {options.batch / medians[name]:6.0f} images/s   ({parts})")
    cached = steps["cached trunk"]
    overhead = sum(cached.spent[part] for part in ("sampler", "loss", "logging")) / sum(cached.spent.values())
    print(f"loss, sampler and logging: {100 * overhead:.1f}% of the cached step")
    print(f"one by one / cached: {medians['cached, one by one'] / medians['cached trunk']:.2f}x")
    print(f"full / cached: {medians['full forward and backward'] / medians['cached trunk']:.2f}x")


def _cached(cache: Activations, rows: NDArray[np.int64], rng: np.random.Generator) -> Tensor:
    """A random view of each."""
    return torch.from_numpy(cache.inputs(rows, draws=rng.random((len(rows), 1))))


class _Step:
    """Sampler → input → network → loss → backward → optimizer → a row in the log, with the time that each takes."""

    def __init__(
        self,
        embedder: Network,
        inputs: Callable[[NDArray[np.int64]], Tensor],
        batches: ClassBalancedBatches,
        labels: NDArray[np.int64],
        log: TextIO,
    ) -> None:
        self.embedder, self.inputs, self.batches, self.labels, self.log = embedder.train(), inputs, batches, labels, log
        self.network = embedder if embedder.freeze_through is None else embedder.from_activations
        self.loss = FacilityLocationLoss(margin_weight=1.0)
        self.optimizer = torch.optim.RMSprop(parameter_groups(embedder, OptimizerTable(weight_decay=1e-4)))
        self.totals: list[float] = []
        self.spent: Counter[str] = Counter()  # seconds by part, without the first step

    def run(self, number: int) -> None:
        """Batch `number`."""
        times = [time.perf_counter()]
        image_ids = self.batches.global_batch(number)
        times.append(time.perf_counter())
        inputs = self.inputs(image_ids)
        times.append(time.perf_counter())
        embeddings = self.network(inputs)
        times.append(time.perf_counter())
        leaf = embeddings.detach().requires_grad_()  # the loss's own backward, apart from the network's
        value = self.loss(leaf, torch.from_numpy(self.labels[image_ids]))
        value.backward()
        times.append(time.perf_counter())
        self.optimizer.zero_grad()
        embeddings.backward(leaf.grad)
        times.append(time.perf_counter())
        self.optimizer.step()
        times.append(time.perf_counter())
        self.log.write(json.dumps({"step": number, "loss": value.item()}) + "\n")
        self.log.flush()
        times.append(time.perf_counter())
        self.totals.append(times[-1] - times[0])
        if number > 0:
            parts = ("sampler", "input", "forward", "loss", "backward", "optimizer", "logging")
            self.spent.update(dict(zip(parts, np.diff(times).tolist(), strict=True)))


def _sample(n_images: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pictures (n, 256, 256, 3) with eight or so to a class: an even sample of CUB's training half, or generated ones."""
    n_classes = max(2, n_images // 8)
    if home := os.environ.get("FACETRIC_DATA"):
        folders = sorted((Path(home) / "CUB_200_2011" / "images").glob("*"))[:100][:n_classes]
        if not folders:
            raise SystemExit(f"FACETRIC_DATA is {home}, which has no CUB_200_2011/images: point it there, or unset it")
        found = [(path, label) for label, species in enumerate(folders) for path in sorted(species.glob("*.jpg"))[:8]]
        print("real images: CUB-200-2011")
        prepared = prepare(Files(path for path, _ in found))
        return prepared.pixels[prepared.rows], np.array([label for _, label in found])
    print("generated images")
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (n_images, 256, 256, 3), dtype=np.uint8), np.arange(n_images) % n_classes


if __name__ == "__main__":
    main()
