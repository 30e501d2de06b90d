"""What a step of the loss costs: against the same algorithm with one scikit-learn NMI per candidate, as the batch grows,
and the baselines against pytorch-metric-learning's.

    python benchmarks/loss_step.py [--quick]
"""

import argparse
import os
import resource
import time

import numpy as np
import torch
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning.distances import LpDistance
from sklearn.metrics import normalized_mutual_info_score

from facetric.losses import FacilityLocationLoss, LiftedStructureLoss, NPairsLoss, TripletLoss, TripletSemihardLoss
from facetric.losses.solver import ClusteringProblem, solve
from facetric.losses.solver.exchange import pam
from facetric.losses.solver.greedy import greedy, stochastic_greedy

DIMENSION, GAMMA = 64, 1.0


def batch(m, n_classes, seed=0):
    """Unit vectors around class centers, with as much noise as signal: clusters that overlap, as early in training."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(m) % n_classes
    points = torch.randn(n_classes, DIMENSION, generator=generator)[labels] + torch.randn(m, DIMENSION, generator=generator)
    return torch.nn.functional.normalize(points).requires_grad_(), labels


def milliseconds(function, repeats):
    """The median over repeats, after one warm-up."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times))


def problem_of(embeddings, labels):
    points = embeddings.detach().double()
    return ClusteringProblem(torch.cdist(points, points).fill_diagonal_(0).numpy(), labels.numpy(), GAMMA)


def greedy_and_pam_with_one_sklearn_nmi_per_candidate(problem, max_sweeps=5):
    """The same two algorithms, vectorized over points, with one call of scikit-learn per candidate, as the authors do."""
    D, y, m = problem.distances, problem.classes, problem.n_points

    def delta(S):
        assignment = D[:, S].argmin(axis=1)
        assignment[S] = np.arange(len(S))
        return 1 - normalized_mutual_info_score(y, assignment, average_method="geometric")

    S, near = [], np.full(m, np.inf)
    while len(S) < problem.n_clusters:
        values = {j: -np.minimum(near, D[:, j]).sum() + GAMMA * delta([*S, j]) for j in range(m) if j not in S}
        S.append(max(values, key=values.get))
        near = np.minimum(near, D[:, S[-1]])
    for _ in range(max_sweeps):
        before = list(S)
        assignment = D[:, S].argmin(axis=1)
        assignment[S] = np.arange(len(S))
        for k in range(len(S)):
            members = np.flatnonzero(assignment == k)
            values = {j: -D[members, j].sum() + GAMMA * delta([*S[:k], j, *S[k + 1 :]]) for j in members.tolist()}
            if max(values.values()) > values[S[k]] + 1e-9:
                S[k] = max(values, key=values.get)
        if before == S:
            break
    return S


def against_sklearn(repeats):
    print(
        f"Loss + backward at m = 128, d = {DIMENSION}, PAM on; "
        "the reference is the same algorithm with one scikit-learn NMI per candidate"
    )
    print(f"{'C':>4} {'loss+backward':>14} {'solver share':>13} {'reference':>11} {'ratio':>9}")
    for n_classes in (32, 64, 96):
        embeddings, labels = batch(128, n_classes)
        loss = FacilityLocationLoss(GAMMA)
        problem = problem_of(embeddings, labels)

        def step(loss=loss, embeddings=embeddings, labels=labels):
            embeddings.grad = None
            loss(embeddings, labels).backward()

        step_ms = milliseconds(step, repeats)
        solver_ms = milliseconds(lambda problem=problem: solve(problem), repeats)
        start = time.perf_counter()
        reference = greedy_and_pam_with_one_sklearn_nmi_per_candidate(problem)
        reference_ms = 1e3 * (time.perf_counter() - start)
        reached, theirs = solve(problem), set(reference)
        assert set(reached.medoids.tolist()) == theirs or np.isclose(reached.objective, objective(problem, reference), atol=1e-6)
        print(
            f"{n_classes:>4} {step_ms:>11.2f} ms {solver_ms / step_ms:>12.0%} "
            f"{reference_ms / 1e3:>9.2f} s {reference_ms / step_ms:>8,.0f}x"
        )


def objective(problem, S):
    assignment = problem.distances[:, S].argmin(axis=1)
    assignment[S] = np.arange(len(S))
    score = normalized_mutual_info_score(problem.classes, assignment, average_method="geometric")
    return -problem.distances[:, S].min(axis=1).sum() + GAMMA * (1 - score)


