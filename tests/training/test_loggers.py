"""`run.loggers`: the rows of metrics.jsonl in TensorBoard and W&B, read back by the packages themselves."""

import json
import sys

import pytest

from facetric.runs.config_file import apply_override, parse_config, read_config, to_toml
from facetric.training import resume, train
from facetric.training.loggers import scalars
from training.tiny_runs import rows_of, tiny_config, tiny_tables


def expected(folder):
    """(name, step) → value, of every number of metrics.jsonl."""
    return {(name, row["step"]): value for row in rows_of(folder) for name, value in scalars(row)}


def test_the_numbers_of_a_row_have_names_by_table():
    row = {"step": 3, "loss": 0.5, "batch_nmi": None, "validation": {"nmi": 0.25}, "timing": {"step_seconds": 2.0}}
    assert dict(scalars(row)) == {"training/loss": 0.5, "validation/nmi": 0.25, "timing/step_seconds": 2.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of both loggers, stopped by its caller after step 4 and resumed from the checkpoint of that step."""
    pytest.importorskip("tensorboard")
    pytest.importorskip("wandb")
    config = tiny_config(tmp_path_factory.mktemp("runs"), run={"loggers": ["tensorboard", "wandb"]})

    def stop(step, loss):
        if step == 5:
            raise TimeoutError("enough for today")

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("WANDB_ERROR_REPORTING", "false")
        with pytest.raises(TimeoutError, match="enough for today"):
            train(config, on_step=stop)
        result = resume(f"{config.run.folder}/tiny")
    assert result.finished
    return result.folder


def test_tensorboard_shows_every_row(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(folder / "tensorboard")).Reload()
    found = {
        (name, event.step): event.value
        for name in board.Tags()["scalars"]
        if not name.startswith("timing/")
        for event in board.Scalars(name)
    }
    assert found == pytest.approx(expected(folder), rel=1e-6)


def test_wandb_keeps_every_row_under_one_id(folder):
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    found, ids = {}, set()
    files = sorted((folder / "wandb").glob("offline-run-*/*.wandb"))
    assert len(files) == 2  # before and after the stop
    for path in files:
        store = DataStore()
        store.open_for_scan(str(path))
        while (data := store.scan_data()) is not None:
            record = Record.FromString(data)
            if record.WhichOneof("record_type") == "run":
                ids.add(record.run.run_id)
                assert (record.run.project, record.run.display_name) == ("facetric", "tiny")
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
                kept = {name: value for name, value in row.items() if name.startswith(("training/", "validation/"))}
                found |= {(name, row["step"]): value for name, value in kept.items()}
        store.close()
    assert found == pytest.approx(expected(folder))
    assert len(ids) == 1


def test_one_name_is_a_list_of_one_and_survives_the_file(tmp_path):
    raw = tiny_tables(tmp_path)
    apply_override(raw, "run.loggers=wandb")
    config = parse_config(raw)
    assert config.run.loggers == ("wandb",)
    (tmp_path / "config.toml").write_text(to_toml(config))
    assert read_config(tmp_path / "config.toml") == config
    with pytest.raises(ValueError, match=r"run\.loggers.*'tensorboard' or 'wandb'; got 'mlflow'"):
        tiny_config(tmp_path, run={"loggers": ["mlflow"]})


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_package_that_is_not_installed_is_named_before_there_is_a_folder(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard" if name == "tensorboard" else "wandb", None)
    config = tiny_config(tmp_path / "runs", run={"loggers": [name]})
    with pytest.raises(ValueError, match=rf"is not installed: pip install 'facetric\[{name}\]', or leave it out"):
        train(config)
    assert not (tmp_path / "runs").exists()


def test_wandb_without_a_login_is_one_line_and_the_run_can_be_resumed(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))  # where a login is kept
    config = tiny_config(tmp_path / "runs", run={"loggers": ["wandb"], "steps": 3})
    with pytest.raises(
        ValueError, match=r"W&B cannot start a run \(No API key.*: log in with `wandb login`, set WANDB_MODE=offline"
    ):
        train(config)
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert resume(tmp_path / "runs" / "tiny").finished
