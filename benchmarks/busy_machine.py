"""A training step on a shared machine: idle, and next to 1, 2 and 4 busy processes.

    python benchmarks/busy_machine.py

The step is that of `facetric demo` (glyphnet, batches of 128, 16 subsets), in a process of its own, prepared as every command
prepares itself (facetric.machine.prepare_process), and beside it with OpenMP's defaults. A fair scheduler gives a step on n cores
beside b busy processes (n + b) / n of its idle time: the bound printed is 1.3 times that.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

SETTINGS = ("prepared", "OpenMP's defaults")
BUSY = (0, 1, 2, 4)


def step_seconds(n_steps: int) -> float:
    """The median of n_steps, after a few for warming up."""
    import torch

    from facetric.embedder import build_network
    from facetric.losses import FacilityLocationLoss, SubsampledLoss

    embedder = build_network("glyphnet", weights="none")
    loss = SubsampledLoss(FacilityLocationLoss(64.0), 16)
    optimizer = torch.optim.AdamW(embedder.parameters(), lr=1e-3)
    images, labels = torch.randn(128, 1, 32, 32), torch.arange(128) % 32
    times = []
    for _ in range(n_steps + 3):
        start = time.perf_counter()
        optimizer.zero_grad()
        loss(embedder(images), labels).backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    return statistics.median(times[3:])


def measured(setting: str, n_busy: int, n_steps: int) -> float:
    """The step time in a fresh process, next to `n_busy` busy processes."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_", "NUMBA_NUM"))
    }
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n_busy)]
    try:
        command = [sys.executable, __file__, "--child", setting, "--steps", str(n_steps)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    finally:
        for other in others:
            other.kill()
            other.wait()
    return float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--child", choices=SETTINGS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        if options.child == "prepared":
            from facetric.machine import prepare_process

            prepare_process()
        print(step_seconds(options.steps))
        return
    from facetric.machine import available_cores

    n_cores = available_cores()
    print(f"{n_cores} cores, load {os.getloadavg()[0]:.1f} before; milliseconds a step, and times the idle one")
    print(f"{'busy':>4}  {'bound':>6}" + "".join(f"  {name:>24}" for name in SETTINGS))
    idle: dict[str, float] = {}
    for n_busy in BUSY:
        cells = []
        for name in SETTINGS:
            n_steps = options.steps if name == "prepared" or n_busy == 0 else max(5, options.steps // 4)
            seconds = measured(name, n_busy, n_steps)
            idle.setdefault(name, seconds)
            cells.append(f"{1e3 * seconds:10.0f} ms {seconds / idle[name]:8.2f}x")
        print(f"{n_busy:>4}  {1.3 * (1 + n_busy / n_cores):>5.2f}x" + "".join(f"  {cell:>24}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
