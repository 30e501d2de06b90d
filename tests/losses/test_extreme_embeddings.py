"""Normalized losses know directions only: rows may be as long and as short as floating-point numbers allow."""

import math

import pytest
import torch

from facetric.losses import LOSSES
from facetric.losses.batch import unit_vectors
from losses.test_baselines import CASES
from oracles import batch_clustering as clustering
from oracles import loss_values as oracle

NORMALIZED = {name: options for name, (_, options, _) in CASES.items()} | {"facility_location": {"margin_weight": 3.0}}


def batch(dtype=torch.float32):
    generator = torch.Generator().manual_seed(5)
    return torch.randn(12, 4, generator=generator, dtype=torch.float64).to(dtype), torch.arange(12) % 4


def value_and_gradient(name, embeddings, labels):
    embeddings = embeddings.clone().requires_grad_()
    value = LOSSES[name](normalize=True, **NORMALIZED[name])(embeddings, labels)
    value.backward()
    return value.item(), embeddings.grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("exponent", [-90, -83, -67, -60, 60, 67, 90, 100])
@pytest.mark.parametrize("name", NORMALIZED)
def test_scaling_by_a_power_of_two_changes_no_bit_of_the_value_and_scales_the_gradient(name, exponent, dtype):
    embeddings, labels = batch(dtype)
    value, gradient = value_and_gradient(name, embeddings, labels)
    scaled_value, scaled_gradient = value_and_gradient(name, embeddings * 2.0**exponent, labels)
    assert scaled_value == value > 0
    assert gradient.abs().max() > 0
    assert torch.equal(scaled_gradient.double() * 2.0**exponent, gradient.double())


@pytest.mark.parametrize("length", [1e-45, 1e-38, 1e-25, 1e-20, 1e-18, 1e18, 1e20, 1e38])
@pytest.mark.parametrize("name", NORMALIZED)
def test_extreme_rows_among_ordinary_ones_are_compared_by_their_direction(name, length):
    embeddings, labels = batch()
    embeddings[3:7] *= length / embeddings[3:7].abs().amax(dim=1, keepdim=True)
    X = [oracle.unit(x) for x in embeddings.double().tolist()]
    if name == "facility_location":
        D = [[oracle.distance(x, y) for y in X] for x in X]
        y, gamma = labels.tolist(), 3.0
        S = clustering.pam(D, y, gamma, clustering.greedy(D, y, gamma), 5)[-1]
        expected = max(0.0, clustering.objective(D, y, gamma, S) - clustering.oracle_score(D, y))
    else:
        expected = CASES[name][2](X, labels.tolist(), **NORMALIZED[name])
    value, gradient = value_and_gradient(name, embeddings, labels)
    assert value == pytest.approx(expected, rel=1e-5)
    assert torch.isfinite(gradient).all()


def unit_of(x):
    largest = max(abs(v) for v in x)
    scaled = [v / largest for v in x]
    return [v / math.sqrt(sum(w * w for w in scaled)) for v in scaled]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_unit_vectors_have_length_one_at_every_exponent(dtype):
    information = torch.finfo(dtype)
    lowest, highest = math.frexp(information.smallest_normal)[1], math.frexp(information.max)[1]
    for exponent in range(lowest, highest - 2, 7):
        row = torch.tensor([[0.3, -0.7, 1.9]], dtype=dtype) * 2.0**exponent
        row.requires_grad_()
        unit = unit_vectors(row)
        torch.testing.assert_close(unit[0].tolist(), unit_of(row[0].tolist()), rtol=4 * information.eps, atol=0)
        (unit * torch.tensor([1.0, 2.0, -1.0], dtype=dtype)).sum().backward()
        assert torch.isfinite(row.grad).all()
        ordinary = exponent > lowest + 16
        assert bool(row.grad.abs().max() > 0) == ordinary


def test_zero_rows_stay_zero_beside_extreme_ones():
    rows = torch.tensor([[0.0, 0.0], [3e30, 4e30], [3e-30, 4e-30]], requires_grad=True)
    unit = unit_vectors(rows)
    unit[0].sum().backward()
    torch.testing.assert_close(unit.detach(), torch.tensor([[0.0, 0.0], [0.6, 0.8], [0.6, 0.8]]))
    assert rows.grad.abs().max() == 0.0
