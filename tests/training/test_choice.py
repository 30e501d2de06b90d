"""Which recipe is chosen, by which scores, and that a stopped choice continues."""

import json
import math
import os
import signal

import numpy as np
import pytest
from PIL import Image

from facetric.embedder import build_network, encode
from facetric.embedder.heads import closed_form_head
from facetric.images import ImageDataset
from facetric.runs import Run, read_config
from facetric.runs.manifest import new_images
from facetric.runs.recipes import recipe
from facetric.training import resume, train
from facetric.training.choice import decide, difference, halves, is_clear
from facetric.training.choice_candidates import (
    CLOSED_FORM,
    FINE_TUNED,
    HALFWAY,
    HEAD,
    PRETRAINED,
    candidates,
    fitting_batches,
    group_scores,
    hold_out,
    train_in_memory,
    with_settings,
)
from facetric.training.choice_record import Record, summary
from training.tiny_runs import tiny_config


def scores(*of_classes):
    """One split; each class with the same Recall@1 and MAP@R."""
    return {0: {str(name): (value, value) for name, value in enumerate(of_classes)}}


def test_the_difference_is_paired_by_class_and_its_error_is_that_of_the_mean():
    gains = [0.1, 0.3, -0.1, 0.2]
    base = [0.5, 0.1, 0.9, 0.4]
    gain, error = difference(scores(*np.add(base, gains)), scores(*base))
    mean = sum(gains) / 4
    assert gain == pytest.approx(mean)
    assert error == pytest.approx(math.sqrt(sum((g - mean) ** 2 for g in gains) / 3 / 4))


def test_a_class_counts_once_however_many_splits_hold_it_out():
    first = {0: {"a": (1.0, 1.0), "b": (0.0, 0.0)}, 1: {"a": (0.5, 0.5)}, 2: {"c": (1.0, 0.0)}}
    other = {0: {"a": (0.0, 0.0), "b": (0.0, 0.0)}, 1: {"a": (0.0, 0.0)}}  # split 2 was not reached
    assert difference(first, other)[0] == pytest.approx((0.75 + 0.0) / 2)


def test_the_simplest_wins_unless_another_is_better_by_more_than_the_standard_error():
    noisy = scores(0.9, 0.1, 0.5, 0.5)  # mean as of the first, plus nothing
    order = [PRETRAINED, CLOSED_FORM, FINE_TUNED]
    base = scores(0.5, 0.5, 0.5, 0.5)
    assert decide({PRETRAINED: base, CLOSED_FORM: noisy, FINE_TUNED: scores(0.9, 0.2, 0.5, 0.5)}, order)[0] == PRETRAINED
    assert decide({PRETRAINED: base, CLOSED_FORM: scores(0.6, 0.6, 0.6, 0.61), FINE_TUNED: noisy}, order)[0] == CLOSED_FORM
    better = {PRETRAINED: base, CLOSED_FORM: scores(0.6, 0.6, 0.6, 0.61), FINE_TUNED: scores(0.7, 0.7, 0.8, 0.7)}
    assert decide(better, order)[0] == FINE_TUNED
    assert decide({PRETRAINED: base}, order)[0] == PRETRAINED  # nothing else was tried in time


def test_a_lead_of_two_standard_errors_over_other_trainings_is_clear_and_later_splits_do_not_count(tmp_path):
    recipes = candidates(tiny_config(tmp_path, model={"weights": "packaged"}), 1280)
    found = {name: scores(0.5, 0.5, 0.5, 0.5) for name in (PRETRAINED, CLOSED_FORM, HEAD)}
    found |= {HALFWAY: scores(0.7, 0.7, 0.7, 0.8), FINE_TUNED: scores(0.9, 0.6, 0.7, 0.8)}  # of one training: need not differ
    assert is_clear(found, recipes, n_splits=1)
    assert not is_clear(found | {HEAD: scores(0.7, 0.8, 0.7, 0.6)}, recipes, n_splits=1)
    assert is_clear(dict.fromkeys(found, scores(1.0, 1.0, 1.0, 1.0)), recipes, n_splits=1)  # nothing to gain: the simplest
    doubtful = {
        name: {**splits, 1: scores(0.2 if name in (HALFWAY, FINE_TUNED) else 0.9, 0.5)[0]} for name, splits in found.items()
    }
    assert is_clear(doubtful, recipes, n_splits=1)
    assert not is_clear(doubtful, recipes, n_splits=2)


