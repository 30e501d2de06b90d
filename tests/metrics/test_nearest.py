"""The k nearest rows, against all comparisons one by one: exact, and equal ones by row."""

import numpy as np
import pytest

from facetric.metrics import nearest, unit_rows


def all_compared(vectors, query, metric, without=None):
    """(row, value) of every vector from the nearest on, by plain loops."""
    found = []
    for row, vector in enumerate(vectors.tolist()):
        terms = [(x - y) * (x - y) if metric == "euclidean" else x * y for x, y in zip(query.tolist(), vector, strict=True)]
        total = 0.0
        for term in terms:
            total += term
        if row != without:
            found.append((total if metric == "euclidean" else -total, row))
    return [(row, np.sqrt(key) if metric == "euclidean" else -key) for key, row in sorted(found)]


def many_equal(n, rng, scale=1.0):
    few = unit_rows(rng.normal(size=(40, 16)).astype(np.float32))
    return few, np.float32(scale) * few[rng.integers(0, 40, n)]


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("n_queries", [1, 7, 60])
@pytest.mark.parametrize("k", [1, 5, 400])
def test_the_nearest_are_those_of_all_comparisons_equal_ones_by_row(metric, n_queries, k):
    rng = np.random.default_rng(n_queries)
    few, vectors = many_equal(300, rng)
    queries = np.concatenate([few, unit_rows(rng.normal(size=(40, 16)).astype(np.float32))])[:n_queries]
    found = nearest(vectors, k, queries=queries, metric=metric)
    for query, rows, values in zip(queries, *found, strict=True):
        expected = all_compared(vectors, query, metric)[:k]
        assert list(zip(rows.tolist(), values.tolist(), strict=True)) == expected


@pytest.mark.parametrize("shift", [0.0, 1000.0])  # where float32 products cannot tell the vectors apart
def test_the_nearest_others_of_every_vector_leave_it_out_even_among_duplicates(shift):
    rng = np.random.default_rng(0)
    vectors = np.concatenate([many_equal(60, rng, 3.0)[1], rng.normal(size=(600, 16)).astype(np.float32)]) + np.float32(shift)
    found = nearest(vectors, 7, metric="euclidean")
    for i in [*range(0, 60, 7), *range(60, 660, 50)]:
        expected = all_compared(vectors, vectors[i], "euclidean", without=i)[:7]
        assert list(zip(found.rows[i].tolist(), found.values[i].tolist(), strict=True)) == expected


def test_no_queries_and_no_vectors_find_nothing():
    some = np.ones((2, 4), dtype=np.float32) / 2
    assert nearest(some, 3, queries=some[:0]).rows.shape == (0, 2)
    assert nearest(some[:0], 3, queries=some).rows.shape == (2, 0)
    assert nearest(some[:1], 3).rows.shape == (1, 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_unit_rows_have_length_one_whatever_their_scale_and_zeros_stay(dtype):
    rows = np.random.default_rng(0).normal(size=(5, 8)).astype(dtype) * np.array([[1], [1e-18], [1e18], [3], [0]], dtype=dtype)
    units = unit_rows(rows)
    assert units.dtype == dtype
    np.testing.assert_allclose(np.linalg.norm(units.astype(np.float64), axis=1), [1, 1, 1, 1, 0], rtol=1e-6)
    np.testing.assert_allclose(units[0] * np.linalg.norm(rows[0]), rows[0], rtol=1e-5)
