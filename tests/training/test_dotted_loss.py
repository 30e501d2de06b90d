"""A loss of the user's own, by dotted name: trained with, resumed, refused in one line, and never imported just to read a run."""

import inspect
import sys

import pytest
import torch
from typer.testing import CliRunner

import facetric
from facetric.cli.main import app
from facetric.losses import build_loss
from facetric.losses.registry import _checked
from facetric.runs import Run, open_run
from facetric.training import resume, train
from facetric.training.study import reproduction
from facetric.training.study.trials import middle
from training.tiny_runs import rows_of, tiny_config

MODULE = """
from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

import torch
from facetric.losses import ContrastiveLoss

if TYPE_CHECKING:
    from nowhere import Table

class Proxies(torch.nn.Module):
    def __init__(self, num_classes, embedding_size, scale=1.0):
        super().__init__()
        self.proxies = torch.nn.Parameter(torch.randn(num_classes, embedding_size))
        self.scale = scale

    def forward(self, embeddings, labels):
        return torch.nn.functional.cross_entropy(self.scale * embeddings @ self.proxies.T, labels)

def contrastive(**options):
    return ContrastiveLoss(**options)

def spread(embeddings, labels, *, weight: float = 1.0, power: Literal[1, 2] = 2):
    same = (labels[:, None] == labels).to(embeddings.dtype)
    return weight * torch.cdist(embeddings, embeddings).mul(same).pow(power).mean()

strong_spread = partial(spread, weight=3.0)

def rows(embeddings, labels):
    return embeddings.sum(dim=1)

def loss_of(margin, scale):
    return ContrastiveLoss()

def maker(margin: float, scale: float):
    return ContrastiveLoss(margin=margin * scale)

def number(margin):
    return 3

class Typed(ContrastiveLoss):
    def __init__(self, margin: float, table: Table = None, *, scale=2.0, n=3):
        super().__init__(margin=margin)

limit = 4
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "my_losses.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("my_losses", None)


def config_of(folder, name, **options):
    return tiny_config(folder, batches={"size": 24}, loss={"name": name, "options": options})


def test_a_loss_with_proxies_of_its_own_is_trained_and_resumed_exactly(module, tmp_path):
    whole = train(config_of(tmp_path / "whole", "my_losses.Proxies", scale=8.0))
    losses = [row["loss"] for row in rows_of(whole.folder) if "loss" in row]
    assert losses[-1] < losses[0]

    def stop(step, loss):
        if step == 3:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        train(config_of(tmp_path / "partly", "my_losses.Proxies", scale=8.0), on_step=stop)
    assert rows_of(resume(tmp_path / "partly" / "tiny").folder) == rows_of(whole.folder)


def test_open_options_go_to_the_function_that_is_named(module, tmp_path):
    named = train(config_of(tmp_path / "named", "my_losses.contrastive", margin=0.9))
    ours = train(tiny_config(tmp_path / "ours", batches={"size": 24}, loss={"name": "contrastive", "margin": 0.9}))
    assert [row["loss"] for row in rows_of(named.folder) if "loss" in row] == [
        row["loss"] for row in rows_of(ours.folder) if "loss" in row
    ]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("nowhere.Loss", {}, "the loss 'nowhere.Loss' cannot be imported .*: install its package, or start in the folder"),
        ("my_losses.Proxy", {}, "has no loss 'Proxy'; did you mean 'my_losses.Proxies'"),
        ("my_losses.limit", {}, "has no loss 'limit'"),
        ("my_losses.Proxies", {"margin": 1.0}, "takes no margin; it takes num_classes, embedding_size, scale: leave loss.opt"),
        ("my_losses.number", {}, "loss 'my_losses.number' needs margin: set it, as in --set loss.options.margin=…"),
        (
            "my_losses.number",
            {"margin": 1.0},
            r"is not a torch.nn.Module but a int: name a class of losses, .* or a function loss\(embeddings, labels\)",
        ),
        ("my_losses.spread", {"margin": 1.0}, "takes no margin; it takes weight, power: leave loss.options.margin out"),
        (
            "my_losses.spread",
            {"weight": "abc"},
            r"loss\.options\.weight of .* must be a finite number; got 'abc': the default is 1\.0",
        ),
        ("my_losses.spread", {"power": 3}, "must be one of 1, 2; got 3: the default is 2, as in --set loss.options.power=2"),
        ("my_losses.maker", {}, "needs margin: set it, as in --set loss.options.margin=…"),
        (
            "my_losses.Typed",
            {"margin": "abc"},
            r"must be a finite number; got 'abc': change it, as in --set loss\.options\.margin=…",
        ),
        (
            "my_losses.Typed",
            {"margin": 1, "scale": "abc"},
            "loss.options.scale of .* must be a finite number; got 'abc': the default",
        ),
        ("my_losses.Typed", {"margin": 1, "n": True}, "loss.options.n of .* must be a finite number; got True: the default is 3"),
    ],
)
def test_a_loss_that_cannot_be_made_is_refused_before_there_is_a_folder(module, tmp_path, name, options, message):
    with pytest.raises(ValueError, match=message):
        train(config_of(tmp_path / "runs", name, **options))
    assert not (tmp_path / "runs").exists()


def losses_of(result):
    return [row["loss"] for row in rows_of(result.folder) if "loss" in row]


def test_a_function_of_embeddings_and_labels_is_a_loss_and_its_options_are_bound(module, tmp_path):
    plain, triple, partly = (
        losses_of(train(config_of(tmp_path / str(i), name, **options)))
        for i, (name, options) in enumerate(
            [("my_losses.spread", {}), ("my_losses.spread", {"weight": 3}), ("my_losses.strong_spread", {})]
        )
    )
    assert triple[0] == pytest.approx(3 * plain[0])
    assert partly == triple
    assert triple[-1] < triple[0]


def test_a_function_that_makes_a_loss_gets_its_arguments_by_name(module):
    assert build_loss("my_losses.maker", {"margin": 0.5, "scale": 0.5}).margin == 0.25


def test_a_number_that_is_whole_by_default_stays_whole(module):
    name, option = "my_losses.Typed", inspect.Parameter("n", inspect.Parameter.KEYWORD_ONLY, default=3)
    assert type(_checked(name, option, 5)) is int
    assert type(_checked(name, option.replace(default=3.0), 5)) is float


@pytest.mark.parametrize(("name", "found"), [("my_losses.rows", r"tensor\(\["), ("my_losses.loss_of", "ContrastiveLoss")])
def test_a_function_that_returns_no_number_is_named_with_what_it_returned(module, tmp_path, name, found):
    with pytest.raises(
        ValueError, match=rf"{name}\(embeddings, labels\) must return a scalar tensor; got {found}.*: return one, or"
    ):
        train(config_of(tmp_path, name))


def test_resume_refuses_an_option_of_another_type_in_one_line(module, tmp_path):
    result = train(config_of(tmp_path, "my_losses.spread", weight=2.0))
    text = result.run.config_file.read_text()
    assert "weight = 2.0" in text
    result.run.config_file.write_text(text.replace("weight = 2.0", 'weight = "abc"'))
    refused = CliRunner().invoke(app, ["resume", str(result.folder)])
    assert refused.exit_code == 2
    assert "loss.options.weight of 'my_losses.spread' must be a finite number; got 'abc'" in refused.stderr.splitlines()[-1]


def test_reading_a_run_imports_nothing(module, tmp_path, monkeypatch):
    result = train(config_of(tmp_path, "my_losses.Proxies"))
    monkeypatch.chdir(result.folder)
    del sys.modules["my_losses"]
    (tmp_path / "my_losses.py").write_text("raise SystemExit('imported')")
    assert open_run(result.folder).config.loss.name == "my_losses.Proxies"
    assert facetric.load(result.folder).encode(torch.zeros(32, 32, dtype=torch.uint8).numpy()).shape == (1, 16)
    assert Run(result.folder).path.is_dir()
    assert "my_losses" not in sys.modules


def test_a_study_takes_it_as_a_method(module, tmp_path):
    study = reproduction("glyphs", tmp_path / "study", setting="scratch", methods=("my_losses.Proxies",), n_trials=1, n_seeds=1)
    assert list(study.methods) == ["my_losses.Proxies"]
    config = study.config("my_losses.Proxies", {"optimizer.head_lr": 1e-3})
    assert (config.loss.name, config.loss.options) == ("my_losses.Proxies", {})
    with pytest.raises(ValueError, match=r"--method must be one of .*; got 'proxies'"):
        reproduction("glyphs", tmp_path / "study", setting="scratch", methods=("proxies",))


def glyphs_study(tmp_path, *methods, **options):
    return reproduction("glyphs", tmp_path / "study", setting="scratch", methods=methods, **options)


def test_losses_of_a_study_have_options_of_their_own_which_are_not_searched(module, tmp_path):
    methods = (
        *("my_losses.Proxies(scale=8.0)", "my_losses.Proxies(scale=2.0)", "my_losses.spread", "facility_location"),
        *("facility_location(margin_weight=8, margin='ami')", "soft_triple(la=9)"),
    )
    study = glyphs_study(tmp_path, *methods)
    names = {
        "my_losses.Proxies-scale-8.0": {"scale": 8.0},
        "my_losses.Proxies-scale-2.0": {"scale": 2.0},
        "my_losses.spread": {},
        "facility_location": {"margin_weight": pytest.approx(0.49 * 128, rel=0.01), "margin": "nmi"},
        "facility_location-margin_weight-8-margin-ami": {"margin_weight": 8.0, "margin": "ami"},
        "soft_triple-la-9": {"centers_per_class": 2, "la": 9},
    }
    assert list(study.methods) == list(names)
    for name, options in names.items():
        config = study.config(name, middle(study.space(name)))
        assert options.items() <= config.loss.keywords().items()
    assert "loss.margin_weight/m" in study.space("facility_location")
    assert "loss.margin_weight/m" not in study.space("facility_location-margin_weight-8-margin-ami")
    assert "loss.margin_decay" in study.space("facility_location-margin_weight-8-margin-ami")
    assert "loss.options.la" not in study.space("soft_triple-la-9")


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("my_losses.Proxies(scale='abc')", r"loss\.options\.scale of 'my_losses\.Proxies' must be a finite number; got 'abc'"),
        (
            "my_losses.Proxies(8.0)",
            r"--method takes a loss and its options by name, as in --method 'my_losses\.Proxies\(margin=0\.5",
        ),
        ("my_losses.Typed", "needs margin"),
        ("triplet_semihard(margn=0.3)", "unknown key 'margn'"),
        (
            "facility_location()",
            "every --method needs a file name of its own; got facility_location, facility_location\\(\\): leave",
        ),
        ("triplet_semihrd(margin=0.3)", "did you mean 'triplet_semihard'"),
    ],
)
def test_a_method_that_cannot_be_made_is_refused_before_there_is_a_folder(module, tmp_path, method, message):
    with pytest.raises(ValueError, match=message) as error:
        glyphs_study(tmp_path, "facility_location", method)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "study").exists()


def test_an_option_for_every_loss_of_a_study_names_the_way_to_give_it_to_one(module, tmp_path):
    with pytest.raises(
        ValueError, match=r"in a study give them to their loss, as in --method 'my_module\.MyLoss\(margin=0\.5\)'"
    ):
        glyphs_study(tmp_path, "my_losses.Proxies", "facility_location", overrides=["loss.options.scale=8.0"])


def test_a_study_with_a_function_and_options_runs_to_its_table(module, tmp_path):
    small = ["data.options.min_images=17", "batches.size=24", "model.dim=16", "run.threads=1", "data.validation_fraction=0.2"]
    study = glyphs_study(tmp_path, "my_losses.spread(weight=0.5)", steps=10, n_trials=1, n_seeds=1, overrides=small)
    names = [row.name for row in study.run().rows]
    assert names[-1] == "my_losses.spread-weight-0.5-seed0"
    assert (study.folder / "search" / "my_losses.spread-weight-0.5.json").is_file()