@pytest.mark.parametrize("n_classes", [4, 5, 7, 30])
def test_every_pair_of_halves_holds_out_every_class_once_and_leaves_two_to_train(n_classes):
    classes = np.arange(100, 100 + n_classes)
    found = halves(classes, 6, seed=1)
    assert len(found) == 6
    assert len({tuple(half) for half in found}) == 6
    for first, second in zip(found[::2], found[1::2], strict=True):
        if n_classes > 5:  # with few classes there are not enough different pairs
            assert sorted([*first, *second]) == classes.tolist()
        assert min(len(first), len(second)) >= 2
    assert [half.tolist() for half in halves(classes, 6, seed=1)] == [half.tolist() for half in found]


def test_held_out_classes_do_not_train_and_test_and_validation_classes_stay_out():
    labels = np.repeat(np.arange(5), 2)
    splits = np.where(labels == 4, "test", np.where(labels == 3, "validation", "train"))
    dataset = ImageDataset("some", np.zeros((10, 4, 4), np.uint8), labels, tuple("abcde"), splits)
    part = hold_out(dataset, np.array([0, 2]))
    assert [part.splits[part.labels == label][0] for label in range(5)] == ["validation", "train", "validation", "test", "test"]


def test_candidates_go_from_no_training_to_fine_tuning(tmp_path):
    config = tiny_config(tmp_path, model={"weights": "packaged"})
    found = candidates(config, 1280)
    assert [recipe.name for recipe in found] == [PRETRAINED, CLOSED_FORM, HEAD, HALFWAY, FINE_TUNED]
    frozen = tiny_config(tmp_path, model={"freeze_through": "all", "weights": "packaged"})
    assert [recipe.name for recipe in candidates(frozen, 1280)] == [PRETRAINED, CLOSED_FORM, HEAD]


def test_what_cannot_be_chosen_is_refused_before_the_folder_is_made(tmp_path):
    with pytest.raises(ValueError, match=r"run\.choose_minutes compares with a pretrained network"):
        train(tiny_config(tmp_path, run={"choose_minutes": 1.0}))
    assert not (tmp_path / "tiny").exists()


def test_a_head_that_the_images_cannot_fill_is_refused_before_the_folder_is_made(photos):
    config = with_settings(photo_config(photos, "wide"), {"model": {"dim": 200, "head_init": "orthogonal", "head_refit": False}})
    with pytest.raises(
        ValueError, match=r"head of 200 dimensions .*; got 24 and 1280: .*--set model\.dim=1280.*choose_minutes=0"
    ):
        train(config)
    assert not (photos / "wide").exists()


def test_a_recipe_that_diverges_is_not_chosen(photos, caplog):
    config = with_settings(photo_config(photos, "wild"), {"optimizer": {"head_lr": 1e30, "backbone_lr": 1e30, "warmup_steps": 0}})
    assert train(with_settings(config, {"run": {"steps": 1}})).finished
    choice = json.loads((photos / "wild" / "choice.json").read_text())
    assert list(choice["scores"]) == [PRETRAINED, CLOSED_FORM]
    assert f"{HEAD} has diverged on a half of the classes" in caplog.text


