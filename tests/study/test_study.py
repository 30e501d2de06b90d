"""A study in seconds: the protocol as a whole, what it records, and that nothing finished is repeated or deleted."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock

from facetric.files import checksummed
from facetric.runs import open_run, read_config
from facetric.training.study import Study
from facetric.training.study.spaces import METHODS, Method, Range
from facetric.training.study.study import Setting
from facetric.training.study.trials import in_processes, validation_scores
from training.tiny_runs import tiny_tables


def tiny_study(folder, names=("facility_location",), **changes):
    tables = tiny_tables(folder, run={"steps": 3})
    tables.pop("loss")
    setting = Setting(
        tables,
        {"optimizer.head_lr": Range(1e-4, 1e-2)},
        tied={"optimizer.backbone_lr": "optimizer.head_lr"},
        **{"n_trials": 2, "n_seeds": 2, **changes},
    )
    return Study(Path(folder), setting, {name: METHODS[name] for name in names})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    study = tiny_study(tmp_path_factory.mktemp("study"), ("facility_location", "proxy_anchor"))
    return study, study.run()


def test_the_table_has_a_row_per_method_with_mean_and_spread_over_seeds(finished):
    _, comparison = finished
    before = [row.name.split(",")[0] for row in comparison.rows if row.n_runs == 0]
    assert before == ["raw pixels", "untrained network", "closed-form head on pixels"]
    runs = [row for row in comparison.rows if row.n_runs]
    assert [(row.name, row.n_runs) for row in runs] == [("facility_location (2 seeds)", 2), ("proxy_anchor (2 seeds)", 2)]
    assert all(row.scores["NMI"].sd is not None for row in runs)


def test_final_runs_train_on_all_training_classes_with_the_chosen_parameters(finished):
    study, _ = finished
    best = study.search("facility_location").best
    config = read_config(study.final_folder("facility_location", 1) / "config.toml")
    assert config.run.validate_every == 0
    assert config.run.seed == 1
    assert config.optimizer.head_lr == config.optimizer.backbone_lr == best.parameters["optimizer.head_lr"]
    assert config.loss.margin_weight == best.parameters["loss.margin_weight/m"] * config.batches.size


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
    assert "already searched" in said
    assert "already done" in said


def test_final_runs_that_a_longer_search_replaces_are_kept(tmp_path, capsys):
    study = tiny_study(tmp_path, n_trials=1, n_seeds=1)
    study.run()
    folder = study.final_folder("facility_location", 0)
    first_report = (folder / "evaluation.json").read_bytes()
    path = study.search("facility_location").path
    [first] = json.loads(path.read_text())["trials"]
    for rate in (5e-3, 6e-3):  # twice: the second must not overwrite what the first has moved
        better = {**first, "objective": 1 + rate, "parameters": {**first["parameters"], "optimizer.head_lr": rate}}
        path.write_bytes(checksummed({"trials": [*json.loads(path.read_text())["trials"], better]}))
        study.run()
        assert read_config(folder / "config.toml").optimizer.head_lr == rate
        assert "(optimizer.backbone_lr differs) and is kept in" in capsys.readouterr().err
    kept = sorted(tmp_path.glob("superseded/*"))
    assert [run.name for run in kept] == ["facility_location-seed0-1", "facility_location-seed0-2"]
    assert (kept[0] / "evaluation.json").read_bytes() == first_report


def test_a_file_in_the_place_of_a_final_run_is_not_deleted(tmp_path):
    study = tiny_study(tmp_path, n_trials=1, n_seeds=1)
    folder = study.final_folder("facility_location", 0)
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    study.run()
    assert (folder / "evaluation.json").is_file()
    assert (tmp_path / "superseded" / "facility_location-seed0-1" / "notes.txt").read_text() == "mine"


def test_runs_of_other_settings_are_not_mixed_into_a_study(finished):
    study, _ = finished

    def refused(other):
        with pytest.raises(ValueError, match="choose another folder with --output") as error:
            other.run()
        return str(error.value)

    tables = {**study.setting.tables, "batches": {"size": 32}}
    other = replace(study, setting=replace(study.setting, tables=tables))
    assert "was begun with another batches.size: 12 there, 32 here" in refused(other)
    other = replace(study, setting=replace(study.setting, overrides={"data.pad": 3}))
    assert "was begun with another data.pad: None there, 3 here" in refused(other)
    other = replace(study, setting=replace(study.setting, test_classes="3 (0a1b2c3d)"))
    assert "was begun with another test_classes:  there, 3 (0a1b2c3d) here" in refused(other)
    method = replace(study.methods["facility_location"], title="x")
    assert "was begun with another method.title: Facility" in refused(replace(study, methods={"facility_location": method}))


def test_an_interrupted_trial_goes_on_from_its_checkpoint(tmp_path):
    from facetric.training import train

    study = tiny_study(tmp_path)
    parameters = {"optimizer.head_lr": 1e-3}
    place = {"folder": str(tmp_path / "a"), "name": "trial"}
    whole = validation_scores(study.config("facility_location", parameters, **place))
    assert not (tmp_path / "a" / "trial").exists()
    half = study.config("facility_location", parameters, **place)
    half = half.model_copy(update={"run": half.run.model_copy(update={"validate_every": 3, "log_every": 3})})
    train(half)  # finished but for the study's own record of it, as after a kill in between
    assert validation_scores(half) == whole


def test_the_rest_of_a_trial_with_other_parameters_is_not_resumed(tmp_path):
    from facetric.training import train

    study = tiny_study(tmp_path)
    place = {"folder": str(tmp_path / "a"), "name": "trial"}
    wanted = study.config("facility_location", {"optimizer.head_lr": 1e-3}, **place)
    alone = validation_scores(wanted)
    train(study.config("facility_location", {"optimizer.head_lr": 5e-2}, validate_every=3, log_every=3, **place))
    assert validation_scores(wanted) == alone


def test_two_processes_find_what_one_does(finished, tmp_path):
    study, comparison = finished
    assert tiny_study(tmp_path, study.methods).run(n_processes=2).rows == comparison.rows


def test_a_trial_that_diverges_is_the_worst_and_the_search_goes_on(tmp_path, capsys):
    study = tiny_study(tmp_path, n_trials=2, n_seeds=1)
    study = replace(study, setting=replace(study.setting, searched={"optimizer.head_lr": (1e-3, 1e30)}))
    study = replace(study, methods={"facility_location": replace(METHODS["facility_location"], searched={})})
    study.run()
    scores = {trial.parameters["optimizer.head_lr"]: trial.objective for trial in study.search(*study.methods).trials}
    assert scores[1e30] == 0.0 < scores[1e-3]
    assert "this trial has diverged and counts as the worst" in capsys.readouterr().err
    assert not list((tmp_path / "search" / "running").iterdir())


def test_a_study_that_cannot_begin_can_be_corrected(tmp_path):
    study = tiny_study(tmp_path, n_trials=1, n_seeds=1)
    wrong = {**study.setting.tables, "model": {**study.setting.tables["model"], "weights": str(tmp_path / "none.safetensors")}}
    wrong["model"]["freeze_through"], wrong["model"]["cached_views"] = "stages.0", 1
    with pytest.raises((ValueError, OSError), match=r"none\.safetensors"):
        replace(study, setting=replace(study.setting, tables=wrong)).run()
    misspelled = {**study.setting.tables, "model": {**study.setting.tables["model"], "backbone": "glyphnett"}}
    with pytest.raises(ValueError, match="glyphnett"):
        replace(study, setting=replace(study.setting, tables=misspelled)).run()
    with pytest.raises(ValueError, match="warmup_steps"):
        replace(study, setting=replace(study.setting, trial_steps=2, overrides={"optimizer.warmup_steps": 3})).run()
    other = Method("Unknown", {"name": "study.test_study.NoSuchLoss"}, {})
    with pytest.raises(ValueError, match="NoSuchLoss"):
        replace(study, methods={**study.methods, "other": other}).run()
    assert not (tmp_path / "protocol.json").exists()
    study.run()


def test_a_final_run_that_diverges_is_named_with_a_way_out(tmp_path):
    study = tiny_study(tmp_path, n_trials=1, n_seeds=1)
    study = replace(study, setting=replace(study.setting, searched={"optimizer.head_lr": (1e30,)}))
    study = replace(study, methods={"facility_location": replace(METHODS["facility_location"], searched={})})
    with pytest.raises(RuntimeError, match=r"facility_location, seed 0 has diverged .*head_lr 1e\+30.*--trials.*--method"):
        study.run()


def test_a_long_warm_up_of_the_users_own_is_kept(tmp_path):
    study = tiny_study(tmp_path, n_trials=1, n_seeds=1)
    tables = {**study.setting.tables, "run": {**study.setting.tables["run"], "steps": 14}}
    tables["model"] = {**tables["model"], "freeze_through": "stages.0", "cached_views": 1}
    overrides = {"optimizer.warmup_steps": 12}
    study = replace(study, setting=replace(study.setting, tables=tables, overrides=overrides))
    study.prepare()
    assert study.config("facility_location", {"optimizer.head_lr": 1e-3}).optimizer.warmup_steps == 12


def test_a_file_of_weights_has_one_spelling(tmp_path, monkeypatch):
    study = tiny_study(tmp_path)
    tables = {**study.setting.tables, "model": {**study.setting.tables["model"], "weights": "mine.safetensors"}}
    monkeypatch.chdir(tmp_path)
    config = replace(study, setting=replace(study.setting, tables=tables)).config(
        "facility_location", {"optimizer.head_lr": 1e-3}
    )
    assert config.model.weights == str(tmp_path / "mine.safetensors")


def be_killed(task):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_worker_is_named_with_a_way_out():
    """The workers die as the kernel ends a process for lack of memory."""
    with pytest.raises(RuntimeError, match=r"lack of memory.*fewer --jobs"):
        in_processes(be_killed, [(0,), (1,), (2,)], 2)


def note_threads(folder, task):
    import numba
    import torch

    (Path(folder) / str(task)).write_text(f"{torch.get_num_threads()} {numba.get_num_threads()}")


def test_each_of_several_processes_has_one_thread(tmp_path):
    in_processes(note_threads, [(tmp_path, task) for task in range(3)], 2)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["1 1"] * 3


def test_trials_may_be_shorter_than_final_runs(tmp_path):
    study = tiny_study(tmp_path, n_trials=1, n_seeds=1, trial_steps=2)
    study.run()
    assert study.config("facility_location", {"optimizer.head_lr": 1e-3}).run.steps == 3
    [trial] = study.search("facility_location").trials
    config = study.config("facility_location", trial.parameters, folder=str(tmp_path / "again"), name="trial", steps=2)
    assert trial.scores == [validation_scores(config)]
    assert open_run(study.final_folder("facility_location", 0)).config.run.steps == 3
    with pytest.raises(ValueError, match="begun with another trial_steps: 2 there, None here"):
        tiny_study(tmp_path, n_trials=1, n_seeds=1).run()


def test_folds_are_different_validation_classes(tmp_path):
    study = tiny_study(tmp_path, n_trials=1, n_seeds=1, n_folds=2)
    study.run()
    [trial] = study.search("facility_location").trials
    assert len(trial.scores) == 2
    assert trial.scores[0] != trial.scores[1]
    assert trial.objective == pytest.approx(sum((s["recall_at_1"] + s["nmi"]) / 4 for s in trial.scores))


def test_a_kill_between_evaluation_and_cleaning_up_leaves_no_states(tmp_path):
    study = tiny_study(tmp_path, n_trials=1, n_seeds=1)
    study.run()
    folder = study.final_folder("facility_location", 0)
    left = folder / "checkpoints" / "state_00000003.pt"
    left.write_bytes(b"left by a kill")
    study.run()
    assert not left.exists()


def test_a_final_run_killed_at_its_start_is_begun_again_and_not_kept(tmp_path):
    study = tiny_study(tmp_path, n_trials=1, n_seeds=1)
    (study.final_folder("facility_location", 0) / "checkpoints").mkdir(parents=True)
    study.run()
    assert not (tmp_path / "superseded").exists()


def test_damaged_trials_are_refused_by_name(tmp_path):
    study = tiny_study(tmp_path, n_trials=1, n_seeds=1)
    path = study.search("facility_location").path
    path.parent.mkdir(parents=True)
    trial = {"parameters": {"optimizer.head_lr": 1e-3}, "objective": 0.5, "scores": [], "seconds": 1.0}
    path.write_bytes(checksummed({"trials": [trial]}).replace(b"0.5", b"0.6"))
    with pytest.raises(ValueError, match=r"facility_location.json is damaged \(its checksum is wrong\): restore it, or remove"):
        study.search("facility_location").trials  # noqa: B018


def test_two_processes_do_not_run_one_study(tmp_path):
    study = tiny_study(tmp_path)
    with FileLock(tmp_path / ".lock"), pytest.raises(RuntimeError, match="run by another process: wait for it, or choose"):
        study.run()
