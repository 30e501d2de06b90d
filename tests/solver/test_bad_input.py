"""What the solver refuses, and that it says the rule, the value and the way out."""

import numpy as np
import pytest

from facetric.losses.solver import ClusteringProblem, solve

GOOD = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]])


def spoiled(i, j, value):
    distances = GOOD.copy()
    distances[i, j] = value
    return distances


@pytest.mark.parametrize(
    ("distances", "labels", "message"),
    [
        (spoiled(0, 1, np.nan), [0, 0, 1], r"finite; entry \[0, 1\] is nan"),
        (spoiled(2, 1, np.inf), [0, 0, 1], r"finite; entry \[2, 1\] is inf"),
        (spoiled(1, 2, -0.5), [0, 0, 1], r"negative; entry \[1, 2\] is -0.5: pass distances, not similarities"),
        (spoiled(1, 1, 0.25), [0, 0, 1], r"entry \[1, 1\] is 0.25: np.fill_diagonal"),
        (GOOD[:2], [0, 1], r"square matrix; got shape \(2, 3\)"),
        (GOOD[0], [0, 1, 1], r"square matrix; got shape \(3,\)"),
        (np.zeros((0, 0)), [], "at least 1 point; got none"),
        (GOOD, [0, 1], r"one entry per point; got 2 labels for a \(3, 3\)"),
        (GOOD, [0.0, 1.0, 1.0], "integers .* got dtype float64"),
        (GOOD, [[0], [1], [1]], r"one-dimensional.*\(3, 1\)"),
        ("nonsense", [0, 1, 1], "square matrix of numbers"),
    ],
)
def test_bad_problems_are_refused(distances, labels, message):
    with pytest.raises(ValueError, match=message):
        ClusteringProblem(distances, labels)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"margin_weight": -1.0}, "margin_weight .* got -1.0"),
        ({"margin_weight": np.nan}, "margin_weight .* got nan"),
        ({"margin_weight": "1"}, "margin_weight .* got '1'"),
        ({"margin": "nmii"}, "nmi, vmeasure, ami, ari, f1, zero_one or a callable; got 'nmii'"),
    ],
)
def test_bad_margins_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ClusteringProblem(GOOD, [0, 0, 1], **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inference": "gready"}, "greedy, stochastic, random, auto; got 'gready'"),
        ({"refine": "pamm"}, "pam, local_search or None; got 'pamm'"),
        ({"max_sweeps": -1}, "max_sweeps .* got -1"),
        ({"max_sweeps": 2.5}, "max_sweeps .* got 2.5"),
    ],
)
def test_unknown_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        solve(ClusteringProblem(GOOD, [0, 0, 1]), **options)


def test_a_margin_function_that_returns_nan_is_reported_with_its_table():
    with pytest.raises(ValueError, match=r"NaN for the contingency table \[\["):
        solve(ClusteringProblem(GOOD, [0, 0, 1], margin=lambda table: float("nan")))


def test_an_error_inside_a_margin_function_reaches_the_caller():
    def broken(table):
        raise RuntimeError("my own mistake")

    with pytest.raises(RuntimeError, match="my own mistake"):
        solve(ClusteringProblem(GOOD, [0, 0, 1], margin=broken))


@pytest.mark.parametrize("inference", ["greedy", "stochastic", "random", "auto"])
@pytest.mark.parametrize("refine", ["pam", "local_search", None])
@pytest.mark.parametrize("labels", [[5, 5, 5], [7, 1, 3]], ids=["one class", "all distinct"])
def test_trivial_problems_are_defined(inference, refine, labels):
    solution = solve(ClusteringProblem(GOOD, labels), inference=inference, refine=refine)
    assert solution.margin == 0.0
    assert len(solution.medoids) == len(set(labels))
    if len(set(labels)) == 3:
        assert solution.objective == 0.0
    elif refine or inference == "greedy":
        assert solution.medoids.tolist() == [1]


def test_zero_sweeps_leave_the_greedy_medoids():
    problem = ClusteringProblem(GOOD, [0, 0, 1])
    assert solve(problem, max_sweeps=0).medoids.tolist() == solve(problem, refine=None).medoids.tolist()


def test_points_of_any_number_type_have_exact_distances():
    points = np.array([[-100], [100], [27]])
    for kind in (np.int8, np.int64, np.uint8, np.float16, np.float32, np.float64):
        expected = [[abs(float(a) - float(b)) for b in points.astype(kind).ravel()] for a in points.astype(kind).ravel()]
        found = ClusteringProblem.from_points(points.astype(kind), [0, 1, 1])
        assert found.distances.tolist() == expected, kind


@pytest.mark.parametrize(
    "points", [None, "x", [[1.0], [1.0, 2.0]], [1.0, 2.0], np.zeros((2, 2), dtype=object), [["a"], ["b"]], [[1j]]]
)
def test_points_that_are_no_matrix_of_numbers_are_refused(points):
    with pytest.raises(ValueError, match=r"^points must be an \(m, d\) array of numbers; got "):
        ClusteringProblem.from_points(points, [0, 1])
