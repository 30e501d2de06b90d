"""The loss averaged over random subsets of the batch."""

import numpy as np
import pytest
import torch

from facetric.losses import FacilityLocationLoss, SubsampledLoss, TripletLoss
from losses.test_facility_location import clustered


def test_subsampled_loss_is_the_mean_over_its_subsets():
    embeddings, labels = clustered(m=40, n_classes=5)
    inner = FacilityLocationLoss()
    value = SubsampledLoss(inner, n_subsets=3, subset_size=20, seed=4)(embeddings, labels)
    generator = torch.Generator().manual_seed(4)
    subsets = [torch.randperm(40, generator=generator)[:20] for _ in range(3)]
    expected = torch.stack([inner(embeddings[s], labels[s]) for s in subsets]).mean()
    assert value.item() == pytest.approx(expected.item())
    value.backward()
    assert torch.isfinite(embeddings.grad).all()


def test_alone_it_averages_the_facility_location_loss_over_sixteen_halves():
    embeddings, labels = clustered(m=40, n_classes=5)
    loss = SubsampledLoss()
    assert loss(embeddings, labels).item() == SubsampledLoss(FacilityLocationLoss(), 16, 20)(embeddings, labels).item()
    assert len(loss.last.subsets) == 16
    assert loss.last.margin_weight == 10.0  # half of the subset


def test_the_terms_of_a_batch_are_the_means_over_its_subsets():
    embeddings, labels = clustered(m=40, n_classes=5)
    loss = SubsampledLoss(FacilityLocationLoss(3.0, margin="ari"), n_subsets=5, seed=2)
    assert loss.last is None
    value = loss(embeddings, labels)
    generator = torch.Generator().manual_seed(2)
    details = []
    for _ in range(5):
        subset = torch.randperm(40, generator=generator)[:20]
        details.append(FacilityLocationLoss(3.0, margin="ari").explain(embeddings[subset], labels[subset]))
    for term in ("facility_score", "oracle_score", "margin", "nmi", "value"):
        values = [getattr(detail, term) for detail in details]
        assert len(set(values)) > 1
        assert getattr(loss.last, term) == pytest.approx(np.mean(values))
    assert loss.last.value == pytest.approx(value.item())
    assert loss.last.margin_weight == 3.0
    assert loss.last.active


def test_a_loss_that_explains_nothing_is_averaged_without_terms():
    loss = SubsampledLoss(TripletLoss(), n_subsets=2)
    loss(*clustered())
    assert loss.last is None


def test_one_subset_of_the_whole_batch_is_the_loss_itself():
    embeddings, labels = clustered(m=40, n_classes=5)
    whole = SubsampledLoss(FacilityLocationLoss(), n_subsets=1, subset_size=40)(embeddings, labels)
    assert whole.item() == pytest.approx(FacilityLocationLoss()(embeddings, labels).item())


@pytest.mark.parametrize(("n_points", "size"), [(40, 20), (41, 20), (4, 2), (3, 2)])
def test_subsets_are_half_of_the_batch_unless_told_otherwise(n_points, size):
    embeddings, labels = torch.randn(n_points, 4, generator=torch.Generator().manual_seed(0)), torch.arange(n_points) % 2
    seen = []

    class Recorder(torch.nn.Module):
        def forward(self, embeddings, labels):
            seen.append(len(embeddings))
            return embeddings.sum()

    SubsampledLoss(Recorder(), n_subsets=3)(embeddings, labels)
    assert seen == [size] * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_subsets": 0}, "n_subsets must be a whole number, 1 or more; got 0"),
        ({"n_subsets": 2.5}, "n_subsets must be a whole number, 1 or more; got 2.5"),
        ({"subset_size": 1}, "subset_size must be a whole number, 2 or more; got 1"),
        ({"subset_size": "9"}, "subset_size must be a whole number, 2 or more; got '9'"),
        ({"seed": None}, "seed must be a whole number, 0 or more; got None"),
        ({"loss": FacilityLocationLoss}, "loss must be a module called as loss"),
    ],
)
def test_impossible_subsets_are_refused(options, message):
    embeddings, labels = clustered()
    with pytest.raises(ValueError, match=message):
        SubsampledLoss(**options)(embeddings, labels)
