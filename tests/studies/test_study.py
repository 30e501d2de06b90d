"""A study in seconds: the protocol as a whole, what it keeps, and that nothing finished is repeated."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from data.official_layouts import write_folder
from facetric.config import read_config
from facetric.config.config_file import parse_config
from facetric.studies import Setting, Study
from facetric.studies.protocol import validation_scores
from facetric.studies.reproduction import PAPER_STEPS, paper_tables, reproduction
from facetric.studies.search import Trial, at_the_edge, best_trial, read_trials, search
from facetric.studies.spaces import METHODS, Range
from training.tiny_runs import tiny_tables

ROOT = Path(__file__).parents[2]


def tiny_study(folder, names=("facility_location",), **changes):
    tables = tiny_tables(folder)
    tables.pop("loss")
    setting = Setting(
        tables,
        {"optimizer.head_lr": Range(1e-4, 1e-2)},
        tied={"optimizer.backbone_lr": "optimizer.head_lr"},
        **{"n_trials": 2, "n_seeds": 2, **changes},
    )
    known = METHODS
    return Study(Path(folder), setting, {name: known[name] for name in names})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    study = tiny_study(tmp_path_factory.mktemp("study"), ("facility_location", "proxy_anchor"))
    return study, study.run()


def test_the_table_has_a_row_per_method_with_mean_and_spread_over_seeds(finished):
    _, comparison = finished
    assert [(row.name, row.n_runs) for row in comparison.rows] == [
        ("facility_location (2 seeds)", 2),
        ("proxy_anchor (2 seeds)", 2),
    ]
    assert all(row.scores["NMI"].sd is not None for row in comparison.rows)


def test_final_runs_train_on_all_training_classes_with_the_chosen_parameters(finished):
    study, _ = finished
    best = best_trial(read_trials(study.trials_file("facility_location")))
    config = read_config(study.final_folder("facility_location", 1) / "config.toml")
    assert config.run.validate_every == 0
    assert config.run.seed == 1
    assert config.optimizer.head_lr == config.optimizer.backbone_lr == best.parameters["optimizer.head_lr"]
    assert config.loss.margin_weight == best.parameters["loss.margin_weight"]


def test_all_that_decided_the_study_is_kept_and_trial_runs_are_not(finished):
    study, _ = finished
    kept = json.loads((study.folder / "study.json").read_text())
    assert kept["proxy_anchor"]["n_trials"] == 2
    assert kept["proxy_anchor"]["chosen"]["loss.options.alpha"] >= 8
    assert "facility_location (2 seeds)" in (study.folder / "table.md").read_text()
    assert not list((study.folder / "search" / "running").iterdir())
    assert not list(study.folder.rglob("state_*.pt"))


def test_a_finished_study_is_not_repeated(finished, capsys):
    study, comparison = finished
    files = {path: path.stat().st_mtime_ns for path in study.folder.rglob("evaluation.json")}
    assert len(files) == 4
    assert study.run() == comparison
    assert {path: path.stat().st_mtime_ns for path in study.folder.rglob("evaluation.json")} == files
    said = capsys.readouterr().err
    assert "searched before" in said
    assert "done before" in said


def test_when_more_trials_find_something_better_the_final_runs_follow(tmp_path):
    study = tiny_study(tmp_path, n_trials=1, n_seeds=1)
    study.run()
    path = study.trials_file("facility_location")
    [first] = json.loads(path.read_text())
    better = {**first, "objective": 2.0, "parameters": {**first["parameters"], "optimizer.head_lr": 5e-3}}
    path.write_text(json.dumps([first, better]))
    study.run()
    assert read_config(study.final_folder("facility_location", 0) / "config.toml").optimizer.head_lr == 5e-3


def test_runs_of_other_settings_are_not_mixed_into_a_study(finished):
    study, _ = finished
    tables = {**study.setting.tables, "batches": {"size": 32}}
    other = replace(study, setting=replace(study.setting, tables=tables))
    with pytest.raises(ValueError, match=r"begun with other settings \(tables\).*another folder"):
        other.run()
    method = replace(study.methods["facility_location"], searched={})
    with pytest.raises(ValueError, match=r"other settings \(facility_location\)"):
        replace(study, methods={"facility_location": method}).run()


def test_an_interrupted_trial_goes_on_from_its_checkpoint(tmp_path):
    from facetric.training import train

    study = tiny_study(tmp_path)
    parameters = {"optimizer.head_lr": 1e-3}
    place = {"folder": str(tmp_path / "a"), "name": "trial"}
    whole = validation_scores(study.config("facility_location", parameters, **place))
    assert not (tmp_path / "a" / "trial").exists()
    half = study.config("facility_location", parameters, **place)
    half = half.model_copy(update={"run": half.run.model_copy(update={"validate_every": 6, "log_every": 6})})
    train(half)  # finished but for the study's own record of it, as after a kill in between
    assert validation_scores(half) == whole


def test_two_processes_find_what_one_does(finished, tmp_path):
    study, comparison = finished
    other = tiny_study(tmp_path, tuple(study.methods))
    assert other.run(n_jobs=2).rows == comparison.rows


def test_folds_are_different_validation_classes(tmp_path):
    study = tiny_study(tmp_path, n_trials=1, n_seeds=1, n_folds=2)
    study.run()
    [trial] = read_trials(study.trials_file("facility_location"))
    assert len(trial.scores) == 2
    assert trial.scores[0] != trial.scores[1]
    assert trial.objective == pytest.approx(sum((s["recall_at_1"] + s["nmi"]) / 4 for s in trial.scores))


def test_a_search_that_was_interrupted_ends_as_if_it_had_not_been(tmp_path):
    space = {"x": Range(0.01, 100.0), "kind": ("a", "b")}

    def run(number, parameters):
        bonus = {"a": 0.0, "b": 0.1}[parameters["kind"]]
        return Trial(parameters, 1 / (1 + abs(parameters["x"] - 3.0)) + bonus, [], 0.0)

    whole = search(tmp_path / "whole.json", space, 12, run)
    search(tmp_path / "parts.json", space, 5, run)
    assert search(tmp_path / "parts.json", space, 12, run) == whole
    assert abs(best_trial(whole).parameters["x"] - 3.0) < 5.0
    assert len({trial.parameters["x"] for trial in whole}) == 12


def test_a_few_choices_are_tried_out_in_full_and_once(tmp_path):
    space = {"x": (1, 2), "kind": ("a", "b")}
    trials = search(tmp_path / "grid.json", space, 9, lambda number, parameters: Trial(parameters, 0.0, [], 0.0))
    assert [tuple(trial.parameters.values()) for trial in trials] == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]


def test_fine_tuning_can_keep_the_choices_of_another_study(tmp_path):
    chosen = {"optimizer.head_lr": 2e-4, "run.steps": 600, "loss.margin_weight": 77.0, "loss.margin_decay": 1.0}
    (tmp_path / "study.json").write_text(json.dumps({"facility_location": {"chosen": chosen}}))
    method = reproduction_of_photos(tmp_path, options_from=tmp_path).methods["facility_location"]
    assert method.searched == {}
    assert method.fixed == {key: value for key, value in chosen.items() if key != "run.steps"}
    with pytest.raises(ValueError, match=r"no npairs; it has facility_location"):
        reproduction_of_photos(tmp_path, options_from=tmp_path, methods=("npairs",))
    with pytest.raises(ValueError, match=r"study\.json is missing"):
        reproduction_of_photos(tmp_path, options_from=tmp_path / "nowhere")


def reproduction_of_photos(folder, *, methods=("facility_location",), **options):
    """A study of fine-tuning on a small folder that is generated."""
    root = write_folder(folder / "photos", classes=tuple("abcdefgh"))
    return reproduction("folder", folder / "study", root=str(root), setting="finetune", methods=methods, **options)


def test_a_best_value_at_the_end_of_its_range_is_named():
    space = {"low": Range(1.0, 100.0), "middle": Range(1.0, 100.0), "choice": (1, 2)}
    assert at_the_edge(Trial({"low": 1.1, "middle": 10.0, "choice": 1}, 0.0, [], 0.0), space) == ["low"]


@pytest.mark.parametrize("dataset", sorted(PAPER_STEPS))
def test_the_papers_configurations_are_those_of_the_study(dataset):
    tables = paper_tables(dataset, None)
    tables["run"]["name"] = dataset
    config = read_config(ROOT / "configs" / "paper" / f"{dataset}.toml")
    assert config == parse_config({**tables, "loss": {"name": "facility_location", "margin_weight": 64.0}})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dataset": "birds"}, "must be one of glyphs, cub, cars, products, folder, csv; got 'birds'"),
        ({"dataset": "glyphs", "setting": "head"}, "must be one of scratch; got 'head'"),
        ({"dataset": "glyphs", "methods": ("triplets",)}, "must be one of triplet_semihard"),
        ({"dataset": "cub"}, "--root path/to/it"),
    ],
)
def test_what_cannot_be_studied_is_refused_in_one_line(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=r"choose|--root") as error:
        reproduction(folder=tmp_path, **arguments)
    assert message in str(error.value)
