"""The paper's failure mode (its two illustrations) as an experiment: can a loss bring a class together that others split?

    python benchmarks/failure_mode.py [--quick] [--folder docs/pictures]

Points in the plane are moved directly by the gradient of a loss, all points in every step, without normalization. In the layout
"one" a class lies in two groups with two other classes between them, as in the paper; in "four" and "eight" every one of 4 or 8
classes lies in two groups, and the groups are scattered at random. Every start is another random draw.

Fair settings: each loss has one parameter of its own (the margin α of triplet and lifted structure, λ of N-pairs, γ of the
facility-location loss). For every layout and optimizer (gradient descent; Adam), each loss takes the best of the same number of
pairs (learning rate, own parameter), found on starts that are not counted. The learning rate falls linearly to zero. The grids
were widened once, by a decade toward the best value where a first run had it at the edge; the starts counted since are new.

A start is a success when k-means with the true number of clusters (the best of 21 runs) recovers the classes exactly: NMI = 1.
A clustering by medoids (max F, without margin) is reported beside it. Results go to failure_mode.json, the tracks of the first
counted start to failure_mode.npz; docs/failure_mode.py draws them.
"""

import argparse
import itertools
import json
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from facetric.losses import FacilityLocationLoss, LiftedStructureLoss, NPairsLoss, TripletSemihardLoss
from facetric.losses.solver import ClusteringProblem, solve
from facetric.metrics import nmi

LAYOUTS = ("one", "four", "eight")
N_STEPS, N_FRAMES = 200, 51
FIRST_SEED, FIRST_TUNING_SEED = 100, 1_000_000
LEARNING_RATES = {"gradient descent": (0.3, 1.0, 3.0, 10.0), "Adam": (0.1, 0.3, 1.0)}
LOSSES = {  # name: the loss by its own parameter, the values tried
    "triplet (semi-hard)": (lambda margin: TripletSemihardLoss(margin, normalize=False), (1.0, 10.0, 100.0)),
    "lifted structure": (lambda margin: LiftedStructureLoss(margin, normalize=False), (1.0, 10.0, 100.0)),
    "N-pairs": (lambda norm_weight: NPairsLoss(norm_weight, normalize=False), (0.0002, 0.002, 0.02)),
    "facility location": (lambda gamma: FacilityLocationLoss(gamma, normalize=False, reduction="mean"), (10.0, 100.0, 1000.0)),
}


def frames_kept():
    """The steps after which the points are kept for the pictures, the start and the end among them."""
    return np.linspace(0, N_STEPS, N_FRAMES).round().astype(int)


def start_of(layout, seed):
    """Points (m, 2) and labels (m,) of one random start."""
    rng = np.random.default_rng([LAYOUTS.index(layout), seed])
    if layout == "one":
        centers = np.array([[-3.0, 0.0], [3.0, 0.0], [0.0, 0.9], [0.0, -0.9]]) + rng.normal(0, 0.3, (4, 2))
        classes, sizes = np.array([0, 0, 1, 2]), [5, 5, 10, 10]
    else:
        n_classes = 4 if layout == "four" else 8
        classes, sizes = np.tile(np.arange(n_classes), 2), [4] * (2 * n_classes)
        centers = scattered(rng, 2 * n_classes)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    points = centers[groups] + rng.normal(0, 0.3, (len(groups), 2))
    angle = rng.uniform(0, 2 * np.pi)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return ((points - points.mean(axis=0)) @ turn).astype(np.float32), classes[groups]


def scattered(rng, n):
    """n centers (n, 2) in a disc whose area grows with n, none nearer than 1.5 to another."""
    centers = []
    while len(centers) < n:
        candidate = rng.uniform(-1, 1, 2) * 1.3 * np.sqrt(n)
        if np.hypot(*candidate) < 1.3 * np.sqrt(n) and all(np.hypot(*(candidate - other)) > 1.5 for other in centers):
            centers.append(candidate)
    return np.array(centers)


def move(loss_name, parameter, optimizer_name, learning_rate, layout, seed, frames=()):
    """The points after all steps, and at the steps in `frames`; None when they flew apart."""
    points, labels = start_of(layout, seed)
    loss = LOSSES[loss_name][0](parameter)
    x, y = torch.tensor(points, requires_grad=True), torch.as_tensor(labels)
    kind = torch.optim.Adam if optimizer_name == "Adam" else torch.optim.SGD
    optimizer = kind([x], learning_rate)
    kept = []
    for step in range(N_STEPS):
        if step in frames:
            kept.append(x.detach().numpy().copy())
        optimizer.param_groups[0]["lr"] = learning_rate * (1 - step / N_STEPS)
        optimizer.zero_grad()
        loss(x, y).backward()
        optimizer.step()
        if not bool(torch.isfinite(x).all()) or float(x.detach().abs().max()) > 1e6:
            return None, kept
    return x.detach().numpy(), [*kept, x.detach().numpy()]


