"""The search against plain loops, brute force and kmedoids' FasterPAM."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from clustering.clouds import blobs, distances
from facetric.clustering.contraction import sparse_problem
from facetric.clustering.medoids import RECREATED, solve
from facetric.clustering.moves import exchange_gain, greedy, improve, opening_gain
from facetric.clustering.state import Dense, empty_state, open_facilities
from oracles import medoids as oracle


def costs_of(seed, n=None):
    """Random costs that are no distances and not symmetric, point × facility, the diagonal 0."""
    rng = np.random.default_rng(seed)
    n = n or int(rng.integers(4, 30))
    cost = rng.random((n, n)) if seed % 2 else distances(rng.normal(size=(n, 3)))
    np.fill_diagonal(cost, 0)
    return cost


def dense(cost, opening_cost=None):
    cap = cost.max() if opening_cost is None else opening_cost
    return Dense(np.ascontiguousarray(cost.T), np.full(len(cost), float(cap)))


def sparse(cost, opening_cost=None):
    """The same problem with full lists."""
    n = len(cost)
    table = csr_array((cost.ravel(), np.tile(np.arange(n), n), np.arange(0, n * n + 1, n)), shape=(n, n))
    return sparse_problem(table, dense(cost, opening_cost).caps, symmetric=False)


PROBLEMS = pytest.mark.parametrize("problem_of", [dense, sparse])


@PROBLEMS
@pytest.mark.parametrize("seed", range(8))
def test_the_gain_of_every_move_is_what_a_plain_loop_finds(problem_of, seed):
    cost = costs_of(seed)
    n = len(cost)
    rng = np.random.default_rng(seed)
    S = sorted(rng.choice(n, int(rng.integers(1, n - 1)), replace=False).tolist())
    problem = problem_of(cost)
    state = open_facilities(problem, np.array(S))
    now = oracle.objective(cost, S)
    assert state.near_costs.sum() == pytest.approx(now)
    for m in S:
        if len(S) > 1:
            without = oracle.objective(cost, [other for other in S if other != m])
            assert state.losses[m] == pytest.approx(without - now, abs=1e-6)
    cheapest = min(S, key=lambda m: state.losses[m])
    for j in set(range(n)) - set(S):
        gain, exchange, out = exchange_gain(problem, state, j, cheapest, np.zeros(n), np.empty(n, np.int64))
        assert gain == pytest.approx(now - oracle.objective(cost, [*S, j]), abs=1e-6)
        assert gain == pytest.approx(opening_gain(problem, state, j), abs=1e-6)
        if len(S) > 1:
            values = {m: oracle.objective(cost, [*(other for other in S if other != m), j]) for m in S}
            assert exchange == pytest.approx(now - min(values.values()), abs=1e-6)
            assert values[out] == pytest.approx(min(values.values()), abs=1e-6)


@PROBLEMS
@pytest.mark.parametrize("seed", range(6))
def test_opening_and_closing_leave_the_state_of_the_open_set(problem_of, seed):
    from facetric.clustering.state import close_facility, open_facility

    cost = costs_of(seed, n=15)
    problem = problem_of(cost)
    rng = np.random.default_rng(seed)
    state, S = open_facilities(problem, np.array([3])), {3}
    for j in rng.integers(0, 15, 60).tolist():
        if j in S and len(S) > 1:
            close_facility(problem, state, j)
            S.remove(j)
        elif j not in S:
            open_facility(problem, state, j)
            S.add(j)
        for i in range(15):
            by_cost = sorted((np.float32(cost[i][m]) if problem_of is sparse else cost[i][m], m) for m in S)
            assert state.near_costs[i] == pytest.approx(by_cost[0][0])
            assert state.second_costs[i] == pytest.approx(by_cost[1][0] if len(S) > 1 else cost.max())
        closing = [state.losses[m] for m in S]
        expected = [sum((state.second_costs - state.near_costs)[state.near == m]) for m in S]
        np.testing.assert_allclose(closing, expected, atol=1e-9)


@PROBLEMS
@pytest.mark.parametrize("seed", range(6))
def test_lazy_greedy_is_greedy(problem_of, seed):
    cost = costs_of(seed)
    k = len(cost) // 2
    problem = problem_of(cost)
    state = empty_state(problem.caps)
    gains = np.array([opening_gain(problem, state, j) for j in range(len(cost))])
    greedy(problem, state, gains, k, 0.0, 0.0)
    assert state.medoids[:k].tolist() == oracle.greedy(cost, k)


@pytest.mark.parametrize("seed", range(12))
def test_eager_swaps_are_those_of_the_definition(seed):
    cost = costs_of(seed)
    start = np.random.default_rng(seed).choice(len(cost), len(cost) // 3 + 1, replace=False)
    found = solve(dense(cost), n_clusters=len(start), start=start, order=np.arange(len(cost)))
    assert found.medoids.tolist() == oracle.eager_swaps(cost, start.tolist())


@PROBLEMS
@pytest.mark.parametrize("seed", range(10))
def test_no_move_helps_in_the_end(problem_of, seed):
    cost = costs_of(seed)
    k = len(cost) // 4 + 1
    found = solve(problem_of(cost), n_clusters=k)
    S = found.medoids.tolist()
    assert found.objective == pytest.approx(oracle.objective(cost, S))
    assert found.objective <= oracle.best_swap(cost, S) + 1e-6
    price = float(np.median(cost)) * 2
    found = solve(problem_of(cost, price), opening_cost=price)
    S = found.medoids.tolist()
    assert found.objective == pytest.approx(oracle.objective(cost, S, price))
    for move in (oracle.best_add, oracle.best_drop, oracle.best_swap):
        assert found.objective <= move(cost, S, price) + 1e-6


@pytest.mark.parametrize("seed", range(60))
def test_small_problems_come_close_to_brute_force(seed):
    cost = costs_of(2 * seed, n=4 + seed % 6)  # distances: what local search promises is about these
    for k in range(1, len(cost)):
        best = oracle.best_of_all(cost, n_clusters=k)
        found = solve(dense(cost), n_clusters=k)
        assert best - 1e-9 <= found.objective <= best * 1.2 + 1e-9
    for factor in (0.2, 0.7, 1.5, 4.0):
        price = factor * float(np.median(cost[cost > 0]))
        best = oracle.best_of_all(cost, opening_cost=price)
        found = solve(dense(cost, price), opening_cost=price)
        assert best - 1e-9 <= found.objective <= best * 1.2 + 1e-9


def test_most_small_problems_are_solved_exactly():
    n_exact = n_all = 0
    for seed in range(60):
        cost = costs_of(2 * seed, n=9)
        price = float(np.median(cost[cost > 0]))
        pairs = [(solve(dense(cost), n_clusters=3).objective, oracle.best_of_all(cost, n_clusters=3))]
        pairs += [(solve(dense(cost, price), opening_cost=price).objective, oracle.best_of_all(cost, opening_cost=price))]
        n_exact += sum(found <= best + 1e-9 for found, best in pairs)
        n_all += len(pairs)
    assert n_exact >= 0.85 * n_all  # 107 of 120 when this was written


def test_not_worse_than_fasterpam_from_the_same_start():
    """Up to n/3 medoids. In clusters of two either may be the medoid, and which of two equal exchanges is made decides in which
    local optimum a search ends: without ruin and recreate ours was worse in 6 of these 200, by at most 0.7%. It is no theorem: in
    400 more (seeds 200 to 599) ours was worse in 7, by at most 0.2%; in all 600, better in 236."""
    kmedoids = pytest.importorskip("kmedoids")
    n_better = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(20, 400))
        k = int(rng.integers(2, n // 3 + 1))
        cost = distances(blobs(n, k, seed, noise=0.1 + rng.random())[0])
        start = rng.choice(n, k, replace=False)
        theirs = kmedoids.fasterpam(cost, start.astype(np.uint64), n_cpu=1)  # with a seed it would shuffle the candidates
        ours = solve(dense(cost), n_clusters=k, start=start, order=np.arange(n), recreated=RECREATED)
        assert ours.objective <= theirs.loss * (1 + 1e-9), seed
        n_better += ours.objective < theirs.loss * (1 - 1e-9)
    assert n_better > 50


@PROBLEMS
@pytest.mark.parametrize("seed", range(6))
def test_ruin_and_recreate_never_raises_the_objective_and_no_exchange_helps_after_it(problem_of, seed):
    cost = costs_of(seed, n=40)
    for k in (1, 2, 9, 39, 40):
        plain, found = (solve(problem_of(cost), n_clusters=k, recreated=recreated) for recreated in ((), RECREATED))
        assert len(found.medoids) == k
        assert found.objective <= plain.objective
        assert found.objective == pytest.approx(oracle.objective(cost, found.medoids.tolist()))
        if k in (2, 9):
            assert found.objective <= oracle.best_swap(cost, found.medoids.tolist()) + 1e-6
    for max_sweeps in (0, 1, 2, 3):
        found = solve(problem_of(cost), n_clusters=9, recreated=RECREATED, max_sweeps=max_sweeps)
        assert len(found.medoids) == 9
        assert found.n_sweeps <= max_sweeps


@PROBLEMS
def test_the_objective_falls_with_every_sweep(problem_of):
    cost = distances(blobs(120, 12, 1, noise=0.8)[0])
    for price, fixed in ((0.0, True), (1.5, False)):
        problem = problem_of(cost, None if fixed else price)
        state = open_facilities(problem, np.arange(12))
        values = [state.near_costs.sum() + price * state.n_open[0]]
        for _ in range(10):
            improve(problem, state, np.arange(120), fixed, price, 1e-9, 1)
            values.append(state.near_costs.sum() + price * state.n_open[0])
        assert values[0] > values[1]
        assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("seed", range(5))
def test_full_lists_give_what_the_matrix_gives(seed):
    cost = distances(blobs(90, 9, seed, noise=0.6)[0]).astype(np.float32)
    for options, price in (({"n_clusters": 9}, None), ({"opening_cost": 2.0}, 2.0)):
        a, b = solve(dense(cost, price), **options), solve(sparse(cost, price), **options)
        assert a.medoids.tolist() == b.medoids.tolist()
        assert a.near.tolist() == b.near.tolist()
        assert a.objective == pytest.approx(b.objective, rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_the_points_does_not_matter(seed):
    cost = distances(blobs(80, 8, seed, noise=0.7)[0])
    order = np.random.default_rng(seed).permutation(80)
    for options, price in (({"n_clusters": 8}, None), ({"opening_cost": 9.0}, 9.0)):  # in clusters of two, there would be ties
        a, b = solve(dense(cost, price), **options), solve(dense(cost[np.ix_(order, order)], price), **options)
        assert sorted(order[b.medoids].tolist()) == a.medoids.tolist()


def test_the_number_of_threads_does_not_matter():
    import numba

    cost = distances(blobs(700, 30, 0, noise=0.7)[0])
    found = []
    for n_threads in (1, 2):
        numba.set_num_threads(min(n_threads, numba.config.NUMBA_NUM_THREADS))
        found.append(solve(dense(cost), n_clusters=30))
    assert found[0].medoids.tolist() == found[1].medoids.tolist()
    assert found[0].objective == found[1].objective