def test_table_and_sentence_are_on_the_halves_that_every_recipe_was_scored_on():
    free = {0: {"oak": (0.5, 0.25)}, 1: {"elm": (1.0, 0.75)}, 2: {"oak": (0.0, 0.0)}, 3: {"elm": (0.0, 0.0)}}
    trained = {0: {"oak": (0.75, 0.5)}, 1: {"elm": (1.0, 1.0)}}
    record = Record(90.0, {PRETRAINED: free, HEAD: trained}, chosen=HEAD)
    rows, sentence = summary(record, decide(record.scores, [PRETRAINED, HEAD])[1], [])
    assert rows[PRETRAINED] == {"class-mean R@1": 0.75, "class-mean MAP@R": 0.5, "gain": 0.0, "± s.e.": 0.0}
    assert tuple(rows[HEAD].values())[:3] == (0.875, 0.75, 0.1875)
    assert "class-mean R@1 goes from 75.0 to 87.5 and class-mean MAP@R from 50.0 to 75.0 (2 splits, 1.5 minutes)" in sentence
    apart = Record(0.0, {PRETRAINED: free, HEAD: {0: trained[0]}, FINE_TUNED: {1: trained[1]}}, chosen=HEAD)
    rows, sentence = summary(apart, decide(apart.scores, [PRETRAINED, HEAD, FINE_TUNED])[1], [])
    assert rows[FINE_TUNED]["class-mean MAP@R"] == 1.0
    assert "from 50.0 to 75.0 and class-mean MAP@R from 25.0 to 50.0 (1 split" in sentence


def test_choice_json_keeps_every_score(tmp_path):
    record = Record(3.5, {PRETRAINED: {0: {"oak": (0.25, 0.5)}, 1: {}}}, ["lite2"], PRETRAINED, "chosen: …")
    assert Record.from_json(record.to_json()) == record
    assert json.loads(record.to_json())["scores"][PRETRAINED]["0"]["oak"] == [0.25, 0.5]
    with pytest.raises(ValueError, match="its checksum is wrong"):
        Record.from_json(record.to_json().replace(b"0.25", b"0.75"))
    with pytest.raises(ValueError, match="it has no checksum"):
        Record.from_json(
            json.dumps({key: value for key, value in json.loads(record.to_json()).items() if key != "sha256"}).encode()
        )


