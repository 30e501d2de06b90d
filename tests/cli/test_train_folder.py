"""`facetric train --data folder`: from a folder of pictures to a report, the settings it chooses, and what it refuses."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from typer.testing import CliRunner

from facetric.cli.main import app
from facetric.cli.train import _place
from facetric.config import ConfigError, read_config
from facetric.config.config_file import apply_override
from facetric.config.defaults import batch_shape, choose_run
from facetric.data import ClassBalancedBatches
from facetric.training import train


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


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on a folder, two steps long, and what was said."""
    place = tmp_path_factory.mktemp("photos")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FACETRIC_CACHE", str(place / "cache"))
        root = write_photos(place / "my photos", n_classes=12, n_images=5)
        settings = ("run.steps=2", "model.cached_views=1", f"run.folder={place / 'runs'}", "run.threads=1")
        result = facetric("train", "--data", "folder", "--root", root, *(x for s in settings for x in ("--set", s)))
        yield place / "runs" / "my-photos", result


def test_it_trains_and_says_what_it_chose(trained):
    run, result = trained
    assert result.exit_code == 0, result.stderr
    assert "60 images of 12 classes; 4 classes (20 images) for training, 2 for validation, 6 for testing" in result.stderr
    assert "tf_efficientnet_lite0, frozen through blocks.4 and cached for 1 crops of each image (no GPU)" in result.stderr
    config = read_config(run / "config.toml")
    assert (config.run.steps, config.model.cached_views) == (2, 1)  # the user's
    assert (config.model.freeze_through, config.model.head_init) == ("blocks.4", "orthogonal")  # 20 images: too few for a PCA
    assert config.loss.margin_weight == config.batches.size / 2


def test_it_can_be_evaluated_and_reported(trained):
    run, _ = trained
    evaluated = facetric("evaluate", run, "--restarts", 1)
    assert evaluated.exit_code == 0, evaluated.stderr
    assert "folder test: 30 images of 6 classes" in evaluated.stdout
    reported = facetric("report", run, "--no-pictures")
    assert reported.exit_code == 0, reported.stderr
    assert "class 1" in (run / "report.html").read_text()


def test_an_end_to_end_run_as_for_a_gpu_trains(tmp_path, monkeypatch):
    monkeypatch.setenv("FACETRIC_CACHE", str(tmp_path / "cache"))
    root = write_photos(tmp_path / "photos", n_classes=4, n_images=4)
    settings = ["run.steps=1", f"run.folder={tmp_path}", "run.name=gpu", "run.threads=1"]
    chosen = choose_run("folder", root, overrides=settings, gpu=True)
    assert "trained end to end on the GPU" in chosen.reasons[1]
    assert (chosen.config.model.freeze_through, chosen.config.model.cached_views, chosen.config.run.precision) == (
        None,
        0,
        "bf16",
    )
    assert train(chosen.config).finished


def test_a_dataset_of_the_size_of_cub_gets_the_settings_of_cub(tmp_path, request):
    root = name_photos(tmp_path / "photos", n_classes=200, n_images=59)
    chosen = choose_run("folder", root).config
    committed = read_config(request.config.rootpath / "configs" / "cub.toml")
    for table in ("model", "loss", "batches", "optimizer"):
        assert getattr(chosen, table) == getattr(committed, table), table
    assert chosen.run.model_copy(update={"name": "cub"}) == committed.run


@pytest.mark.parametrize(("n_classes", "n_images"), [(4, 2), (4, 4), (5, 30), (24, 12), (60, 3), (300, 2)])
def test_small_folders_give_batches_that_the_sampler_can_fill(tmp_path, n_classes, n_images):
    from facetric.data import load_dataset

    root = name_photos(tmp_path / "photos", n_classes=n_classes, n_images=n_images)
    config = choose_run("folder", root).config
    dataset = load_dataset("folder", root)
    if config.run.validate_every:
        dataset = dataset.with_validation(config.data.validation_fraction, seed=config.data.validation_seed)
        assert len(dataset.select("validation")) > 8
        assert dataset.select("validation").n_classes > 1
    labels = dataset.select("train").labels
    batches = ClassBalancedBatches(labels, batch_size=config.batches.size, class_ratio=config.batches.class_ratio)
    assert len(batches.batch(0)) == config.batches.size
    assert config.model.head_init == ("pca" if len(labels) > config.model.dim else "orthogonal")


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
    config = choose_run("folder", root, overrides=["loss.name=triplet_semihard", "batches.images_per_class=4"]).config
    assert "margin_weight" not in config.loss.keywords()
    assert config.batches.class_ratio is None
    subsets = choose_run("folder", root, overrides=["loss.name=facility_location_subsets"]).config.loss
    assert (subsets.n_subsets, subsets.margin_weight) == (16, None)  # γ is half of the subset
    assert choose_run("folder", root, overrides=["model.backbone=resnet18"]).config.model.freeze_through is None
    smaller = choose_run("folder", root, overrides=["batches.size=16"]).config
    assert (smaller.batches.class_ratio, smaller.loss.margin_weight) == (0.25, 8.0)


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
        ("--data", "folder"): "pass its folder, as in --root path/to/it",
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
    chosen = choose_run("folder", root, overrides=["data.options.test_fraction=0"])
    assert "3 classes (12 images) for training, none for validation (too few), none for testing" in chosen.reasons[0]


def test_a_broken_photo_is_named_with_the_way_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FACETRIC_CACHE", str(tmp_path / "cache"))
    root = write_photos(tmp_path / "photos", n_classes=4, n_images=4)
    victim = root / "class 2" / "3.jpg"
    victim.write_bytes(victim.read_bytes()[:200])
    line = refused(tmp_path, "--data", "folder", "--root", root)
    assert str(victim) in line
    assert "or remove it (`facetric data check` lists all such files)" in line
    assert not (tmp_path / "runs").exists()


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
    with pytest.raises(ValueError, match=r"--output takes a folder name of letters, digits .*; got 'my run'"):
        _place(Path("runs") / "my run")


def read_settings(overrides):
    raw = {}
    for override in overrides:
        apply_override(raw, override)
    return raw
