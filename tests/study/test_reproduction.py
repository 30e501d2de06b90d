"""The studies of `facetric reproduce`: what they are made of, what can be set, and what is refused before anything is trained."""

from pathlib import Path

import numpy as np
import pytest

from facetric.files import checksummed
from facetric.images import load_dataset
from facetric.runs import ConfigError, read_config
from facetric.runs.config_file import parse_config
from facetric.runs.recipes import recipe
from facetric.training.feed import classes_tested
from facetric.training.study.reproduction import PAPER_STEPS, paper_tables, reproduction
from facetric.training.study.spaces import PAPER_METHODS
from facetric.training.study.trials import middle

ROOT = Path(__file__).parents[2]


def name_photos(root, *, n_classes, n_images):
    """Empty files: what is decided here depends on their number alone."""
    for label in range(n_classes):
        (root / f"{label:03}").mkdir(parents=True)
        for i in range(n_images):
            (root / f"{label:03}" / f"{i}.jpg").touch()
    return root


@pytest.fixture
def photos(tmp_path):
    """24 classes of 6: of the 16 that train, 3 validate."""
    return str(name_photos(tmp_path / "photos", n_classes=24, n_images=6))


def study_of(root, *, setting="head", methods=("facility_location",), **options):
    return reproduction("folder", Path(root).parent / "study", root=root, setting=setting, methods=methods, **options)


def some_config(study, name="facility_location", **parameters):
    values = {"optimizer.head_lr": 1e-4, "run.steps": 150}
    return study.config(name, {key: values[key] for key in study.setting.searched if key in values} | parameters)


# --- what the dataset must have


def test_npairs_is_left_out_where_its_batches_cannot_be_filled(photos):
    study = study_of(photos, methods=tuple(PAPER_METHODS))
    assert list(study.methods) == ["triplet_semihard", "lifted_structure", "facility_location"]
    size = some_config(study).batches.size
    assert study.left_out == {
        "npairs": f"a batch of {size} needs {size // 2} distinct classes; the training set has 13 classes with 2 images or more: "
        "lower batch_size to 26"
    }
    assert study.n_runs == 3 * (16 * 3 + 5)


def test_the_classes_of_a_batch_are_searched_where_it_has_no_fixed_pairs_and_only_what_can_be_filled(tmp_path, photos):
    large = str(name_photos(tmp_path / "large", n_classes=200, n_images=6))
    study = study_of(large, methods=("npairs", "facility_location"))
    usual = recipe("folder", large, choose=False).config.batches.class_ratio
    assert study.space("facility_location")["batches.class_ratio"] == (usual, 0.25, 0.375, 0.5)
    assert "batches.class_ratio" not in study.space("npairs")
    parameters = {**middle(study.space("facility_location")), "batches.class_ratio": 0.5}
    assert study.config("facility_location", parameters).batches.class_ratio == 0.5
    small = study_of(photos, methods=("facility_location",))
    own = recipe("folder", photos, choose=False).config.batches.class_ratio
    assert small.space("facility_location")["batches.class_ratio"][0] == own
    assert 0.5 not in small.space("facility_location")["batches.class_ratio"]  # more classes than there are
    fixed = study_of(large, overrides=["batches.class_ratio=0.3"])
    assert "batches.class_ratio" not in fixed.space("facility_location")
    assert some_config(fixed).batches.class_ratio == 0.3


def test_gamma_is_searched_per_image_that_is_clustered(photos):
    study = study_of(photos, methods=("facility_location", "facility_location_subsets"), overrides=["batches.size=20"])
    weights = {name: some_config(study, name, **{"loss.margin_weight/m": 0.4}).loss.margin_weight for name in study.methods}
    assert weights == {"facility_location": pytest.approx(8.0), "facility_location_subsets": pytest.approx(4.0)}


def test_a_smaller_batch_lets_npairs_in(photos):
    study = study_of(photos, methods=("npairs",), overrides=["batches.size=20"])
    assert study.left_out == {}
    assert some_config(study, "npairs").batches.images_per_class == 2


def test_every_fold_must_fill_the_batches(tmp_path):
    """One class has most of the images. The batches of the fold that validates on it cannot be filled."""
    held_out = [set(np.random.default_rng(fold).permutation(12)[:2].tolist()) for fold in range(3)]
    large = (held_out[2] - held_out[0] - held_out[1]).pop()
    lines = ["path,label,split"]
    for label in range(14):
        for i in range(50 if label == large else 5):
            (tmp_path / f"{label}-{i}.jpg").touch()
            lines.append(f"{label}-{i}.jpg,{label:02},{'train' if label < 12 else 'test'}")
    (tmp_path / "table.csv").write_text("\n".join(lines))
    options = {"root": str(tmp_path / "table.csv"), "methods": ("facility_location",)}
    overrides = ["batches.size=64", "batches.class_ratio=0.125", "data.validation_fraction=0.2"]
    assert reproduction("csv", tmp_path / "study", setting="finetune", overrides=overrides, **options).left_out == {}  # 1 fold
    with pytest.raises(ValueError, match=r"no loss is left to study: facility_location: a batch of 64 .* 8 largest hold 40"):
        reproduction("csv", tmp_path / "study", setting="head", overrides=overrides, **options)  # 3 folds


