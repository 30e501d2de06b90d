"""The choice of the network: which one, why, within its time, and that a stopped choice continues."""

import json
import os
import re
import signal

import numpy as np
import pytest
from huggingface_hub import constants
from PIL import Image
from safetensors.torch import save_file
from typer.testing import CliRunner

from facetric.cli.main import app
from facetric.embedder import build_network
from facetric.runs import Run, new_images, open_run, recipe
from facetric.training import resume, train
from facetric.training.choice import decide, recipes_by_network
from facetric.training.choice_candidates import (
    CLOSED_FORM,
    FINE_TUNED,
    HALFWAY,
    HEAD,
    PRETRAINED,
    embedding_seconds,
    train_in_memory,
)
from facetric.training.choice_record import Record, summary

VIT = "vit_tiny_patch16_224"


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Eight classes, each a color; the cache of their activations; random weights of a small transformer."""
    place = tmp_path_factory.mktemp("networks")
    rng = np.random.default_rng(0)
    for label in range(8):
        (place / "photos" / str(label)).mkdir(parents=True)
        for i in range(4):
            pixels = rng.integers(0, 200, 3) * 0.2 + 20 * label + rng.integers(0, 40, (24, 32, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(place / "photos" / str(label) / f"{i}.jpg")
    weights = build_network(VIT, dim=None, weights="none", image_size=64).backbone.state_dict()
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, place / "vit.safetensors")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FACETRIC_CACHE", str(place / "cache"))
        patch.setattr("facetric.training.choice.N_SPLITS", 2)
        yield place


def transformer(photos, name, *others):
    """A run of the transformer; the default network is compared with it."""
    place = [f"run.folder={photos}", f"run.name={name}", "data.options.test_fraction=0.25", "run.threads=1", "run.steps=2"]
    small = [f"model.backbone={VIT}", f"model.weights={photos / 'vit.safetensors'}", "data.size=72", "model.image_size=64"]
    return recipe("folder", photos / "photos", overrides=[*place, *small, *others]).config


def test_a_transformer_is_chosen_for_and_trained_behind_its_last_frozen_block(photos):
    config = transformer(photos, "alone", "run.choose_minutes=5")
    assert (config.model.freeze_through, config.model.cached_views, config.model.head_refit) == ("blocks.9", 2, True)
    assert (config.model.head_init, config.model.dim, config.optimizer.backbone_lr) == ("whitened", 192, 1e-5)
    assert train(config).finished
    choice = json.loads((photos / "alone" / "choice.json").read_text())
    assert list(choice["scores"]) == [PRETRAINED, CLOSED_FORM, HEAD, HALFWAY, FINE_TUNED]  # one network: it is not named
    tuned = transformer(photos, "tuned", "run.choose_minutes=0")
    assert train(tuned).finished
    assert open_run(photos / "tuned").evaluate(facility=False).map_at_r > 0


def test_networks_are_scored_untrained_and_the_best_gets_the_recipes(photos):
    config = transformer(photos, "two", 'run.choose_networks=["lite0"]', "run.choose_minutes=5")
    assert train(config).finished
    record = Record.from_json((photos / "two" / "choice.json").read_bytes())
    untrained = [f"{network}: {name}" for network in (VIT, "lite0") for name in (PRETRAINED, CLOSED_FORM)]
    best = decide(record.scores, untrained)[0].split(": ")[0]
    assert list(record.scores) == [*untrained, *(f"{best}: {name}" for name in (HEAD, HALFWAY, FINE_TUNED))]
    assert record.chosen.startswith(best)
    after = open_run(photos / "two").config
    assert (after.run.choose_minutes, after.run.choose_networks) == (0, ())
    assert after.model.backbone == {VIT: VIT, "lite0": "tf_efficientnet_lite0"}[best]
    assert f"chosen: {record.chosen}; " in Run(photos / "two").why_chosen()
    assert all(set(record.scores[name]) == {0, 1} for name in untrained)


def test_a_choice_that_is_stopped_between_networks_continues_with_the_same_answer(photos, monkeypatch):
    config = transformer(photos, "whole", 'run.choose_networks=["lite0"]', "run.choose_minutes=5")
    assert train(config).finished
    tried = []

    def counted(config, dataset, *, stopped):
        tried.append((config.model.backbone, config.run.steps))
        if len(tried) == 6:
            os.kill(os.getpid(), signal.SIGTERM)
        return train_in_memory(config, dataset, stopped=stopped)

    monkeypatch.setattr("facetric.training.choice_candidates.train_in_memory", counted)
    stopped = train(config.model_copy(update={"run": config.run.model_copy(update={"name": "stopped"})}))
    assert (stopped.signal_number, stopped.finished) == (signal.SIGTERM, False)
    assert tried == [(VIT, 0)] * 4 + [("tf_efficientnet_lite0", 0)] * 2
    assert open_run(photos / "stopped").config.run.choose_networks == ("lite0",)
    assert resume(photos / "stopped").finished
    assert [steps for _, steps in tried[6:]][:4] == [0, 0, 0, 2]  # three were left to score without training; then one trains
    first, second = (Record.from_json((photos / name / "choice.json").read_bytes()) for name in ("whole", "stopped"))
    assert (first.scores, first.chosen) == (second.scores, second.chosen)
    assert (photos / "whole" / "checkpoints" / "last.safetensors").read_bytes() == (
        photos / "stopped" / "checkpoints" / "last.safetensors"
    ).read_bytes()


def test_a_network_that_there_is_no_time_for_is_left_out_and_said(photos, caplog):
    config = transformer(photos, "hurried", 'run.choose_networks=["lite0"]', "run.choose_minutes=0.000001")
    with caplog.at_level("INFO", "facetric"):
        assert train(config).finished
    record = Record.from_json((photos / "hurried" / "choice.json").read_bytes())
    assert list(record.scores) == [f"{VIT}: {PRETRAINED}", f"{VIT}: {CLOSED_FORM}"]
    assert (record.left_out, "left out for lack of time: lite0" in record.why) == (["lite0"], True)
    assert "lite0 is left out for lack of time (--set run.choose_minutes=… gives more)" in caplog.text


def test_what_is_in_the_cache_takes_no_time(photos):
    config = transformer(photos, "timed", 'run.choose_networks=["lite0"]')
    dataset = new_images(config.data, validate=False)
    free = recipes_by_network(config, dataset)["lite0"][0]
    embedding_seconds(free, dataset)
    assert embedding_seconds(free, dataset) < 0.5


def scores(value):
    return {0: {name: (1.0, value + spread) for name, spread in (("oak", 0.0), ("elm", 0.01))}}


def test_the_sentence_says_which_network_why_and_what_training_gained(photos):
    config = transformer(photos, "words", 'run.choose_networks=["lite0"]')
    recipes = [recipe for own in recipes_by_network(config, new_images(config.data, validate=False)).values() for recipe in own]
    found = {f"{VIT}: {PRETRAINED}": scores(0.5), f"{VIT}: {CLOSED_FORM}": scores(0.6)}
    found |= {f"lite0: {PRETRAINED}": scores(0.7), f"lite0: {CLOSED_FORM}": scores(0.8), f"lite0: {FINE_TUNED}": scores(0.9)}

    def sentence(found, left_out=()):
        chosen, gains = decide(found, [recipe.name for recipe in recipes])
        return summary(Record(60.0, found, list(left_out), chosen), gains, recipes)[1]

    assert sentence(found) == (
        "chosen: lite0: fine-tuned; lite0 sees these photos best (class-mean MAP@R 80.5 on held-out classes against 60.5 of "
        f"{VIT}); fine-tuning gained 10.0 more (1 split, 1.0 minutes)"
    )
    del found[f"lite0: {FINE_TUNED}"]
    assert "against 60.5 of vit_tiny_patch16_224); training gained nothing that exceeds" in sentence(found)
    found |= {f"lite0: {PRETRAINED}": scores(0.4), f"lite0: {CLOSED_FORM}": scores(0.5)}
    assert f"no larger network sees these photos better than {VIT}" in sentence(found)
    assert "against 50.5 of lite0)" in sentence(found)
    alone = {name: value for name, value in found.items() if name.startswith(VIT)}
    assert "; left out for lack of time: lite0 (1 split" in sentence(alone, ["lite0"])


@pytest.mark.parametrize(
    ("names", "line"),
    [
        ("lite0,lite9", "got 'lite9': did you mean lite"),
        ("lite0,dinov2-small", r"model.safetensors of .*dinov2.* is not in the cache, and HF_HUB_OFFLINE is set"),
    ],
)
def test_a_network_that_cannot_be_had_is_one_line_before_the_folder_is_made(photos, monkeypatch, names, line):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    output = photos / "none"
    asked = ("train", "--data", "folder", "--root", photos / "photos", "--networks", names, "--output", output)
    result = CliRunner().invoke(app, [*map(str, asked), "--set", "run.threads=1"])
    assert result.exit_code != 0
    assert isinstance(result.exception, SystemExit)
    last = result.stderr.splitlines()[-1]
    assert re.search(line, last), last
    assert not output.exists()
