"""The cost of returning freed memory to the system: embedding and training with glibc's defaults, and with freed memory kept.

    python benchmarks/memory.py

Each in a process of its own, in turns. `facetric` keeps freed memory in all its commands (src/facetric/machine.py).
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

ROUNDS = 3


def measured() -> dict[str, float]:
    """Images per second and the process's peak, in this process."""
    import torch

    from facetric.embedder import build_network

    embedder = build_network("tf_efficientnet_lite0", freeze_through="blocks.4")
    images, activations = torch.randn(64, 3, 224, 224), torch.randn(128, 112, 14, 14)

    def embed() -> None:
        embedder.eval()
        with torch.inference_mode():
            embedder(images)

    def step() -> None:
        embedder.train()
        embedder.from_activations(activations).sum().backward()

    found = {"embedding, images/s": len(images) / _seconds(embed), "training step, images/s": len(activations) / _seconds(step)}
    return {**found, "peak, GiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}


def _seconds(work: Callable[[], None], repeats: int = 3) -> float:
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    """Run both in turns and print medians and ratios."""
    found: dict[str, list[dict[str, float]]] = {"given back": [], "kept": []}
    for _ in range(ROUNDS):
        for name, rows in found.items():
            output = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True, check=True).stdout
            rows.append(json.loads(output))
    for key in found["kept"][0]:
        given_back, kept = (statistics.median(row[key] for row in found[name]) for name in ("given back", "kept"))
        print(
            f"{key:26} freed memory given back {given_back:7.2f}   kept {kept:7.2f}   kept / given back: {kept / given_back:.2f}x"
        )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        if sys.argv[1] == "kept":
            from facetric.machine import keep_freed_memory

            keep_freed_memory()
        print(json.dumps(measured()))
    else:
        main()