def test_an_odd_batch_is_made_even_for_all_losses(tmp_path):
    root = str(name_photos(tmp_path / "photos", n_classes=30, n_images=3))  # batches of 1.5 images per class
    study = study_of(root, methods=tuple(PAPER_METHODS), overrides=["data.validation_fraction=0.2"])
    sizes = {some_config(study, name).batches.size for name in study.methods}
    assert len(sizes) == 1
    assert sizes.pop() % 2 == 0


@pytest.mark.parametrize(
    ("n_classes", "n_images", "overrides", "words"),
    [
        (8, 5, [], "needs 9 images of 2 classes or more"),
        (8, 20, [], "there are 20 of 1: add images, or raise --set data.validation_fraction=…"),
        (8, 20, ["data.options.test_fraction=0"], "a study needs 2 test classes or more"),
        (4, 20, [], "a fraction of 0.2 of 2 training classes leaves 0 for validation"),
        (3, 20, [], "--set data.options.test_fraction=0"),
    ],
)
def test_what_is_too_small_to_study_is_refused_before_anything_is_trained(tmp_path, n_classes, n_images, overrides, words):
    root = str(name_photos(tmp_path / "photos", n_classes=n_classes, n_images=n_images))
    with pytest.raises(ValueError, match="--set") as error:
        study_of(root, overrides=overrides)
    assert words in str(error.value)
    assert not (tmp_path / "study").exists()


def test_validation_classes_of_one_image_each_are_refused(tmp_path):
    sizes = {"train": 6, "validation": 1, "test": 6}
    rows = [(f"{s}-{c}-{i}.jpg", f"{s}-{c}", s) for s, n_images in sizes.items() for c in range(12) for i in range(n_images)]
    for name, *_ in rows:
        (tmp_path / name).touch()
    table = tmp_path / "table.csv"
    table.write_text("path,label,split\n" + "".join(",".join(row) + "\n" for row in rows))
    with pytest.raises(ValueError, match=r"none of the 12 validation classes has 2 images, .*--set data\.validation_fraction=…"):
        reproduction("csv", tmp_path / "study", root=str(table), setting="head", methods=("facility_location",))


def test_the_test_classes_of_a_folder_are_the_same_for_every_backbone_device_and_command(tmp_path):
    root = name_photos(tmp_path / "photos", n_classes=25, n_images=6)
    table = tmp_path / "table.csv"
    table.write_text("path,label\n" + "".join(f"{path},{path.parent.name}\n" for path in sorted(root.rglob("*.jpg"))))
    another, no_choice = ["model.backbone=resnet18"], ["run.choose_minutes=0"]
    chosen = [
        recipe("folder", root, overrides=settings, gpu=gpu) for settings in ([], another, no_choice) for gpu in (False, True)
    ]
    datasets = [*(one.dataset for one in (*chosen, recipe("csv", table))), load_dataset("folder", root)]
    assert all("test_fraction" not in one.config.data.options for one in chosen)
    assert {frozenset(dataset.labels[dataset.splits == "test"].tolist()) for dataset in datasets} == {
        frozenset(np.random.default_rng(0).permutation(25)[:8].tolist())
    }
    studies = [study_of(str(root), setting=setting) for setting in ("head", "finetune")]
    assert {classes_tested(datasets[0])} == {study.setting.test_classes for study in studies}
    seeded = recipe("folder", root, overrides=["data.options.seed=1"]).dataset
    assert classes_tested(seeded)[:3] == classes_tested(datasets[0])[:3] == "8 ("
    assert classes_tested(seeded) != classes_tested(datasets[0])


# --- what can be set


def test_a_setting_holds_for_every_run(photos):
    overrides = ["data.augment=crop", "optimizer.name=adamw", "optimizer.warmup_steps=50", "loss.max_sweeps=3"]
    study = study_of(photos, overrides=overrides)
    config = some_config(study)
    assert (config.data.augment, config.optimizer.name, config.optimizer.warmup_steps) == ("crop", "adamw", 50)
    assert config.loss.max_sweeps == 3
    assert study.setting.overrides["loss.max_sweeps"] == 3