def large_batches(repeats):
    print(f"\nLoss + backward as the batch grows, d = {DIMENSION}, PAM on; gap: to the objective of exact inference")
    print(f"{'m':>5} {'C':>5} {'inference':>11} {'γ':>8} {'minimum':>11} {'median':>11} {'gap':>7}")
    for m, n_classes, inference in ((128, 32, "greedy"), (1024, 256, "greedy"), (4096, 1024, "stochastic")):
        embeddings, labels = batch(m, n_classes)
        for gamma in (GAMMA, None):
            loss = FacilityLocationLoss(gamma, inference=inference)
            times = []
            for _ in range(1 + max(5, repeats * 128 // m)):
                embeddings.grad = None
                start = time.perf_counter()
                loss(embeddings, labels).backward()
                times.append(1e3 * (time.perf_counter() - start))
            gap = ""
            if inference == "stochastic":
                exact = FacilityLocationLoss(gamma).explain(embeddings, labels).objective
                gap = f"{(exact - loss.last.objective) / abs(exact):.2%}"
            shown = f"{'m/2' if gamma is None else gamma:>8} {min(times[1:]):>8.2f} ms {np.median(times[1:]):>8.2f} ms {gap:>7}"
            print(f"{m:>5} {n_classes:>5} {inference:>11} {shown}", flush=True)


def growth(repeats):
    print(
        f"\nSolver alone as the batch grows, C = m/4, d = {DIMENSION}, γ = {GAMMA}; A is the objective reached (higher is better)"
    )
    print(
        f"{'m':>5} {'greedy':>10} {'+ PAM':>10} {'stochastic':>11} {'speed-up':>9} "
        f"{'A greedy+PAM':>13} {'gap greedy':>11} {'gap + PAM':>10} {'peak memory':>12}"
    )
    sizes, exact_times, sampled_times = [], [], []
    start_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for m in (128, 256, 512, 1024, 2048):
        problem = problem_of(*batch(m, m // 4))
        n = max(3, repeats * 128 // m)
        exact = milliseconds(lambda problem=problem: greedy(problem), n)
        chosen = greedy(problem)
        refine = milliseconds(lambda problem=problem, chosen=chosen: pam(problem, chosen), n)
        sampled = milliseconds(lambda problem=problem: stochastic_greedy(problem, np.random.default_rng(0)), n)
        best = pam(problem, chosen)
        rough = pam(problem, stochastic_greedy(problem, np.random.default_rng(0)))
        gaps = [(best.trace[i] - rough.trace[i]) / abs(best.trace[i]) for i in (0, -1)]
        peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start_kib) / 1024  # above what the process had before
        print(
            f"{m:>5} {exact:>7.1f} ms {exact + refine:>7.1f} ms {sampled:>8.2f} ms {exact / sampled:>8.1f}x "
            f"{best.trace[-1]:>13.2f} {gaps[0]:>11.2%} {gaps[1]:>10.2%} {peak:>7.0f} MiB"
        )
        sizes.append(m)
        exact_times.append(exact + refine)
        sampled_times.append(sampled)
    for name, times in (("exact greedy + PAM", exact_times), ("stochastic greedy", sampled_times)):
        exponent = np.polyfit(np.log(sizes), np.log(times), 1)[0]
        print(f"growth of {name}: time ∝ m^{exponent:.2f}")


def baselines(repeats):
    print(
        "\nBaselines at m = 128, C = 32, loss + backward, against pytorch-metric-learning on the same batch "
        "(ratio > 1: ours is faster)"
    )
    squared = LpDistance(power=2)
    pairs = [
        ("triplet, all triplets", TripletLoss(0.2), pml.TripletMarginLoss(0.2, distance=squared)),
        ("triplet, semi-hard*", TripletSemihardLoss(0.2), pml.TripletMarginLoss(0.2, distance=squared)),
        ("lifted structure", LiftedStructureLoss(1.0), pml.LiftedStructureLoss(neg_margin=1.0, pos_margin=0.0)),
        ("N-pairs", NPairsLoss(), pml.NPairsLoss()),
    ]
    for name, ours, theirs in pairs:
        embeddings, labels = batch(128, 32)

        def step(loss, embeddings=embeddings, labels=labels):
            embeddings.grad = None
            loss(embeddings, labels).backward()

        mine, other = [], []
        for _ in range(3):  # alternating, so that a busy moment hits both
            mine.append(milliseconds(lambda ours=ours, step=step: step(ours), repeats))
            other.append(milliseconds(lambda theirs=theirs, step=step: step(theirs), repeats))
        a, b = min(mine), min(other)
        print(f"{name:<24} ours {a:>7.2f} ms   theirs {b:>7.2f} ms   ratio {b / a:>6.1f}x")
    print("* theirs has no semi-hard loss of its own; its triplet loss without a miner is the cheapest it offers")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few repeats, for a first look")
    n_repeats = 10 if parser.parse_args().quick else 50
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, load average {os.getloadavg()[0]:.1f} before the start")
    print("(measure on an idle machine: torch's threads wait for each other when a core is busy with something else)")
    large_batches(n_repeats)
    against_sklearn(n_repeats)
    growth(n_repeats)
    baselines(n_repeats)