def test_the_configuration_with_the_chosen_recipe_replaces_the_first(tmp_path):
    config, run = tiny_config(tmp_path), Run(tmp_path / "tiny")
    run.path.mkdir()
    run.save_config(config)
    assert run.config == config


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Eight classes, each a color; the cache of their activations."""
    place = tmp_path_factory.mktemp("chosen")
    rng = np.random.default_rng(0)
    for label in range(8):
        (place / "photos" / str(label)).mkdir(parents=True)
        for i in range(4):
            pixels = rng.integers(0, 200, 3) * 0.2 + 20 * label + rng.integers(0, 40, (24, 32, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(place / "photos" / str(label) / f"{i}.jpg")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FACETRIC_CACHE", str(place / "cache"))
        patch.setattr("facetric.training.choice.N_SPLITS", 1)
        yield place


def photo_config(photos, name):
    return recipe(
        "folder",
        photos / "photos",
        overrides=[
            "run.steps=2",
            f"run.folder={photos}",
            f"run.name={name}",
            "run.threads=1",
            "run.choose_networks=[]",
            "data.options.test_fraction=0.25",
            "data.size=72",
            "model.image_size=64",  # sums over maps as small as these differ with the number of threads
            "model.cached_views=1",
        ],
    ).config


def test_a_choice_that_is_stopped_continues_and_ends_with_the_same_weights(photos, monkeypatch):
    whole = train(photo_config(photos, "whole"))
    assert whole.finished
    tried = []

    def counted(config, dataset, *, stopped):
        tried.append(config.model.freeze_through)
        if len(tried) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return train_in_memory(config, dataset, stopped=stopped)

    monkeypatch.setattr("facetric.training.choice_candidates.train_in_memory", counted)
    stopped = train(photo_config(photos, "stopped"))
    assert (stopped.signal_number, stopped.finished) == (signal.SIGTERM, False)
    kept = json.loads((photos / "stopped" / "choice.json").read_text())
    assert (list(kept["scores"]), kept["chosen"]) == ([PRETRAINED, CLOSED_FORM], None)
    assert read_config(photos / "stopped" / "config.toml").run.choose_minutes == 10
    tried.clear()
    tried.extend(["", "", ""])
    assert resume(photos / "stopped").finished
    assert tried[3:] == ["all", "blocks.3"]  # the trained head and fine-tuning; the others are kept
    first, second = (json.loads((photos / name / "choice.json").read_text()) for name in ("whole", "stopped"))
    assert first["scores"] == second["scores"]
    weights = [(photos / name / "checkpoints" / "last.safetensors").read_bytes() for name in ("whole", "stopped")]
    assert weights[0] == weights[1]


def test_what_needs_no_training_is_scored_on_all_splits_before_anything_trains(photos, monkeypatch):
    steps = []

    def counted(config, dataset, *, stopped):
        steps.append(config.run.steps)
        if config.run.steps:
            os.kill(os.getpid(), signal.SIGTERM)
        return train_in_memory(config, dataset, stopped=stopped)

    monkeypatch.setattr("facetric.training.choice.N_SPLITS", 3)
    monkeypatch.setattr("facetric.training.choice_candidates.train_in_memory", counted)
    assert train(photo_config(photos, "cheap")).signal_number == signal.SIGTERM
    assert steps == [0, 0, 0, 0, 0, 0, 2]
    kept = json.loads((photos / "cheap" / "choice.json").read_text())["scores"]
    assert [(name, sorted(splits)) for name, splits in kept.items()] == [
        (name, ["0", "1", "2"]) for name in (PRETRAINED, CLOSED_FORM)
    ]


def test_time_that_is_up_leaves_the_candidates_that_need_no_training(photos):
    config = photo_config(photos, "hurried")
    config = config.model_copy(update={"run": config.run.model_copy(update={"choose_minutes": 1e-6})})
    assert train(config).finished
    choice = json.loads((photos / "hurried" / "choice.json").read_text())
    assert list(choice["scores"]) == [PRETRAINED, CLOSED_FORM]


def test_batches_of_halves_fit_them_whatever_the_run_has(photos):
    config = photo_config(photos, "any")
    part = hold_out(new_images(config.data, validate=False), np.array([0, 1, 2]))
    n_classes = len(np.unique(part.labels[part.splits == "train"]))  # of four images
    pairs = with_settings(config, {"batches": {"size": 24, "images_per_class": 4, "class_ratio": None}})
    assert fitting_batches(pairs, part) == {"size": 4 * n_classes}
    many = with_settings(config, {"batches": {"size": 12, "images_per_class": 6, "class_ratio": None}})
    found = with_settings(many, {"batches": fitting_batches(many, part)}).batches
    assert (found.images_per_class, found.class_ratio) != (6, None)
    loss = {"name": "facility_location", "n_subsets": 4, "subset_size": 4 * n_classes + 1}
    subsets = with_settings(config, {"batches": {"size": 4 * n_classes + 4}, "loss": loss})
    assert group_scores(candidates(subsets, 1280)[1:2], part, stopped=lambda: False)


def try_out(config):
    part = hold_out(new_images(config.data, validate=False), np.array([0, 1, 2]))
    return train_in_memory(with_settings(config, {"batches": fitting_batches(config, part)}), part)


def test_the_pretrained_candidate_has_the_neighbors_of_the_pretrained_features(photos):
    session = try_out(candidates(photo_config(photos, "any"), 1280)[0].config)
    vectors = session.held_out_vectors(session.embedder, step=0)
    features = encode(session.embedder, session.validation, what="features")
    units = features / np.linalg.norm(features, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors @ vectors.T, units @ units.T, atol=1e-5)


def test_halfway_is_the_mean_of_pretrained_and_trained_weights_under_a_head_fitted_to_it(photos):
    session = try_out(with_settings(photo_config(photos, "any"), {"optimizer": {"backbone_lr": 1e-3}}))
    pretrained = build_network().backbone.state_dict()
    trained, halfway = session.embedder, session.for_use(0.5)
    moved = 0
    for name, tensor in halfway.backbone.state_dict().items():
        mean = (pretrained[name].double() + trained.backbone.state_dict()[name].double()) / 2
        np.testing.assert_allclose(tensor.double(), mean, atol=1e-6)
        moved += not np.array_equal(tensor, pretrained[name])
    assert moved > 10
    features = encode(halfway, session.feed.images, what="features")
    head = closed_form_head(features, session.training.labels, halfway.dim)
    np.testing.assert_allclose(halfway.head.weight.detach().numpy(), head.weight, rtol=1e-4, atol=1e-6)
