"""The options of a loss come from its signature: what is taken, what is refused, and that a new loss needs no second list."""

import io
import runpy
import tomllib
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import nn

from facetric.losses import LOSSES, FacilityLocationLoss, SubsampledLoss
from facetric.runs import ConfigError, read_config
from facetric.runs.config_file import parse_config, to_toml
from facetric.training import train
from facetric.training.processes import Processes
from facetric.training.step import build_loss
from training.tiny_runs import rows_of, tiny_config, tiny_tables

DATA = {"data": {"name": "glyphs"}}


def loss_table(**values):
    return parse_config(DATA | {"loss": values}).loss


def made(**values):
    processes = Processes(torch.device("cpu"))
    return build_loss(loss_table(**values), seed=3, dim=4, n_classes=5, processes=processes)


class SharpLoss(nn.Module):
    """The squared norm of the batch, with a weight.

    Args:
        sharpness: what the squared norm is multiplied by,
            at least 1.
        mode: nothing that matters.
    """

    def __init__(self, sharpness: float = 2.0, *, mode: str | None = None) -> None:
        super().__init__()
        if sharpness < 1:
            raise ValueError(f"sharpness must be at least 1; got {sharpness}: the default is 2.0")
        self.sharpness, self.mode = sharpness, mode

    def forward(self, embeddings, labels):
        return self.sharpness * embeddings.square().sum()


@pytest.fixture
def sharp(monkeypatch):
    monkeypatch.setitem(LOSSES, "sharp", SharpLoss)


@pytest.mark.usefixtures("sharp")
def test_a_new_loss_trains_with_its_own_option_after_one_line_in_the_registry(tmp_path):
    tables = tiny_tables(
        tmp_path, run={"steps": 3, "validate_every": 0}, loss={"name": "sharp", "sharpness": 3, "normalize": False}
    )
    config = parse_config(tables)
    result = train(config, console=Console(file=io.StringIO()))
    assert rows_of(result.folder)[-1]["loss"] > 0
    written = tomllib.loads((result.folder / "config.toml").read_text())["loss"]
    assert written["sharpness"] == 3.0
    assert read_config(result.folder / "config.toml").loss == config.loss
    config_file = tmp_path / "c.toml"
    config_file.write_text(to_toml(config))
    assert read_config(config_file, overrides=["loss.sharpness=5"]).loss.keywords() == {"sharpness": 5.0, "mode": None}


@pytest.mark.usefixtures("sharp")
@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"name": "sharp", "sharpnes": 3.0}, "unknown key 'sharpnes' in [loss]; did you mean 'sharpness'?"),
        ({"name": "sharp", "sharpness": 0.5}, "loss 'sharp': sharpness must be at least 1; got 0.5"),
        ({"name": "sharp", "sharpness": "big"}, "loss.sharpness of 'sharp' must be a finite number; got 'big'"),
        ({"name": "sharp", "margin": 1.0}, "loss 'sharp' takes no margin; it takes sharpness, mode"),
        ({"name": "triplet", "sharpness": 3.0}, "loss 'triplet' takes no sharpness; it takes margin, normalize"),
        ({"name": "sharpp"}, "did you mean 'sharp'?"),
    ],
)
def test_the_options_of_a_new_loss_are_checked_like_any_other(values, words):
    with pytest.raises(ConfigError) as refused:
        loss_table(**values)
    assert words in str(refused.value)


