"""The baselines against plain loops, and against the authors' code where comparable."""

import numpy as np
import pytest
import torch

from facetric.losses import (
    LOSSES,
    AffinityLoss,
    ContrastiveLoss,
    LiftedStructureLoss,
    NPairsLoss,
    PairLoss,
    TripletLoss,
    TripletSemihardLoss,
)
from facetric.losses.pair_losses import npairs_cross_entropy
from oracles import loss_values as oracle

CASES = {
    "triplet_semihard": (TripletSemihardLoss, {"margin": 0.7}, oracle.triplet_semihard),
    "triplet": (TripletLoss, {"margin": 0.7}, oracle.triplet),
    "lifted_structure": (LiftedStructureLoss, {"margin": 1.3}, oracle.lifted_structure),
    "npairs": (NPairsLoss, {"norm_weight": 0.1}, oracle.npairs),
    "contrastive": (ContrastiveLoss, {"margin": 0.9}, oracle.contrastive),
    "affinity": (AffinityLoss, {}, oracle.affinity),
}


def batch(seed, m=12, n_classes=4, d=3, duplicates=False):
    generator = torch.Generator().manual_seed(seed)
    embeddings = torch.randn(m, d, generator=generator, dtype=torch.float64)
    if duplicates:
        embeddings[1] = embeddings[0]
        embeddings[-1] = embeddings[2]
    labels = torch.randint(0, n_classes, (m,), generator=generator) * 1000 - 5
    labels[:2] = 7
    return embeddings.requires_grad_(), labels


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("duplicates", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_equals_the_plain_loops_of_the_equation(name, duplicates, normalize):
    loss_class, options, reference = CASES[name]
    for seed in range(20):
        embeddings, labels = batch(seed, duplicates=duplicates)
        value = loss_class(normalize=normalize, **options)(embeddings, labels)
        X = [oracle.unit(x) if normalize else x for x in embeddings.tolist()]
        assert value.item() == pytest.approx(reference(X, labels.tolist(), **options), rel=1e-9)
        value.backward()
        assert torch.isfinite(embeddings.grad).all()


@pytest.mark.parametrize("name", CASES)
def test_gradcheck_in_float64_away_from_kinks(name):
    loss_class, options, _ = CASES[name]
    embeddings, labels = batch(3)
    loss = loss_class(**options)
    assert torch.autograd.gradcheck(lambda x: loss(x, labels), (embeddings,))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_embeddings_are_scored_in_float32(name, dtype):
    embeddings, labels = batch(1)
    low = embeddings.detach().to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = LOSSES[name]()(low, labels)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(LOSSES[name]()(low.detach().float(), labels).item(), rel=1e-5)
    value.backward()
    assert low.grad.dtype == dtype


@pytest.mark.parametrize("name", LOSSES)
def test_the_registry_builds_every_loss_with_its_defaults(name):
    embeddings, labels = batch(2)
    assert LOSSES[name]()(embeddings, labels).ndim == 0


def test_two_restated_golden_values():
    """The authors' code on two small batches, without the folder of golden values."""
    points = [
        [0.3736137, -0.9275844], [0.6116494, -0.7911289], [-0.4329805, 0.9014033], [-0.8126389, 0.5827676],
        [0.8827803, -0.469786], [-0.1983801, 0.9801252], [-0.9813688, -0.1921335], [-0.8254809, -0.56443],
    ]  # fmt: skip
    value = TripletSemihardLoss(1.0, normalize=False)(torch.tensor(points), torch.tensor([2, 3, 0, 1, 2, 0, 1, 3]))
    assert value.item() == pytest.approx(0.3526177, rel=1e-5)
    points = [
        [-0.7823547, -2.0729542], [-0.4390736, -3.0548403], [-1.8985662, -0.5562683], [-1.8807104, -2.7512803],
        [0.2147514, 0.2302087], [-2.7999687, -0.1101121], [2.1166337, 0.349286], [0.2891885, -0.0816717],
    ]  # fmt: skip
    value = LiftedStructureLoss(1.0)(torch.tensor(points), torch.tensor([0, 2, 0, 1, 3, 1, 3, 2]))
    assert value.item() == pytest.approx(7.4067192, rel=1e-5)


def golden_files(folder, kind):
    files = sorted(folder.glob(f"base_{kind}_*.npz"))
    assert files
    return [np.load(file) for file in files]


@pytest.mark.parametrize(("kind", "loss_class"), [("triplet", TripletSemihardLoss), ("lifted", LiftedStructureLoss)])
def test_equals_the_authors_code(golden_folder, kind, loss_class):
    for case in golden_files(golden_folder, kind):
        embeddings = torch.tensor(case["embeddings"], requires_grad=True)
        value = loss_class(margin=float(case["margin"]), normalize=False)(embeddings, torch.tensor(case["labels"]))
        value.backward()
        assert value.item() == pytest.approx(float(case["loss"]), rel=1e-4)
        np.testing.assert_allclose(embeddings.grad, case["grad"], rtol=1e-3, atol=1e-5)


def test_npairs_cross_entropy_equals_the_authors_code_on_their_pairs(golden_folder):
    """Their code compares a set of anchors with a set of positives, one of each class, and regularizes with squared norms.

    The paper sums over all positive pairs of one batch and regularizes with norms. What is comparable is the cross-entropy on
    their similarities: with distinct labels, the positive of anchor i is candidate i and all others are negatives. Their
    regularizer, 0.25·λ·(mean ‖a‖² + mean ‖p‖²), is added here by hand.
    """
    compared = 0
    for case in golden_files(golden_folder, "npairs"):
        anchor = torch.tensor(case["embeddings_anchor"], requires_grad=True)
        positive = torch.tensor(case["embeddings_positive"], requires_grad=True)
        labels = torch.tensor(case["labels"])
        if len(labels.unique()) < len(labels):
            continue  # with repeated labels their target is uniform over several positives, which the paper's loss is not
        compared += 1
        same = labels[:, None] == labels[None, :]
        squares = anchor.square().sum(1).mean() + positive.square().sum(1).mean()
        value = npairs_cross_entropy(anchor @ positive.T, same, ~same) + 0.25 * float(case["reg_lambda"]) * squares
        value.backward()
        assert value.item() == pytest.approx(float(case["loss"]), rel=1e-4)
        np.testing.assert_allclose(anchor.grad, case["grad_anchor"], rtol=1e-3, atol=1e-6)
        np.testing.assert_allclose(positive.grad, case["grad_positive"], rtol=1e-3, atol=1e-6)
    assert compared > 0


def test_a_pair_loss_of_ones_own_needs_its_equation_only():
    class Attraction(PairLoss):
        def __init__(self, strength: float = 2.0, *, normalize: bool = True) -> None:
            super().__init__(normalize=normalize)
            self.strength = strength

        def pair_loss(self, points, pairs):
            return self.strength * torch.cdist(points, points)[pairs.positive].mean()

    embeddings, labels = batch(4)
    loss = Attraction(3.0)
    X, y = [oracle.unit(x) for x in embeddings.tolist()], labels.tolist()
    distances = [np.linalg.norm(np.subtract(X[i], X[j])) for i in range(12) for j in range(12) if i != j and y[i] == y[j]]
    assert loss(embeddings, labels).item() == pytest.approx(3.0 * np.mean(distances))
    assert repr(loss) == "Attraction(strength=3.0, normalize=True)"
    with pytest.warns(UserWarning, match="no pair of the same class"):
        assert loss(embeddings, torch.arange(12)).item() == 0.0
    with pytest.raises(ValueError, match="normalize must be True or False"):
        Attraction(normalize="no")


def test_a_pair_loss_without_an_equation_is_none():
    with pytest.raises(TypeError, match="abstract"):
        PairLoss()
