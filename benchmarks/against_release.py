"""This checkout against another one, an earlier release: the same small program in both trees, and the ratios of its times.

    python benchmarks/against_release.py OTHER_TREE [--rounds 7] [--only facility]

The trees take turns, a fresh process each time, with one thread each; a process reports the least processor time of a few
repetitions, which a busy machine changes less than the time of day. A ratio is the median over the rounds of (this tree /
other tree): below 1 this one is faster. Kernels are compiled anew: numba's cache knows a change of a kernel's own file, not of
those whose kernels it has inlined, and a tree that was at other commits before may time those.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = """
import json, sys, time
import numpy as np
import torch
from facetric import ClusteringProblem, solve
from facetric.clustering import AverageLinkage, FacilityLocation
from facetric.evaluation import evaluate
from facetric.losses import FacilityLocationLoss, SubsampledLoss
from facetric.metrics import retrieval

torch.set_num_threads(1)
rng = np.random.default_rng(0)

def vectors(n, n_classes, d=64):
    labels = np.arange(n) % n_classes
    rows = 0.6 * rng.normal(size=(n_classes, d))[labels] + rng.normal(size=(n, d))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32), labels

def step(loss, rows, labels):
    def run():
        points = torch.from_numpy(rows).requires_grad_()
        loss(points, torch.from_numpy(labels)).backward()
    return run

batch, large = vectors(128, 32), vectors(512, 128)
points, classes = vectors(4000, 200)
few, own = vectors(2000, 100)
problem = ClusteringProblem.from_points(batch[0].astype(np.float64), batch[1], margin_weight=64.0)
WORK = {
    "loss, 128 images": (step(FacilityLocationLoss(), *batch), 40),
    "loss, 512 images": (step(FacilityLocationLoss(), *large), 5),
    "subsampled loss": (step(SubsampledLoss(), *batch), 20),
    "solver, 128 images": (lambda: solve(problem), 40),
    "solver, local search": (lambda: solve(problem, refine="local_search"), 20),
    "FacilityLocation, k = 200, means": (lambda: FacilityLocation(200).fit(points), 2),
    "FacilityLocation, k = 200, medoids": (lambda: FacilityLocation(200, centers="medoids").fit(points), 2),
    "FacilityLocation, opening cost": (lambda: FacilityLocation(opening_cost=1.1).fit(points), 2),
    "AverageLinkage": (lambda: AverageLinkage(1.2).fit(points), 3),
    "evaluate": (lambda: evaluate(few, own, n_restarts=1), 3),
    "evaluate, retrieval only": (lambda: evaluate(points, classes, clustering=False), 3),
    "retrieval": (lambda: retrieval(points, classes), 3),
}
found = {}
for name, (work, n_times) in WORK.items():
    if sys.argv[1] not in name:
        continue
    work()
    times = []
    for _ in range(n_times):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    found[name] = min(times)
print(json.dumps(found))
"""


def measured(tree: Path, only: str, cache: str) -> dict[str, float]:
    """Seconds of each piece of work in a fresh process of this tree."""
    threads = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    settings = {**os.environ, **threads, "PYTHONPATH": str(tree / "src"), "NUMBA_CACHE_DIR": cache}
    command = [sys.executable, "-c", PROGRAM, only]
    done = subprocess.run(command, env=settings, stdout=subprocess.PIPE, text=True, check=True, cwd=tree)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="the checkout to compare with")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="a part of the names to measure")
    options = parser.parse_args()
    trees = Path(__file__).resolve().parents[1], options.other.resolve()
    rounds = []
    with tempfile.TemporaryDirectory() as cache:  # numba has a folder for each tree in it
        for tree in trees:
            measured(tree, options.only, cache)  # compiles
        for i in range(options.rounds):
            order = trees if i % 2 == 0 else trees[::-1]
            found = {tree: measured(tree, options.only, cache) for tree in order}
            rounds.append([found[tree] for tree in trees])
    print(f"{'':<38}{'this, ms':>10}{'other, ms':>11}{'ratio':>8}{'from':>7}{'to':>6}")
    for name in rounds[0][0]:
        ours, theirs = ([1000 * one[which][name] for one in rounds] for which in (0, 1))
        ratios = sorted(a / b for a, b in zip(ours, theirs, strict=True))
        middle = statistics.median(ratios)
        both = f"{statistics.median(ours):>10.2f}{statistics.median(theirs):>11.2f}"
        print(f"{name:<38}{both}{middle:>8.3f}{ratios[0]:>7.2f}{ratios[-1]:>6.2f}")


if __name__ == "__main__":
    main()
