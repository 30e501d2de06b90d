"""`facetric train --data folder`: from a folder of pictures to a report, the settings it chooses, and what it refuses."""

import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from typer.testing import CliRunner

from facetric.cli.main import app
from facetric.cli.train import _place
from facetric.images import sources
from facetric.losses import ClassBalancedBatches
from facetric.runs import ConfigError, read_config
from facetric.runs.config_file import apply_override, parse_config
from facetric.runs.recipes import Sizes, batch_shape, photo_tables, recipe
from facetric.training import train

SMALL = ("data.size=72", "model.image_size=64")  # pixels
FINE_TUNING = ("halfway to fine-tuned", "fine-tuned")
RECIPES = {  # steps, frozen part, fraction of pretrained weights
    "pretrained features": (0, "all", 0.0),
    "closed-form head": (0, "all", 0.0),
    "trained head": (2, "all", 0.0),
    "halfway to fine-tuned": (2, "blocks.3", 0.5),
    "fine-tuned": (2, "blocks.3", 0.0),
}


def facetric(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def write_photos(root, *, n_classes, n_images, seed=0):
    """Pictures of any size; those of a class have its color."""
    rng = np.random.default_rng(seed)
    for label in range(n_classes):
        folder = root / f"class {label}"
        folder.mkdir(parents=True)
        color = rng.integers(0, 200, 3)
        for i in range(n_images):
            height, width = rng.integers(20, 60, 2)
            pixels = color + rng.integers(0, 56, (height, width, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i}.jpg")
    return root


def name_photos(root, *, n_classes, n_images):
    """Files that are only there: what is chosen depends on their number alone."""
    for label in range(n_classes):
        (root / f"{label:03}").mkdir(parents=True)
        for i in range(n_images):
            (root / f"{label:03}" / f"{i}.jpg").touch()
    return root


def counted(function, root, times):
    """The same function of a path, which counts its calls for paths below the root."""

    def call(path=".", **options):
        if isinstance(path, str | Path) and Path(path).is_relative_to(root):
            times[str(Path(path).relative_to(root))] += 1
        return function(path, **options)

    return call


@pytest.fixture(scope="module")
def touched():
    """How often each path was listed, read and decoded while `trained` was made."""
    return {"listed": Counter(), "read": Counter(), "decoded": Counter()}


@pytest.fixture(scope="module")
def trained(tmp_path_factory, touched):
    """A run on a folder, two steps long, and what was said."""
    place = tmp_path_factory.mktemp("photos")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FACETRIC_CACHE", str(place / "cache"))
        patch.setattr("facetric.training.choice.N_SPLITS", 1)
        root = write_photos(place / "my photos", n_classes=12, n_images=5)
        own = (f"run.folder={place / 'runs'}", "run.threads=1", "run.choose_networks=[]")
        settings = ("run.steps=2", "model.cached_views=1", *own, *SMALL)
        with pytest.MonkeyPatch.context() as counting:
            for owner, name, what in (
                (os, "listdir", "listed"),
                (os, "scandir", "listed"),
                (Path, "read_bytes", "read"),
                (sources, "open_image", "decoded"),
            ):
                counting.setattr(owner, name, counted(getattr(owner, name), root, touched[what]))
            result = facetric("train", "--data", "folder", "--root", root, *(x for s in settings for x in ("--set", s)))
        yield place / "runs" / "my-photos", result


def test_it_trains_and_says_what_it_chose(trained):
    run, result = trained
    assert result.exit_code == 0, result.stderr
    assert "40 images of 8 classes to train; test classes: 4 (" in result.stderr
    assert "60 images of 12 classes; 8 classes (40 images) for training, none for validation, 4 for testing" in result.stderr
    assert (
        "tf_efficientnet_lite0, pooled by GeM, frozen through blocks.3 and cached for 1 crop of each image (no GPU)"
        in result.stderr
    )
    choice = json.loads((run / "choice.json").read_text())
    assert list(choice["scores"]) == ["pretrained features", "closed-form head", "trained head", *FINE_TUNING]
    assert result.stderr.splitlines()[-2] == choice["why"]
    assert choice["why"].startswith(f"chosen: {choice['chosen']}; ")
    config = read_config(run / "config.toml")
    assert config.run.choose_minutes == 0  # done
    assert (config.run.steps, config.model.freeze_through, config.model.pretrained_fraction) == RECIPES[choice["chosen"]]


@pytest.mark.usefixtures("trained")
def test_the_folder_is_listed_once_and_every_photo_is_hashed_and_decoded_once(touched):
    folders = {f"class {label}" for label in range(12)}
    assert touched["listed"] == dict.fromkeys((".", *folders), 1)
    assert touched["read"] == dict.fromkeys((f"{folder}/{i}.jpg" for folder in folders for i in range(5)), 1)
    assert set(touched["decoded"].values()) == {1}
    assert len(touched["decoded"]) == 40  # those of the training classes


def test_it_can_be_evaluated_and_reported(trained):
    run, _ = trained
    evaluated = facetric("evaluate", run, "--restarts", 1)
    assert evaluated.exit_code == 0, evaluated.stderr
    assert "folder test: 20 images of 4 classes" in evaluated.stdout
    reported = facetric("report", run, "--no-figures")
    assert reported.exit_code == 0, reported.stderr
    assert "not validated" not in reported.stderr
    page = (run / "report.html").read_text()
    assert "class 1" in page
    assert f"Recipe {json.loads((run / 'choice.json').read_text())['why']}." in page


def test_an_end_to_end_run_as_for_a_gpu_trains(tmp_path, monkeypatch):
    monkeypatch.setenv("FACETRIC_CACHE", str(tmp_path / "cache"))
    root = write_photos(tmp_path / "photos", n_classes=4, n_images=4)
    settings = ["run.steps=1", f"run.folder={tmp_path}", "run.name=gpu", "run.threads=1", *SMALL]
    chosen = recipe("folder", root, overrides=settings, gpu=True)
    assert "trained end to end on the GPU" in chosen.reasons[1]
    assert (chosen.config.model.freeze_through, chosen.config.model.cached_views, chosen.config.run.precision) == (
        None,
        0,
        "bf16",
    )
    assert train(chosen.config).finished


def test_a_folder_of_the_size_of_cub_gets_256_dimensions_and_a_small_one_keeps_all_features(tmp_path):
    large = recipe("folder", name_photos(tmp_path / "large", n_classes=200, n_images=59)).config
    small = recipe("folder", name_photos(tmp_path / "small", n_classes=24, n_images=12)).config
    assert (large.model.dim, small.model.dim) == (256, 1280)
    assert (large.run.choose_minutes, large.run.validate_every) == (10, 0)


def test_the_papers_datasets_get_the_settings_of_the_committed_files(request):
    sizes = Sizes((59,) * 80, n_validation=20, validation_fraction=0.2, test=(59,) * 100)
    chosen = parse_config({**photo_tables(sizes, batch_shape(sizes.training), gpu=False), "data": {"name": "cub"}})
    committed = read_config(request.config.rootpath / "configs" / "cub.toml")
    for table in ("model", "loss", "batches", "optimizer"):
        assert getattr(chosen, table) == getattr(committed, table), table
    assert chosen.run.model_copy(update={"name": "cub"}) == committed.run


def test_as_many_classes_validate_as_were_asked_for(tmp_path):
    root = name_photos(tmp_path / "photos", n_classes=40, n_images=12)
    chosen = recipe("folder", root, overrides=["data.validation_fraction=0.4"], gpu=True)
    assert chosen.config.run.validate_every > 0
    assert "16 classes (192 images) for training, 11 for validation" in chosen.reasons[0]


def test_a_choice_by_validation_classes_can_be_had_instead(tmp_path):
    root = name_photos(tmp_path / "photos", n_classes=24, n_images=12)
    config = recipe("folder", root, overrides=["run.choose_minutes=0", "run.validate_every=20"]).config
    assert (config.run.validate_every, config.run.best_metric) == (20, "map_at_r")
    assert recipe("folder", root, overrides=["model.weights=none"]).config.run.choose_minutes == 0


def test_several_processes_choose_by_validation_classes(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    config = recipe("folder", name_photos(tmp_path / "photos", n_classes=24, n_images=12)).config
    assert (config.run.choose_minutes, config.run.validate_every) == (0, 25)


def test_three_training_classes_are_too_few_to_choose_by_and_get_the_closed_form(tmp_path):
    root = name_photos(tmp_path / "photos", n_classes=5, n_images=30)
    chosen = recipe("folder", root)
    assert (chosen.config.run.steps, chosen.config.run.choose_minutes, chosen.config.model.head_init) == (0, 0, "whitened")
    assert not any("recipe" in line for line in chosen.reasons)


@pytest.mark.parametrize(("n_classes", "n_images"), [(4, 2), (4, 4), (5, 30), (24, 12), (60, 3), (300, 2)])
def test_small_folders_give_batches_that_the_sampler_can_fill(tmp_path, n_classes, n_images):
    from facetric.images.readers import load_dataset

    root = name_photos(tmp_path / "photos", n_classes=n_classes, n_images=n_images)
    config = recipe("folder", root).config
    dataset = load_dataset("folder", root, **config.data.options)
    assert dataset.select("test").n_classes > 1
    labels = dataset.select("train").labels
    batches = ClassBalancedBatches(labels, batch_size=config.batches.size, class_ratio=config.batches.class_ratio)
    assert len(batches.batch(0)) == config.batches.size


@given(st.lists(st.integers(1, 40), min_size=2, max_size=200))
def test_any_class_sizes_give_a_batch_or_one_error(sizes):
    if max(sizes) == 1:
        with pytest.raises(ConfigError, match="classes of 2 images or more"):
            batch_shape(sizes)
        return
    n_images, n_classes = batch_shape(sizes)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    batches = ClassBalancedBatches(labels, batch_size=n_images, class_ratio=round(n_classes / n_images, 4))
    assert batches.classes_per_batch == n_classes
    assert len(np.unique(labels[batches.batch(0)])) == n_classes


def test_another_loss_network_or_batch_drops_the_choices_that_do_not_fit(tmp_path):
    root = name_photos(tmp_path / "photos", n_classes=24, n_images=12)
    config = recipe("folder", root, overrides=["loss.name=triplet_semihard", "batches.images_per_class=4"]).config
    assert "margin_weight" not in config.loss.keywords()
    assert config.batches.class_ratio is None
    plain = recipe("folder", root, overrides=["loss.n_subsets=0"]).config.loss
    assert (plain.n_subsets, plain.margin_weight) == (0, None)  # γ is half of the batch
    assert recipe("folder", root, overrides=["model.backbone=resnet18"]).config.model.freeze_through == "layer3"
    assert recipe("folder", root, overrides=["model.backbone=resnet18"], gpu=True).config.model.freeze_through is None
    smaller = recipe("folder", root, overrides=["batches.size=16"]).config
    assert (smaller.batches.class_ratio, smaller.loss.margin_weight) == (0.25, None)
    few = recipe("folder", root, overrides=["model.dim=512"]).config  # 192 images
    assert (few.model.head_init, few.model.head_refit, few.run.choose_minutes) == ("orthogonal", False, 0)


def refused(tmp_path, *arguments):
    """The line that the command gives, which is one and the last."""
    result = facetric("train", *arguments)
    assert result.exit_code in (1, 2)
    assert isinstance(result.exception, SystemExit)
    return result.stderr.splitlines()[-1]


def test_what_is_no_dataset_is_refused_in_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.txt").write_text("x")
    name_photos(tmp_path / "three", n_classes=3, n_images=4)
    name_photos(tmp_path / "ones", n_classes=8, n_images=1)
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "1.jpg").touch()
    folder = ("--data", "folder", "--root")
    for arguments, words in {
        (): "pass a config file or --data: facetric train --data folder --root path/to/photos",
        ("--root", "flat"): "--root says where the dataset is, and --data what it is",
        ("--data", "folder"): "is read from disk: pass root (--root path/to/it)",
        ("--data", "foldr", "--root", "flat"): "did you mean 'folder'?",
        ("--data", "glyphs", "--root", "flat"): "leave root out",
        ("flat",): "to train on its images: facetric train --data folder --root flat",
        ("x.toml", "--data", "glyphs"): "leave one of them out",
        (*folder, "nowhere"): "nowhere does not exist",
        (*folder, "a.txt"): "a.txt is not a folder",
        (*folder, "empty"): "make one sub-folder per class",
        (*folder, "flat"): "found 1 images: make one sub-folder per class",
        (*folder, "three"): "--set data.options.test_fraction=0",
        (*folder, "ones"): "add images to them",
        (*folder, "three", "--set", "run.stepz=3"): "did you mean 'steps'?",
        (*folder, "three", "--set", "steps=3"): "--set takes table.key=value",
    }.items():
        line = refused(tmp_path, *arguments)
        assert line.startswith("facetric train: "), line
        assert words in line, (arguments, line)


def test_three_classes_train_when_none_tests(tmp_path):
    root = name_photos(tmp_path / "three", n_classes=3, n_images=4)
    chosen = recipe("folder", root, overrides=["data.options.test_fraction=0"])
    assert "3 classes (12 images) for training, none for validation, none for testing" in chosen.reasons[0]


def test_a_broken_photo_is_named_with_the_way_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FACETRIC_CACHE", str(tmp_path / "cache"))
    root = write_photos(tmp_path / "photos", n_classes=4, n_images=4)
    victim = root / "class 3" / "3.jpg"
    victim.write_bytes(victim.read_bytes()[:200])
    line = refused(tmp_path, "--data", "folder", "--root", root)
    assert str(victim) in line
    assert "or remove it (`facetric data check` lists all such files)" in line
    assert not (tmp_path / "runs").exists()


def test_a_network_for_gray_pictures_is_refused_before_the_run_folder_is_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    root = write_photos(tmp_path / "photos", n_classes=4, n_images=4)
    line = refused(
        tmp_path, "--data", "folder", "--root", root, "--set", "model.backbone=glyphnet", "--set", "model.weights=none"
    )
    assert "photos are read in color; the backbone glyphnet takes 1 channel: choose another" in line
    assert not (tmp_path / "runs").exists()


def test_final_trains_the_recipe_of_a_run_on_all_classes(trained, tmp_path):
    run, _ = trained
    result = facetric("train", "--final", run, "--output", tmp_path / "final")
    assert result.exit_code == 0, result.stderr
    assert "60 images of 12 classes to train" in result.stderr
    assert "trained on all classes, which leaves none to score it on" in result.stderr
    first, second = (read_config(folder / "config.toml") for folder in (run, tmp_path / "final"))
    for table in ("model", "loss", "batches", "optimizer"):
        assert getattr(first, table) == getattr(second, table)
    assert first.run.steps == second.run.steps
    evaluated = facetric("evaluate", tmp_path / "final")
    assert evaluated.exit_code == 2
    assert "has no test images: all of its classes were trained on" in evaluated.stderr


def test_final_says_where_its_settings_come_from(trained):
    run, _ = trained
    result = facetric("train", "configs/cub.toml", "--final", run)
    assert result.exit_code == 2
    assert "--final takes the data and the settings of" in result.stderr


def test_an_existing_run_is_refused_before_anything_long(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "photos").mkdir(parents=True)
    root = name_photos(tmp_path / "photos", n_classes=4, n_images=4)  # empty files: opening one would be another error
    line = refused(tmp_path, "--data", "folder", "--root", root)
    assert "runs/photos exists and is not overwritten: it has no config.toml" in line


def test_the_reasons_cannot_send_escape_sequences_to_the_terminal(tmp_path):
    photos = write_photos(tmp_path / "photos\x1b[31m", n_classes=4, n_images=3)
    output = tmp_path / "runs\x1b[2J" / "first"
    output.mkdir(parents=True)  # a run that exists is refused after the reasons are printed
    arguments = ["train", "--data", "folder", "--root", str(photos), "--output", str(output)]
    result = CliRunner().invoke(app, arguments, color=True)  # as on a terminal: click strips nothing
    assert result.exit_code == 2
    assert "photos\\x1b[31m: 12 images of 4 classes" in result.stderr
    assert "exists and is not overwritten" in result.stderr
    assert "\x1b" not in result.output


@pytest.mark.parametrize("name", ["2024-05-01", "123", "1.5", "true"])
def test_output_takes_names_that_look_like_numbers_and_dates(name):
    assert read_settings(_place(Path("runs") / name))["run"]["name"] == name


def test_output_refuses_a_name_that_cannot_be_a_run():
    with pytest.raises(ConfigError, match=r"run.name, a folder, takes letters, digits .*; got 'my run': .*--output"):
        recipe("glyphs", overrides=_place(Path("runs") / "my run"))


def read_settings(overrides):
    raw = {}
    for override in overrides:
        apply_override(raw, override)
    return raw
