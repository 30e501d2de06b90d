"""Slow, plain versions of the paper's definitions and algorithms. They share no code with what they check."""

import itertools
import math

TIE = 1e-9  # values this close are equal; far above rounding, far below any real difference in the tests


def score_nmi(assignment, labels):
    """NMI from the paper's probabilities, with the geometric mean."""
    m = len(labels)
    clusters, classes = sorted(set(assignment)), sorted(set(labels))
    p = {k: sum(a == k for a in assignment) / m for k in clusters}
    q = {c: sum(y == c for y in labels) / m for c in classes}
    information = 0.0
    for k in clusters:
        for c in classes:
            joint = sum(a == k and y == c for a, y in zip(assignment, labels, strict=True)) / m
            if joint > 0:
                information += joint * math.log(joint / (p[k] * q[c]))
    entropy_p = -sum(v * math.log(v) for v in p.values())
    entropy_q = -sum(v * math.log(v) for v in q.values())
    if len(clusters) == 1 or len(classes) == 1:
        return 1.0 if len(clusters) == len(classes) else 0.0
    return information / math.sqrt(entropy_p * entropy_q)


def facility(distances, S):
    """F(X, S)."""
    return -sum(min(distances[i][j] for j in S) for i in range(len(distances)))


def assign(distances, S):
    """g(S): nearest medoid, first position on ties, every medoid to itself."""
    assignment = []
    for i in range(len(distances)):
        if i in S:
            assignment.append(S.index(i))
        else:
            assignment.append(min(range(len(S)), key=lambda k: (distances[i][S[k]], k)))
    return assignment


def delta(distances, labels, S, score=score_nmi):
    return 1.0 - min(max(score(assign(distances, S), labels), 0.0), 1.0)


def objective(distances, labels, gamma, S, score=score_nmi):
    """A(S)."""
    return facility(distances, S) + gamma * delta(distances, labels, S, score)


def first_of_the_best(values):
    """The first key whose value ties with the maximum."""
    best = max(values.values())
    return next(key for key, value in values.items() if value >= best - TIE)


def greedy(distances, labels, gamma, score=score_nmi):
    """Algorithm 1."""
    S = []
    while len(S) < len(set(labels)):
        values = {i: objective(distances, labels, gamma, [*S, i], score) for i in range(len(labels)) if i not in S}
        S.append(first_of_the_best(values))
    return S


def pam(distances, labels, gamma, S, max_sweeps, score=score_nmi):
    """Algorithm 2. Returns S after each sweep; stops after a sweep that changes nothing."""
    S = list(S)
    sweeps = []
    for _ in range(max_sweeps):
        before = list(S)
        assignment = assign(distances, S)
        for k in range(len(S)):
            members = [i for i in range(len(labels)) if assignment[i] == k]
            values = {}
            for j in members:
                F = -sum(distances[i][j] for i in members)
                values[j] = F + gamma * delta(distances, labels, [*S[:k], j, *S[k + 1 :]], score)
            if max(values.values()) > values[S[k]] + TIE:
                S[k] = first_of_the_best(values)
        sweeps.append(list(S))
        if before == S:
            break
    return sweeps


def local_search(distances, labels, gamma, S, score=score_nmi):
    """Lemma 2: every position in turn takes the point with the best A(S), until a sweep changes nothing."""
    S = list(S)
    before = None
    while before != S:
        before = list(S)
        for k in range(len(S)):
            others = [j for j in range(len(labels)) if j == S[k] or j not in S]
            values = {j: objective(distances, labels, gamma, [*S[:k], j, *S[k + 1 :]], score) for j in others}
            if max(values.values()) > values[S[k]] + TIE:
                S[k] = first_of_the_best(values)
    return S


def maximum(distances, labels, gamma, score=score_nmi):
    """The exact maximum of A over all S and over every way of breaking ties in g(S), by enumeration."""
    best = -math.inf
    for S in itertools.combinations(range(len(labels)), len(set(labels))):
        homes = []
        for i in range(len(labels)):
            nearest = min(distances[i][j] for j in S)
            homes.append([i] if i in S else [j for j in S if distances[i][j] == nearest])
        for assignment in itertools.product(*homes):
            margin = 1.0 - min(max(score(list(assignment), labels), 0.0), 1.0)
            best = max(best, facility(distances, S) + gamma * margin)
    return best


def best_swap(distances, labels, gamma, S, score=score_nmi):
    """The best A(S') over all single exchanges with points outside S, or -inf when there is none."""
    best = -math.inf
    for k in range(len(S)):
        for j in range(len(labels)):
            if j not in S:
                best = max(best, objective(distances, labels, gamma, [*S[:k], j, *S[k + 1 :]], score))
    return best


def oracle_score(distances, labels):
    """F̃: every class at its own best medoid."""
    total = 0.0
    for c in set(labels):
        members = [i for i in range(len(labels)) if labels[i] == c]
        total += max(-sum(distances[i][j] for i in members) for j in members)
    return total