def test_losses_with_batches_of_their_own_keep_them(photos):
    study = study_of(photos, methods=("npairs", "facility_location"), overrides=["batches.size=20", "batches.images_per_class=4"])
    assert some_config(study, "npairs").batches.images_per_class == 2
    batches = some_config(study).batches
    assert (batches.images_per_class, batches.class_ratio) == (4, None)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            ["optimizer.head_lr=0.1"],
            "--set optimizer.head_lr: the study searches this setting for facility_location: leave it out",
        ),
        (["loss.margin_weight=3"], "--set loss.margin_weight: the study searches"),
        (["run.steps=100"], "--set run.steps: the study searches this setting for facility_location: use --steps"),
        (["loss.name=npairs"], "--set loss.name is not for a study: choose losses with --method"),
        (["run.seed=3"], "--seeds says how many"),
        (["run.choose_minutes=5"], "all losses get the same recipe, that of --setting"),
        (["run.steps=0"], "--set run.steps=0: a study trains: use --steps with 10 or more"),
        (["data.root=x"], "use --root"),
        (["loss.squared=true"], "belongs to facility_location_squared: leave it out, or choose other losses with --method"),
        (["optimiser.name=adamw"], "did you mean 'optimizer'?"),
        (["run.stepz=100"], "did you mean 'steps'?"),
        (["loss.sweeps=3"], "unknown key 'sweeps' in [loss]; did you mean 'max_sweeps'?"),
        (["loss.norm_weight=3"], "facility_location: loss 'facility_location' takes no norm_weight"),
        (["steps"], "--set takes table.key=value"),
    ],
)
def test_a_setting_that_a_study_decides_or_does_not_know_is_refused(photos, overrides, words):
    with pytest.raises(ValueError, match=r".") as error:
        study_of(photos, methods=("facility_location", "facility_location_squared"), overrides=overrides)
    assert words in str(error.value)


def test_a_table_that_says_what_validates_has_one_fold(tmp_path, photos):
    rows = [(path, path.parent.name) for path in sorted(Path(photos).rglob("*.jpg"))]
    splits = ["train"] * 12 + ["validation"] * 4 + ["test"] * 8  # of the 24 classes
    lines = ["path,label,split", *(f"{path},{label},{splits[int(label)]}" for path, label in rows)]
    (tmp_path / "table.csv").write_text("\n".join(lines))
    study = reproduction(
        "csv", tmp_path / "study", root=str(tmp_path / "table.csv"), setting="head", methods=("facility_location",)
    )
    assert study.setting.n_folds == 1


def test_steps_are_given_once(photos):
    with pytest.raises(ValueError, match=r"--steps 10 and --set run\.steps=20 set the same: give one"):
        study_of(photos, steps=10, overrides=["run.steps=20"])
    assert some_config(study_of(photos, setting="finetune", overrides=["run.steps=20"])).run.steps == 20


def test_shorter_trials_need_a_number_of_steps_that_is_not_searched(photos):
    with pytest.raises(ValueError, match=r"--trial-steps 20: this study searches the number of steps: give it with --steps too"):
        study_of(photos, trial_steps=20)
    assert study_of(photos, steps=40, trial_steps=20).setting.trial_steps == 20


# --- the studies


def test_fine_tuning_can_keep_the_choices_of_another_study(tmp_path, photos):
    chosen = {"optimizer.head_lr": 2e-4, "run.steps": 600, "loss.margin_weight": 77.0, "loss.margin_decay": 1.0}
    record = {"facility_location": {"chosen": chosen}, "npairs": {"left_out": "no pairs"}}
    (tmp_path / "study.json").write_bytes(checksummed(record))
    options = {"setting": "finetune", "options_from": tmp_path}
    method = study_of(photos, **options).methods["facility_location"]
    assert method.searched == {"optimizer.head_lr": (2e-4, pytest.approx(2e-4 / 3))}
    assert method.fixed == {key: value for key, value in chosen.items() if key.startswith("loss.")}
    assert study_of(photos, **options).setting.n_trials == 4
    with pytest.raises(ValueError, match=r"no npairs; it has facility_location"):
        study_of(photos, methods=("npairs",), **options)
    with pytest.raises(ValueError, match=r"study\.json is missing"):
        study_of(photos, **{**options, "options_from": tmp_path / "nowhere"})
    with pytest.raises(ValueError, match="--options-from gives this setting"):
        study_of(photos, overrides=["loss.margin_weight=3"], **options)
    with pytest.raises(ValueError, match="--options-from is for --setting finetune; got 'head'"):
        study_of(photos, options_from=tmp_path)


@pytest.mark.parametrize("dataset", sorted(PAPER_STEPS))
def test_the_papers_configurations_are_those_of_the_study(dataset):
    tables = paper_tables(dataset, None)
    tables["run"]["name"] = dataset
    config = read_config(ROOT / "configs" / "paper" / f"{dataset}.toml")
    assert config == parse_config({**tables, "loss": {"name": "facility_location", "margin_weight": 64.0}})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dataset": "birds", "setting": "head"}, "must be one of glyphs, cub, cars, products, folder, csv; got 'birds'"),
        ({"dataset": "folders", "setting": "head"}, "did you mean 'folder'?"),
        ({"dataset": "glyphs", "setting": "head"}, "must be one of scratch; got 'head'"),
        ({"dataset": "folder", "setting": "paper"}, "--setting for folder must be one of head, finetune; got 'paper'"),
        ({"dataset": "glyphs", "setting": "scratch", "methods": ("triplets",)}, "--method must be one of triplet_semihard"),
        ({"dataset": "cub", "setting": "head"}, "--root path/to/it"),
    ],
)
def test_what_cannot_be_studied_is_refused_in_one_line(tmp_path, arguments, message):
    with pytest.raises((ValueError, ConfigError)) as error:
        reproduction(folder=tmp_path, **arguments)
    assert message in str(error.value)
