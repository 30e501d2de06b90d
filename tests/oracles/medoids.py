"""k-medoids and facility location by plain loops: `cost[i][j]` is what point i pays at point j."""

import itertools
import math


def objective(cost, medoids, opening_cost=0.0):
    """Σ of every point's cheapest medoid, plus the opening cost of each."""
    return sum(min(cost[i][j] for j in medoids) for i in range(len(cost))) + opening_cost * len(medoids)


def best_of_all(cost, n_clusters=None, opening_cost=0.0):
    """The minimum over all sets of medoids, of one size or of any."""
    n = len(cost)
    sizes = range(1, n + 1) if n_clusters is None else [n_clusters]
    return min(objective(cost, S, opening_cost) for size in sizes for S in itertools.combinations(range(n), size))


def best_add(cost, medoids, opening_cost):
    others = [j for j in range(len(cost)) if j not in medoids]
    return min((objective(cost, [*medoids, j], opening_cost) for j in others), default=math.inf)


def best_drop(cost, medoids, opening_cost):
    if len(medoids) == 1:
        return math.inf
    return min(objective(cost, [m for m in medoids if m != out], opening_cost) for out in medoids)


def best_swap(cost, medoids, opening_cost=0.0):
    best = math.inf
    for out in medoids:
        for j in range(len(cost)):
            if j not in medoids:
                best = min(best, objective(cost, [*(m for m in medoids if m != out), j], opening_cost))
    return best


def greedy(cost, n_clusters):
    """The point that lowers the objective most, again and again; the lowest index of equals."""
    S = []
    while len(S) < n_clusters:
        values = {j: objective(cost, [*S, j]) for j in range(len(cost)) if j not in S}
        lowest = min(values.values())
        S.append(next(j for j, value in values.items() if value <= lowest + 1e-9))
    return S


def eager_swaps(cost, medoids):
    """FasterPAM by definition: each point in turn, its best exchange made at once when it helps, until a round without one."""
    S, idle, j = list(medoids), 0, 0
    while idle < len(cost):
        idle += 1
        if j not in S:
            values = {out: objective(cost, [*(m for m in S if m != out), j]) for out in S}
            lowest = min(values.values())
            if lowest < objective(cost, S) - 1e-9:
                S[S.index(next(out for out, value in values.items() if value <= lowest + 1e-12))] = j  # takes its place
                idle = 0
        j = (j + 1) % len(cost)
    return sorted(S)


def ambiguity(cost, medoids, labels, opening_cost=None):
    """The own cost over that of the next best choice."""
    found = []
    for i in range(len(cost)):
        size = sum(label == labels[i] for label in labels)
        own = cost[i][medoids[labels[i]]]
        other = min((cost[i][m] for k, m in enumerate(medoids) if k != labels[i]), default=math.inf)
        if opening_cost is not None and size == 1:
            own = opening_cost
        elif i in medoids:
            found.append(0.0)
            continue
        elif opening_cost is not None:
            other = min(other, opening_cost)
        found.append(1.0 if other == 0 else min(1.0, own / other))
    return found
