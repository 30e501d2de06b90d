"""A loss of the user's own, by dotted name: trained with, resumed, refused in one line, and never imported just to read a run."""

import sys

import pytest
import torch

import facetric
from facetric.runs import Run, open_run
from facetric.training import resume, train
from facetric.training.study import reproduction
from training.tiny_runs import rows_of, tiny_config

MODULE = """
import torch
from facetric.losses import ContrastiveLoss

class Proxies(torch.nn.Module):
    def __init__(self, num_classes, embedding_size, scale=1.0):
        super().__init__()
        self.proxies = torch.nn.Parameter(torch.randn(num_classes, embedding_size))
        self.scale = scale

    def forward(self, embeddings, labels):
        return torch.nn.functional.cross_entropy(self.scale * embeddings @ self.proxies.T, labels)

def contrastive(**options):
    return ContrastiveLoss(**options)

def number(margin):
    return 3

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
        ("my_losses.number", {"margin": 1.0}, "is not a torch.nn.Module but a int"),
    ],
)
def test_a_loss_that_cannot_be_made_is_refused_before_there_is_a_folder(module, tmp_path, name, options, message):
    with pytest.raises(ValueError, match=message):
        train(config_of(tmp_path / "runs", name, **options))
    assert not (tmp_path / "runs").exists()


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