@pytest.mark.usefixtures("sharp")
def test_the_options_of_a_new_loss_are_described_among_the_settings():
    row = "| `sharpness` | sharp | `2.0` | what the squared norm is multiplied by, at least 1. |"
    page = runpy.run_path(str(Path(__file__).parents[2] / "docs/settings_page.py"))
    assert row in page["settings_table"]().splitlines()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"name": "triplet", "margin": "nmi"}, "loss.margin of 'triplet' must be a finite number; got 'nmi'"),
        ({"name": "triplet", "margin": "nmi"}, "the default is 1.0, as in --set loss.margin=1.0"),
        ({"name": "triplet", "margin": -1.0}, "loss 'triplet': margin must be a finite number, 0 or more; got -1.0"),
        ({"name": "triplet", "margin": float("nan")}, "loss.margin of 'triplet' must be a finite number; got nan"),
        ({"name": "triplet", "margin": True}, "loss.margin of 'triplet' must be a finite number; got True"),
        ({"name": "triplet", "margin": [1.0]}, "loss.margin of 'triplet' must be a finite number; got [1.0]"),
        ({"name": "npairs", "norm_weight": -0.1}, "norm_weight must be a finite number, 0 or more; got -0.1"),
        ({"margin": 0.3}, "margin must be one of nmi, vmeasure, ami, ari, f1, zero_one or a callable; got 0.3"),
        ({"margin": "nim"}, "loss 'facility_location': margin must be one of nmi, "),
        ({"margin_weight": -1}, "margin_weight (γ) must be a finite number, 0 or more; got -1.0"),
        ({"max_sweeps": 2.5}, "loss.max_sweeps of 'facility_location' must be a whole number; got 2.5"),
        ({"inference": "gredy"}, "loss.inference of 'facility_location' must be one of greedy, stochastic, random"),
        ({"squared": "yes"}, "loss.squared of 'facility_location' must be true or false; got 'yes'"),
        ({"name": []}, "loss.name must be one of facility_location, "),
        ({"name": "facility_location_subsets"}, "got 'facility_location_subsets'; did you mean 'facility_location'?"),
    ],
)
def test_an_impossible_option_is_refused_in_one_line(values, words):
    with pytest.raises(ConfigError) as refused:
        loss_table(**values)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_gamma_that_is_left_out_is_half_of_the_batch():
    table = loss_table()
    assert table.keywords()["margin_weight"] is None
    assert "margin_weight" not in to_toml(parse_config(DATA))
    assert loss_table(margin_weight="none") == table  # a value of a file, taken back on the command line
    assert loss_table(margin_weight=4).margin_weight == 4.0


def test_none_is_written_where_the_default_is_another():
    config = parse_config(DATA | {"loss": {"refine": "none"}})
    assert config.loss.keywords()["refine"] is None
    assert tomllib.loads(to_toml(config))["loss"]["refine"] == "none"
    assert parse_config(tomllib.loads(to_toml(config))) == config


def test_the_recommended_loss_is_the_loss_with_subsets():
    embeddings, labels = torch.randn(24, 4, generator=torch.Generator().manual_seed(0)), torch.arange(24) % 6
    from_config = made(n_subsets=16, margin_weight=8.0, inference="stochastic")
    plain = SubsampledLoss(FacilityLocationLoss(8.0, inference="stochastic", seed=3), 16, seed=3)
    assert repr(from_config) == repr(plain)
    for _ in range(2):
        assert from_config(embeddings, labels).item() == plain(embeddings, labels).item()


def test_a_run_with_subsets_logs_the_means_over_them(tmp_path):
    subsets = {"n_subsets": 16, "subset_size": 12, "margin_decay_every": 2}
    config = tiny_config(tmp_path, run={"steps": 3, "validate_every": 0}, loss={"name": "facility_location", **subsets})
    rows = rows_of(train(config, console=Console(file=io.StringIO())).folder)
    for row in rows:
        # The hinge of every subset is active this early, so the mean of the losses is that of their terms.
        expected = row["facility_score"] + row["margin_weight"] * row["margin"] - row["oracle_score"]
        assert row["loss"] == pytest.approx(expected, rel=1e-4)
        assert row["batch_nmi"] == pytest.approx(1 - row["margin"])
    assert [row["margin_weight"] for row in rows] == [6.0, 6.0, 6.0 * 0.94]  # half of the subset