def nmi_by_kmeans(points, labels):
    """NMI of the classes with k-means: the run with the least inertia of 20 from k-means++ and one from the medoids.

    Random starts of k-means often miss perfect clusters when there are eight: that would be its failure, not the loss's.
    """
    n_clusters = len(np.unique(labels))
    centered = (points - points.mean(axis=0)).astype(np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a class collapsed to one point has duplicates: fine
        runs = [
            KMeans(n_clusters, n_init=20, random_state=0).fit(centered),
            KMeans(n_clusters, init=centered[medoids_of(points, labels).medoids], n_init=1).fit(centered),
        ]
    return nmi(labels, min(runs, key=lambda run: run.inertia_).labels_)


def medoids_of(points, labels):
    """The medoid clustering: greedy and exchanges on F alone."""
    distances = np.linalg.norm(points[:, None].astype(np.float64) - points, axis=-1)
    return solve(ClusteringProblem(distances, labels, margin_weight=0.0), refine="local_search")


def scores(points, labels):
    """(NMI by k-means, NMI by medoids); zero for points that flew apart."""
    if points is None:
        return 0.0, 0.0
    return nmi_by_kmeans(points, labels), nmi(labels, medoids_of(points, labels).assignment)


def study(task):
    """Tune one loss with one optimizer on one layout, then count its successes on fresh starts."""
    layout, optimizer_name, loss_name, n_tuning, n_starts = task
    torch.set_num_threads(1)
    began = time.perf_counter()
    tuning = []
    for learning_rate, parameter in itertools.product(LEARNING_RATES[optimizer_name], LOSSES[loss_name][1]):
        reached = []
        for seed in range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + n_tuning):
            points, _ = move(loss_name, parameter, optimizer_name, learning_rate, layout, seed)
            reached.append(scores(points, start_of(layout, seed)[1])[0])
        tuning.append(
            {
                "learning_rate": learning_rate,
                "parameter": parameter,
                "success": float(np.mean(np.array(reached) > 1 - 1e-9)),
                "nmi": float(np.mean(reached)),
            }
        )
    best = max(tuning, key=lambda row: (row["success"], row["nmi"]))  # ties to the smallest learning rate
    frames = frames_kept()
    reached, track = [], None
    for seed in range(FIRST_SEED, FIRST_SEED + n_starts):
        points, kept = move(loss_name, best["parameter"], optimizer_name, best["learning_rate"], layout, seed, frames)
        reached.append(scores(points, start_of(layout, seed)[1]))
        track = np.stack(kept) if track is None else track
    result = {
        "layout": layout,
        "optimizer": optimizer_name,
        "loss": loss_name,
        "chosen": best,
        "nmi_kmeans": [round(a, 6) for a, _ in reached],
        "nmi_medoids": [round(b, 6) for _, b in reached],
        "successes_kmeans": sum(a > 1 - 1e-9 for a, _ in reached),
        "successes_medoids": sum(b > 1 - 1e-9 for _, b in reached),
        "n_starts": n_starts,
        "tuning": tuning,
        "seconds": round(time.perf_counter() - began, 1),
    }
    return result, track


def track_arrays(result, track):
    """What the pictures need of the first counted start: points, medoids, clusters and NMI of every frame."""
    labels = start_of(result["layout"], FIRST_SEED)[1]
    solutions = [medoids_of(points, labels) for points in track]
    key = f"{result['layout']}|{result['optimizer']}|{result['loss']}"
    return {
        f"{result['layout']}|labels": labels,
        f"{key}|points": track.astype(np.float32),  # (n_frames, m, 2)
        f"{key}|medoids": np.stack([solution.medoids for solution in solutions]).astype(np.int16),
        f"{key}|assignment": np.stack([solution.assignment for solution in solutions]).astype(np.int8),
        f"{key}|nmi": np.array([nmi_by_kmeans(points, labels) for points in track]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few starts, for a first look")
    parser.add_argument("--folder", type=Path, default=Path("docs/pictures"), help="where the results go")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    n_tuning, n_starts = (1, 2) if options.quick else (4, 50)
    tasks = [(a, b, c, n_tuning, n_starts) for a in LAYOUTS for b in LEARNING_RATES for c in LOSSES]
    print(f"{N_STEPS} steps, {n_starts} starts, tuned on {n_tuning} others; success: k-means recovers the classes exactly")
    print(f"{'layout':<6} {'optimizer':<17} {'loss':<20} {'lr':>5} {'own':>6} {'k-means':>8} {'medoids':>8} {'NMI':>6}")
    options.folder.mkdir(parents=True, exist_ok=True)
    summary = {"n_steps": N_STEPS, "n_starts": n_starts, "n_tuning": n_tuning, "results": (results := [])}
    arrays = {"steps": frames_kept()}
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        for result, track in pool.map(study, tasks):
            results.append(result)
            arrays |= track_arrays(result, track)
            # Saved after every result: a run that is stopped keeps what it has.
            (options.folder / "failure_mode.json").write_text(json.dumps(summary, indent=1) + "\n")
            np.savez_compressed(options.folder / "failure_mode.npz", **arrays)
            chosen = result["chosen"]
            print(
                f"{result['layout']:<6} {result['optimizer']:<17} {result['loss']:<20} {chosen['learning_rate']:>5} "
                f"{chosen['parameter']:>6} {result['successes_kmeans'] / n_starts:>8.0%} "
                f"{result['successes_medoids'] / n_starts:>8.0%} {np.mean(result['nmi_kmeans']):>6.3f}",
                flush=True,
            )
    for layout, optimizer in itertools.product(LAYOUTS, LEARNING_RATES):
        rate = {r["loss"]: r["successes_kmeans"] for r in results if (r["layout"], r["optimizer"]) == (layout, optimizer)}
        ours, best = rate["facility location"], max(count for name, count in rate.items() if name != "facility location")
        print(
            f"{layout}, {optimizer}: facility location {ours} of {n_starts}, best local loss {best}; difference {ours - best:+d}"
        )


if __name__ == "__main__":
    main()
