"""What a loss is made with: impossible arguments are refused at once, and the loss shows what it was given."""

import inspect
import math

import pytest
import torch

from facetric.losses import LOSSES, FacilityLocationLoss, GlobalBatch, SubsampledLoss

OPTIONS = [(name, key) for name in LOSSES for key in inspect.signature(LOSSES[name]).parameters]
NUMBERS = [(name, key) for name, key in OPTIONS if key in ("margin_weight", "margin", "norm_weight")]
FLAGS = [(name, key) for name, key in OPTIONS if key in ("normalize", "squared")]


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf, "nmi ", "1.0", True, [1.0], 1j], ids=str)
@pytest.mark.parametrize(("name", "key"), NUMBERS)
def test_an_impossible_number_is_refused(name, key, value):
    with pytest.raises(ValueError, match=rf"^{key}.* must be .*; got .*: ") as refused:
        LOSSES[name](**{key: value})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("value", ["false", 0, None], ids=str)
@pytest.mark.parametrize(("name", "key"), FLAGS)
def test_what_is_not_a_bool_is_no_flag(name, key, value):
    with pytest.raises(ValueError, match=rf"^{key} must be True or False; got {value!r}"):
        LOSSES[name](**{key: value})


@pytest.mark.parametrize(
    "options",
    [
        {"margin": "nim"},
        {"inference": "x"},
        {"refine": "x"},
        {"reduction": "none"},
        {"max_sweeps": -1},
        {"max_sweeps": 2.0},
        {"seed": -1},
        {"seed": "a"},
    ],
    ids=str,
)
def test_unknown_options_are_refused_when_the_loss_is_made(options):
    with pytest.raises(ValueError, match=rf"{next(iter(options))}.* got "):
        FacilityLocationLoss(**options)


def test_a_triplet_loss_refuses_the_margin_of_the_clustering_loss():
    with pytest.raises(ValueError, match=r"^margin must be a finite number, 0 or more; got 'nmi': the default is 1\.0$"):
        LOSSES["triplet"](margin="nmi")


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_shows_its_options(name):
    loss = LOSSES[name]()
    for key, option in inspect.signature(LOSSES[name]).parameters.items():
        assert f"{key}={option.default!r}" in repr(loss) or key == "seed"


def test_wrapped_losses_show_what_they_wrap():
    shown = repr(GlobalBatch(SubsampledLoss(FacilityLocationLoss(3.0), 4)))
    for words in ("GlobalBatch(", "SubsampledLoss(", "n_subsets=4", "FacilityLocationLoss(", "margin_weight=3.0"):
        assert words in shown


def test_arguments_of_numpy_and_integers_are_numbers_too():
    np = pytest.importorskip("numpy")
    embeddings, labels = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 2
    for margin in (1, np.float32(1.0), np.int64(1)):
        assert LOSSES["triplet"](margin=margin)(embeddings, labels).item() == LOSSES["triplet"]()(embeddings, labels).item()
