"""The clustering loss: value, gradient, laws, devices, and what it refuses."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from facetric import FacilityLocationLoss
from facetric.losses import LOSSES, GlobalBatch, MarginDecay, SubsampledLoss, TripletSemihardLoss
from facetric.metrics import nmi
from oracles import batch_clustering as oracle
from random_batches import distance_matrix, random_batch

# Random batches may be of one class, or of distinct ones; the losses say so once.
pytestmark = pytest.mark.filterwarnings("ignore:.* has no pair of")

seeds = st.integers(0, 2**32 - 1)


def clustered(m=32, n_classes=8, d=6, spread=1.0, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(m) % n_classes
    centers = torch.randn(n_classes, d, generator=generator, dtype=dtype)
    embeddings = centers[labels] + spread * torch.randn(m, d, generator=generator, dtype=dtype)
    return embeddings.requires_grad_(), labels


@given(seed=seeds, gamma=st.sampled_from([0.0, 0.5, 5.0]))
def test_the_value_is_the_papers_hinge_at_the_medoids_found(seed, gamma):
    points, labels = random_batch(np.random.default_rng(seed))
    D, y = distance_matrix(points).tolist(), labels.tolist()
    loss = FacilityLocationLoss(gamma, normalize=False)
    detail = loss.explain(torch.tensor(points), torch.tensor(labels))
    S = oracle.pam(D, y, gamma, oracle.greedy(D, y, gamma), 5)[-1]
    assert detail.medoids.tolist() == S
    expected = max(0.0, oracle.objective(D, y, gamma, S) - oracle.oracle_score(D, y))
    assert detail.value == pytest.approx(expected, abs=1e-8)
    assert loss(torch.tensor(points), torch.tensor(labels)).item() == pytest.approx(detail.value)


def test_the_gradient_is_that_of_the_papers_backpropagation_section():
    """∇F at S_PAM minus ∇F̃ at the oracle medoids, summed by hand from unit vectors."""
    embeddings, labels = clustered()
    loss = FacilityLocationLoss(2.0, normalize=False)
    detail = loss.explain(embeddings, labels)
    assert detail.active
    X = embeddings.detach().numpy()
    expected = np.zeros_like(X)
    for i in range(len(X)):
        for medoid, sign in ((detail.medoids[detail.assignment[i]], -1.0), (detail.oracle_medoids[labels[i]], +1.0)):
            difference = X[i] - X[medoid]
            length = np.linalg.norm(difference)
            if length > 0:
                expected[i] += sign * difference / length
                expected[medoid] -= sign * difference / length
    loss(embeddings, labels).backward()
    np.testing.assert_allclose(embeddings.grad, expected, atol=1e-12)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_gradcheck_in_float64_away_from_kinks(normalize, squared, reduction):
    embeddings, labels = clustered(m=16, n_classes=4)
    loss = FacilityLocationLoss(1.5, normalize=normalize, squared=squared, reduction=reduction)
    assert loss.explain(embeddings, labels).active
    assert torch.autograd.gradcheck(lambda x: loss(x, labels), (embeddings,))


def test_mean_reduction_divides_by_the_batch_size():
    embeddings, labels = clustered()
    total = FacilityLocationLoss(reduction="sum")(embeddings, labels)
    assert FacilityLocationLoss(reduction="mean")(embeddings, labels).item() == pytest.approx(total.item() / len(labels))


def test_far_apart_clusters_and_a_small_margin_cost_nothing():
    embeddings, labels = clustered(spread=1e-3)
    value = FacilityLocationLoss(0.01, normalize=False)(embeddings, labels)
    value.backward()
    assert value.item() == 0.0
    assert embeddings.grad.abs().max() == 0.0


@given(seed=seeds, gamma=st.sampled_from([0.0, 1.0, 20.0]))
def test_loss_is_never_negative_and_ignores_names_of_classes(seed, gamma):
    rng = np.random.default_rng(seed)
    points, labels = random_batch(rng)
    names = rng.permutation(labels.max() + 1) * 7_919_000_017 - 10**6
    loss = FacilityLocationLoss(gamma)
    value = loss(torch.tensor(points), torch.tensor(labels))
    assert value.item() >= 0.0
    assert loss(torch.tensor(points), torch.tensor(names[labels])).item() == pytest.approx(value.item(), abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_permuting_the_batch_permutes_the_gradient(seed):
    """On generic points in few classes: pairs of points, which tie as medoids of each other, do not occur."""
    embeddings, labels = clustered(m=40, n_classes=5, seed=seed)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(seed))
    loss = FacilityLocationLoss(1.0)
    (plain,) = torch.autograd.grad(loss(embeddings, labels), embeddings)
    shuffled = embeddings.detach()[order].requires_grad_()
    value = loss(shuffled, labels[order])
    (permuted,) = torch.autograd.grad(value, shuffled)
    assert value.item() == pytest.approx(loss(embeddings, labels).item(), abs=1e-10)
    torch.testing.assert_close(permuted, plain[order])


@pytest.mark.parametrize("labels", [[3] * 5, [9, 1, 4, 7, 0]], ids=["one class", "all distinct"])
@pytest.mark.parametrize("duplicates", [False, True])
def test_trivial_batches_give_zero_with_zero_gradient(labels, duplicates):
    embeddings = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    if duplicates:
        embeddings[:] = embeddings[0]
    embeddings.requires_grad_()
    for refine in ("pam", "local_search", None):
        value = FacilityLocationLoss(10.0, refine=refine)(embeddings, torch.tensor(labels))
        embeddings.grad = None
        value.backward()
        assert value.item() == 0.0
        assert embeddings.grad.abs().max() == 0.0


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("squared", [True, False])
def test_duplicates_and_zero_vectors_never_give_nan(normalize, squared):
    embeddings = torch.zeros(8, 3)
    embeddings[3:] = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    embeddings[4] = embeddings[3]
    embeddings.requires_grad_()
    value = FacilityLocationLoss(5.0, normalize=normalize, squared=squared)(embeddings, torch.tensor([0, 1, 0, 1, 2, 2, 0, 1]))
    value.backward()
    assert value.item() > 0
    assert torch.isfinite(embeddings.grad).all()
    assert embeddings.grad.abs().max() < 1e3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_works_under_autocast_with_half_precision_embeddings(dtype):
    embeddings, labels = clustered(dtype=torch.float32)
    network = nn.Linear(6, 4)
    with torch.autocast("cpu", dtype=dtype):
        output = network(embeddings)
        assert output.dtype == dtype
        value = FacilityLocationLoss()(output, labels)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(FacilityLocationLoss()(output.detach().float(), labels).item(), rel=1e-5)
    value.backward()
    assert torch.isfinite(network.weight.grad).all()


def test_a_plain_training_loop_learns_to_separate_the_classes():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(64) % 8
    signal = torch.randn(8, 4, generator=generator)[labels]
    images = torch.cat([signal, 3 * torch.randn(64, 12, generator=generator)], dim=1)  # mostly noise
    network = nn.Linear(16, 4)
    loss = FacilityLocationLoss(margin_weight=4.0)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    before = loss.explain(network(images), labels)
    for _ in range(200):
        optimizer.zero_grad()
        loss(network(images), labels).backward()
        optimizer.step()
    after = loss.explain(network(images), labels)
    assert after.value < 0.5 * before.value
    assert after.margin < before.margin


def test_runs_on_another_device():
    """The meta device has no storage to copy to the host, so an accelerator is needed for the real thing."""
    if not torch.accelerator.is_available():
        pytest.skip("no accelerator on this machine")
    device = torch.accelerator.current_accelerator()
    embeddings, labels = clustered(dtype=torch.float32)
    on_host = FacilityLocationLoss()(embeddings, labels)
    moved = embeddings.detach().to(device).requires_grad_()
    value = FacilityLocationLoss()(moved, labels)
    value.backward()
    assert value.device.type == device.type
    assert value.item() == pytest.approx(on_host.item(), rel=1e-4)


def test_stochastic_inference_is_repeated_by_the_seed():
    embeddings, labels = clustered(m=64, n_classes=16)
    first = [FacilityLocationLoss(inference="stochastic", refine=None, seed=1).explain(embeddings, labels) for _ in range(2)]
    other = FacilityLocationLoss(inference="stochastic", refine=None, seed=2).explain(embeddings, labels)
    assert first[0].medoids.tolist() == first[1].medoids.tolist() != other.medoids.tolist()


def test_auto_is_exact_up_to_the_limit_and_says_once_when_it_is_not(caplog):
    embeddings, labels = clustered(m=64, n_classes=16)
    exact, auto = (FacilityLocationLoss(inference=name).explain(embeddings, labels) for name in ("greedy", "auto"))
    assert auto.medoids.tolist() == exact.medoids.tolist()
    assert not caplog.records
    embeddings, labels = clustered(m=1400, n_classes=300, d=2)
    sampled, auto = (FacilityLocationLoss(inference=name, refine=None, seed=4) for name in ("stochastic", "auto"))
    for _ in range(2):
        sampled(embeddings, labels)
        auto(embeddings, labels)
        assert auto.last.medoids.tolist() == sampled.last.medoids.tolist()
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        'inference "auto" is stochastic for batches such as this one, of 1400 images in 300 classes'
    ]


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_value_and_gradient_are_those_of_plain_torch_at_the_medoids_found(normalize, squared, reduction):
    embeddings, labels = clustered(m=40, n_classes=10)
    loss = FacilityLocationLoss(normalize=normalize, squared=squared, reduction=reduction)
    value = loss(embeddings, labels)
    (gradient,) = torch.autograd.grad(3.0 * value, embeddings)
    last = loss.last
    points = embeddings / embeddings.norm(dim=1, keepdim=True) if normalize else embeddings
    at = torch.tensor(np.stack([last.medoids[last.assignment], last.oracle_medoids[labels]]))
    travel = (points - points[at]).square().sum(dim=2)
    if not squared:
        travel = travel.clamp_min(1e-300).sqrt()
    plain = (travel[1] - travel[0]).sum() + last.margin_weight * last.margin
    plain = plain / 40 if reduction == "mean" else plain
    assert last.active
    torch.testing.assert_close(value, plain, rtol=1e-12, atol=0)
    torch.testing.assert_close(gradient, torch.autograd.grad(3.0 * plain, embeddings)[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("normalize", [True, False])
def test_the_gradient_has_a_gradient(normalize):
    embeddings, labels = clustered(m=12, n_classes=4, d=3)
    loss = FacilityLocationLoss(normalize=normalize)
    assert torch.autograd.gradcheck(lambda x: loss(x, labels), (embeddings,))
    assert torch.autograd.gradgradcheck(lambda x: loss(x, labels), (embeddings,))


GOOD, LABELS = torch.zeros(4, 2), torch.tensor([0, 0, 1, 1])


@pytest.mark.parametrize(
    ("embeddings", "labels", "message"),
    [
        (torch.tensor([[0.0, 1.0], [torch.nan, 0.0], [1.0, 1.0], [0.0, 0.0]]), LABELS, "finite; 1 of 4 rows .* row 1"),
        (torch.tensor([[0.0, 1.0], [0.0, 0.0], [1.0, 1.0], [torch.inf, 0.0]]), LABELS, "finite; 1 of 4 rows .* row 3"),
        (GOOD, LABELS[:3], r"one entry per embedding; got shape \(3,\) for 4"),
        (GOOD, LABELS[:, None], r"one entry per embedding; got shape \(4, 1\)"),
        (GOOD, LABELS.float(), "labels must be integers.*torch.float32"),
        (GOOD, None, "labels must be integers, one class id per image; got NoneType: pass a tensor of class ids"),
        (GOOD, ["a", "a", "b", "b"], "labels must be integers, one class id per image; got list"),
        (None, LABELS, "embeddings must be a floating-point tensor.*NoneType"),
        (GOOD[:, :0], LABELS, r"shape \(batch, dimension\); got \(4, 0\)"),
        (GOOD.long(), LABELS, "floating-point tensor.*torch.int64"),
        (GOOD.numpy(), LABELS, "floating-point tensor.*ndarray"),
        (GOOD[None], LABELS, r"shape \(batch, dimension\); got \(1, 4, 2\)"),
        (GOOD[:0], LABELS[:0], "a batch needs images; got none"),
    ],
)
def test_bad_batches_are_refused(embeddings, labels, message):
    for loss in (*(kind() for kind in LOSSES.values()), GlobalBatch(FacilityLocationLoss())):
        with pytest.raises(ValueError, match=message):
            loss(embeddings, labels)


def test_gamma_is_half_of_the_batch_unless_told_otherwise():
    embeddings, labels = clustered(m=30, n_classes=6)
    detail = FacilityLocationLoss().explain(embeddings, labels)
    assert detail.margin_weight == 15.0
    assert detail.value == FacilityLocationLoss(15.0).explain(embeddings, labels).value
    assert FacilityLocationLoss(7.0).explain(embeddings, labels).margin_weight == 7.0
    smaller, classes = clustered(m=12, n_classes=3)
    loss = FacilityLocationLoss()
    assert [loss.explain(*batch).margin_weight for batch in ((embeddings, labels), (smaller, classes))] == [15.0, 6.0]


def test_mean_reduction_divides_both_terms_of_the_hinge():
    """ℓ/m = (F − F̃)/m + (γ/m)·Δ: with γ = m/2 a completely wrong clustering costs a half, whatever the size of the batch."""
    for m in (24, 48):
        embeddings, labels = clustered(m=m, n_classes=6)
        detail = FacilityLocationLoss(reduction="mean").explain(embeddings, labels)
        assert detail.active
        travel = (detail.facility_score - detail.oracle_score) / m
        assert detail.value == pytest.approx(travel + 0.5 * detail.margin)


def test_margin_decay_multiplies_gamma_once_per_period_and_resumes():
    loss = FacilityLocationLoss(margin_weight=2.0)
    decay = MarginDecay(loss, every=3, rate=0.5)
    seen = []
    for _ in range(7):
        decay.step()
        seen.append(loss.gamma(n_images=128))
    assert seen == [2.0, 2.0, 1.0, 1.0, 1.0, 0.5, 0.5]
    resumed_loss = FacilityLocationLoss(margin_weight=2.0)
    resumed = MarginDecay(resumed_loss, every=3, rate=0.5)
    resumed.load_state_dict(decay.state_dict())
    assert resumed_loss.gamma(n_images=128) == 0.5


def test_gamma_stays_at_its_floor_which_is_said_once(caplog):
    """By default 0.94 after every 45 steps, down to a twentieth: 0.94⁴⁹ is the first below it."""
    loss = FacilityLocationLoss(margin_weight=28.0)
    decay = MarginDecay(loss)
    seen = []
    for _ in range(3000):
        decay.step()
        seen.append(loss.gamma(n_images=56))
    assert (seen[43], seen[44]) == (28.0, 28.0 * 0.94)
    assert seen[499] == 28.0 * 0.94**11 > 14  # a pass over 56 images, 0.94⁵⁰⁰, would leave nothing
    assert seen[45 * 49 - 2] == 28.0 * 0.94**48
    assert set(seen[45 * 49 - 1 :]) == {28.0 * 0.05}
    assert [record.getMessage() for record in caplog.records] == [
        "γ has decayed to 0.05 of its first value after 2205 steps, and stays there"
    ]


def test_gamma_may_vanish_where_that_is_wanted():
    loss = FacilityLocationLoss(margin_weight=1.0)
    decay = MarginDecay(loss, every=1, rate=0.5, floor=0.0)
    for _ in range(40):
        decay.step()
    assert loss.gamma(n_images=8) == 0.5**40


@pytest.mark.parametrize("wrap", [lambda loss: loss, SubsampledLoss, lambda loss: GlobalBatch(SubsampledLoss(loss))])
def test_margin_decay_scales_half_of_the_batch_too_and_finds_the_loss_inside_of_others(wrap):
    embeddings, labels = clustered(m=32, n_classes=8)
    loss = FacilityLocationLoss()
    decay = MarginDecay(wrap(loss), every=1, rate=0.25)
    decay.step()
    assert loss.explain(embeddings, labels).margin_weight == 4.0


def test_margin_decay_refuses_what_cannot_decay():
    loss = FacilityLocationLoss()
    for rate in (0.0, 1.5, -1.0, float("nan"), "0.9", True):
        with pytest.raises(ValueError, match="rate must be in"):
            MarginDecay(loss, every=1, rate=rate)
    for every in (0, 2.5, "3", True):
        with pytest.raises(ValueError, match="every must be a whole number, 1 or more"):
            MarginDecay(loss, every=every)
    with pytest.raises(ValueError, match=r"floor must be a finite number, 0 or more; got -0\.1"):
        MarginDecay(loss, floor=-0.1)
    with pytest.raises(ValueError, match="needs a loss with a γ; got TripletSemihardLoss"):
        MarginDecay(TripletSemihardLoss(), every=1)


@pytest.mark.parametrize("inference", ["stochastic", "random"])
def test_explaining_a_batch_changes_nothing_and_tells_what_the_next_forward_pass_finds(inference):
    embeddings, labels = clustered(m=64, n_classes=16)
    watched, undisturbed = (FacilityLocationLoss(inference=inference, refine=None, seed=3) for _ in range(2))
    for _ in range(4):
        explained = [watched.explain(embeddings, labels).medoids.tolist() for _ in range(3)]
        watched(embeddings, labels)
        undisturbed(embeddings, labels)
        assert watched.last.medoids.tolist() == undisturbed.last.medoids.tolist()
        assert explained == [watched.last.medoids.tolist()] * 3


def test_the_loss_survives_pickling_and_deepcopy():
    loss = pickle.loads(pickle.dumps(FacilityLocationLoss(3.0, margin="ari")))
    assert (loss.margin_weight, loss.margin) == (3.0, "ari")
    assert loss(*clustered()).item() > 0.0


def test_the_last_batch_is_explained_without_solving_again():
    embeddings, labels = torch.randn(24, 5, generator=torch.Generator().manual_seed(0)), torch.arange(24) % 6
    loss = FacilityLocationLoss(margin_weight=2.0)
    assert loss.last is None
    n_inferences = 0

    def counted(infer):
        nonlocal n_inferences
        n_inferences += 1
        return infer()

    loss.share = counted
    value = loss(embeddings, labels)
    assert n_inferences == 1
    explained = loss.explain(embeddings, labels)
    assert loss.last.value == float(value) == explained.value
    assert loss.last.medoids.tolist() == explained.medoids.tolist()
    assert loss.last.nmi == pytest.approx(nmi(labels.numpy(), explained.assignment), abs=1e-12)


def test_the_explained_nmi_is_the_nmi_whatever_the_margin():
    embeddings, labels = torch.randn(24, 5, generator=torch.Generator().manual_seed(1)), torch.arange(24) % 6
    detail = FacilityLocationLoss(margin="ari").explain(embeddings, labels)
    assert detail.nmi == pytest.approx(nmi(labels.numpy(), detail.assignment), abs=1e-12)
    assert detail.margin != pytest.approx(1 - detail.nmi)
