"""The loss on an embedding and on its first dimensions."""

import pytest
import torch

from facetric.losses import FacilityLocationLoss, MarginDecay, MatryoshkaLoss, SubsampledLoss, TripletLoss
from losses.test_facility_location import clustered


def test_it_is_the_mean_over_the_prefixes():
    embeddings, labels = clustered(m=24, n_classes=4)
    widths = (2, 5, embeddings.shape[1])
    value = MatryoshkaLoss({width: TripletLoss() for width in widths})(embeddings, labels)
    expected = 0.0
    for width in widths:
        prefix = torch.tensor([[row[i] for i in range(width)] for row in embeddings.tolist()])
        expected += TripletLoss()(prefix, labels).item() / 3
    assert value.item() == pytest.approx(expected, rel=1e-5)


def test_the_first_dimensions_get_gradient_from_every_width_and_the_others_from_the_whole():
    embeddings, labels = clustered(m=24, n_classes=4)
    whole, nested = (torch.nn.Parameter(embeddings.detach().clone()) for _ in range(2))
    TripletLoss()(whole, labels).backward()
    MatryoshkaLoss({2: TripletLoss(), embeddings.shape[1]: TripletLoss()})(nested, labels).backward()
    torch.testing.assert_close(nested.grad[:, 2:], whole.grad[:, 2:] / 2)
    assert (nested.grad[:, :2] - whole.grad[:, :2] / 2).abs().max() > 1e-6


def test_gamma_decays_for_every_width_and_the_explanation_is_that_of_the_whole():
    embeddings, labels = clustered(m=24, n_classes=4)
    loss = MatryoshkaLoss({3: SubsampledLoss(), embeddings.shape[1]: SubsampledLoss()})
    decay = MarginDecay(loss, every=1, rate=0.5)
    assert loss.last is None
    decay.step()
    loss(embeddings, labels)
    assert [part.last.margin_weight for part in loss.losses] == [3.0, 3.0]  # half of 12 images, halved
    assert loss.last is loss.losses[-1].last


def test_widths_that_the_embedding_does_not_have_are_refused():
    embeddings, labels = clustered(m=24, n_classes=4)
    with pytest.raises(ValueError, match=r"width 999 exceeds the embedding \(\d+\): lower it"):
        MatryoshkaLoss({999: FacilityLocationLoss()})(embeddings, labels)
    with pytest.raises(ValueError, match="needs at least one width"):
        MatryoshkaLoss({})
    with pytest.raises(ValueError, match="width must be a whole number, 1 or more; got 0"):
        MatryoshkaLoss({0: FacilityLocationLoss()})
