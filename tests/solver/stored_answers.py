"""Random instances of every kind, and the answers to them that are kept in stored_answers.json.

`python tests/solver/stored_answers.py` writes the file anew. It holds the answers of the first, single-threaded solver, which
recounted nothing but visited every candidate; write it only if the definition of the problem changes, never for a speed-up.
"""

import json
from pathlib import Path

import numpy as np

from facetric.losses.solver import ClusteringProblem, oracle_medoids, solve

FILE = Path(__file__).with_suffix(".json")
MARGINS = ["nmi", "vmeasure", "ami", "ari", "f1", "zero_one"]
KINDS = ["normal", "duplicates", "integers", "squared", "asymmetric", "all equal", "float32"]


def instance(seed):
    """A problem and the options to solve it with; ties in most of them."""
    rng = np.random.default_rng(seed)
    margin, kind = MARGINS[seed % len(MARGINS)], KINDS[seed % len(KINDS)]
    m = int(rng.integers(3, 40 if margin == "zero_one" or seed % 5 else 200))
    n_classes = int(rng.integers(1, m + 1 if seed % 2 else m // 3 + 2))
    labels = rng.integers(0, n_classes, m)
    points = rng.normal(size=(m, 3))
    if kind == "duplicates":
        points = points[rng.integers(0, m // 3 + 1, m)]
    if kind == "integers":
        points = rng.integers(0, 4, (m, 3)).astype(float)
    distances = np.abs(points[:, None] - points).sum(axis=-1)
    if kind == "squared":
        distances = distances**2
    if kind == "asymmetric":
        distances = rng.integers(0, 5, (m, m)).astype(float)
    if kind == "all equal":
        distances = np.ones((m, m))
    if kind == "float32":
        distances = distances.astype(np.float32)
    np.fill_diagonal(distances, 0)
    problem = ClusteringProblem(distances, labels, float(rng.choice([0.0, 0.1, 1.0, m / 2, 10.0 * m, 1e6])), margin)
    options = {
        "inference": str(rng.choice(["greedy", "greedy", "stochastic", "random"])),
        "refine": [None, "pam", "pam", "local_search"][rng.integers(4)],
        "max_sweeps": int(rng.choice([5, 5, 1, 20])),
        "rng": seed,
    }
    return problem, options


def answer(problem, solution):
    return {
        "medoids": solution.medoids.tolist(),
        "assignment": solution.assignment.tolist(),
        "oracle": oracle_medoids(problem).tolist(),
        "n_sweeps": solution.n_sweeps,
        "objective": solution.objective,
    }


if __name__ == "__main__":
    answers = []
    for seed in range(210):
        problem, options = instance(seed)
        answers.append(answer(problem, solve(problem, **options)))
    FILE.write_text("[\n" + ",\n".join(json.dumps(each, separators=(",", ":")) for each in answers) + "\n]\n")
