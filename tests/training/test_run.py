"""A run in this process: what it writes, what it repeats, and what it says."""

import errno
import io
import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from safetensors.torch import load_file
from typer.testing import CliRunner

from facetric.cli.main import app
from facetric.embedder import encode
from facetric.embedder.activations import cached_activations
from facetric.embedder.checkpoint import load_network
from facetric.embedder.heads import closed_form_head
from facetric.runs import DivergedError, RunFolderError, open_run, read_config
from facetric.runs.manifest import new_images
from facetric.runs.scoring import start_network
from facetric.runs.states import append_row, cut_rows, read_state, states, write_state
from facetric.training import RunResult, resume, train
from facetric.training.feed import split_images, training_transform
from facetric.training.step import LearningRates, build_optimizer
from facetric.training.validation import CollapseWatch, check_validation, refuse_bad_embeddings, refuse_non_finite_weights
from facetric.training.writer import History
from training.tiny_runs import rows_of, tiny_config


def run(config):
    """The result, and what was said."""
    out = io.StringIO()
    return train(config, console=Console(file=out, width=200)), out


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run(tiny_config(tmp_path_factory.mktemp("finished")))


def test_the_folder_holds_what_the_design_says(finished):
    result, _ = finished
    assert isinstance(result, RunResult)
    assert result.finished
    names = {path.relative_to(result.folder).as_posix() for path in result.folder.rglob("*") if path.is_file()}
    assert names - {".lock"} == {
        "config.toml",
        "manifest.json",
        "environment.json",
        "metrics.jsonl",
        "checkpoints/best.safetensors",
        "checkpoints/last.safetensors",
        "checkpoints/state_00000004.pt",
        "checkpoints/state_00000006.pt",
    }
    environment = json.loads((result.folder / "environment.json").read_text())
    assert environment["seed"] == 0
    assert environment["threads"] == 1
    assert environment["versions"]["torch"] == torch.__version__.split("+")[0]


def test_a_row_has_every_term_of_the_loss(finished):
    result, _ = finished
    rows = rows_of(result.folder, timing=True)
    assert [row["step"] for row in rows if "loss" in row] == [1, 2, 3, 4, 5, 6]
    assert [row["step"] for row in rows if "validation" in row] == [0, 3, 6]
    for row in (row for row in rows if "loss" in row):
        # (the hinge) ℓ = F + γΔ − F̃
        expected = row["facility_score"] + row["margin_weight"] * row["margin"] - row["oracle_score"]
        assert row["loss"] == pytest.approx(max(expected, 0.0), abs=1e-3)
        assert row["batch_nmi"] == pytest.approx(1 - row["margin"])
        timing = row["timing"]
        assert 0 < timing["loss_fraction"] < 1
        assert timing["overhead_fraction"] == pytest.approx(
            timing["sampler_fraction"] + timing["loss_fraction"] + timing["logging_fraction"]
        )
    gammas = [row["margin_weight"] for row in rows if "loss" in row]
    assert gammas == pytest.approx([8.0, 8.0, 8.0 * 0.94, 8.0 * 0.94, 8.0 * 0.94**2, 8.0 * 0.94**2])


def test_plain_lines_and_a_table_are_printed(finished):
    result, out = finished
    text = out.getvalue()
    assert "step      1/6  loss" in text
    assert "images/s" in text
    assert f"last, step {result.step}" in text
    assert "on validation classes training moved Recall@1 from" in text
    assert f"facetric evaluate {result.folder}" in text
    assert "\r" not in text
    assert "\x1b" not in text


def test_best_is_the_best_validation(finished):
    result, _ = finished
    assert result.validation.keys() == {0, 3, 6}
    scores = result.validation
    assert result.best_step == max((0, 3, 6), key=lambda step: (scores[step]["recall_at_1"], scores[step]["map_at_r"], -step))
    assert load_network(result.folder / "checkpoints" / "best.safetensors").normalize


def test_training_that_does_not_help_is_not_kept(tmp_path):
    """A rate that ruins the network: the best checkpoint is the network before training, the last one is what was trained."""
    ruin = {"name": "adamw", "head_lr": 100.0, "backbone_lr": 100.0, "warmup_steps": 0, "clip_norm": None}
    data = {"validation_fraction": 0.5}  # enough characters to be confused
    result, out = run(tiny_config(tmp_path, run={"steps": 3}, data=data, batches={"size": 16}, optimizer=ruin))
    assert result.validation[3]["recall_at_1"] < result.validation[0]["recall_at_1"]
    assert result.best_step == 0
    before, after = (100 * result.validation[step]["recall_at_1"] for step in (0, 3))
    assert f"moved Recall@1 from {before:.1f} to {after:.1f}; not kept (best.safetensors is the network before" in out.getvalue()
    best, last = (load_network(result.folder / "checkpoints" / f"{name}.safetensors") for name in ("best", "last"))
    start = start_network(open_run(result.folder))
    assert torch.equal(best.head.weight, start.head.weight)
    assert not torch.equal(last.head.weight, start.head.weight)


def test_the_verdict_is_by_the_best_trained_step_and_ties_are_broken_by_map_at_r():
    def scores(recall, map_at_r):
        return {"recall_at_1": recall, "map_at_r": map_at_r}

    progress = History(step=2, validation={0: scores(0.7, 0.3), 1: scores(0.9, 0.5), 2: scores(0.8, 0.9)})
    sentence = "on validation classes training moved Recall@1 from 70.0 to 90.0; kept (best.safetensors is step 1)"
    assert progress.verdict("recall_at_1") == sentence
    assert "moved MAP@R from 30.0 to 90.0; kept" in progress.verdict("map_at_r")
    level = History(step=1, validation={0: scores(1.0, 0.6), 1: scores(1.0, 0.8)})
    assert level.best_step("recall_at_1") == 1
    equal = History(step=1, validation={0: scores(1.0, 0.8), 1: scores(1.0, 0.8)})
    assert equal.best_step("recall_at_1") == 0
    assert "from 100.0 to 100.0; not kept" in equal.verdict("recall_at_1")
    assert History().verdict("recall_at_1") is None


def test_the_resolved_file_repeats_the_run(finished, tmp_path):
    first = finished[0].folder
    config = read_config(first / "config.toml", overrides=[f"run.folder={tmp_path}"])
    again = run(config)[0].folder
    assert rows_of(again) == rows_of(first)
    one, other = (load_file(folder / "checkpoints" / "last.safetensors") for folder in (first, again))
    assert all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_the_weights_of_a_finished_run_are_written_again_from_its_state(finished, tmp_path, how):
    """Earlier versions could leave a finished run without them: `resume` said finished, `evaluate` that there are none."""
    shutil.copytree(finished[0].folder, tmp_path / "tiny")
    last = tmp_path / "tiny" / "checkpoints" / "last.safetensors"
    content = last.read_bytes()
    last.unlink() if how == "missing" else last.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    console = Console(file=io.StringIO(), width=300)
    assert resume(tmp_path / "tiny", console=console).finished
    assert last.read_bytes() == content
    assert f"{last} is {how}: it is written again from the resume state of step 6" in console.file.getvalue()


def test_a_damaged_state_is_passed_over(finished, tmp_path, caplog):
    config = read_config(finished[0].folder / "config.toml", overrides=[f"run.folder={tmp_path}"])
    folder = run(config)[0].folder
    newest = folder / "checkpoints" / "state_00000006.pt"
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    out = io.StringIO()
    result = resume(folder, console=Console(file=out, width=200))
    assert "state_00000006.pt is damaged (its checksum is wrong): using the one before it" in caplog.text
    assert "resuming from step 4 of 6" in out.getvalue()
    assert result.finished
    assert rows_of(folder) == rows_of(finished[0].folder)


def test_a_state_that_a_killed_process_did_not_come_to_remove_goes_at_the_next_resume(finished, tmp_path):
    config = read_config(finished[0].folder / "config.toml", overrides=[f"run.folder={tmp_path}"])
    checkpoints = run(config)[0].folder / "checkpoints"
    (checkpoints / "state_00000002.pt").write_bytes((checkpoints / "state_00000004.pt").read_bytes())
    assert resume(tmp_path / "tiny", console=Console(file=io.StringIO())).finished
    assert [step for step, _ in states(checkpoints)] == [4, 6]


def test_when_all_states_are_damaged_nothing_is_overwritten(finished, tmp_path):
    config = read_config(finished[0].folder / "config.toml", overrides=[f"run.folder={tmp_path}"])
    folder = run(config)[0].folder
    for _, path in states(folder / "checkpoints"):
        path.write_bytes(path.read_bytes()[:100])
    rows = rows_of(folder)
    with pytest.raises(RunFolderError, match="none of the 2 resume states"):
        resume(folder, console=Console(file=io.StringIO()))
    assert rows_of(folder) == rows


@pytest.mark.parametrize("name", ["triplet_semihard", "lifted_structure", "npairs"])
def test_the_baselines_train(tmp_path, name):
    result, _ = run(tiny_config(tmp_path, run={"steps": 3, "validate_every": 0}, loss={"name": name}))
    rows = rows_of(result.folder)
    assert [row["batch_nmi"] for row in rows] == [None] * 3
    assert load_network(result.folder / "checkpoints" / "last.safetensors").normalize == (name == "triplet_semihard")
    assert not (result.folder / "checkpoints" / "best.safetensors").exists()


def test_subsets_and_rmsprop_and_bf16_train(tmp_path):
    changes = {"loss": {"n_subsets": 2, "subset_size": 6}, "optimizer": {"name": "rmsprop"}}
    settings = {"steps": 3, "validate_every": 0, "precision": "bf16", "threads": None}
    result, _ = run(tiny_config(tmp_path, run=settings, **changes))
    assert len(rows_of(result.folder)) == 3
    assert read_config(result.folder / "config.toml").run.threads == torch.get_num_threads()  # the choice is written down


def test_the_cached_trunk_trains_and_validates(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO", "facetric")
    monkeypatch.setenv("FACETRIC_CACHE", str(tmp_path / "cache"))
    model = {"freeze_through": "stem", "cached_views": 2, "head_init": "pca"}
    result, _ = run(tiny_config(tmp_path / "runs", run={"steps": 4}, model=model))
    assert caplog.text.count("computing activations") == 2  # training and validation images
    caplog.clear()
    assert result.validation.keys() == {0, 3, 4}
    again, _ = run(tiny_config(tmp_path / "again", run={"steps": 4}, model=model))
    assert "computing activations" not in caplog.text
    assert rows_of(again.folder) == rows_of(result.folder)


@pytest.fixture
def _one_shrinkage(monkeypatch):
    """The choice takes seconds for the 1,024 features of the small network; embedder/test_closed_form.py tests it."""
    monkeypatch.setattr("facetric.embedder.heads._chosen_shrinkage", lambda units, classes, dim: 3.0)


@pytest.mark.usefixtures("_one_shrinkage")
def test_a_whitened_head_starts_from_the_closed_form_and_resumes(tmp_path, monkeypatch):
    monkeypatch.setenv("FACETRIC_CACHE", str(tmp_path / "cache"))
    model = {"head_init": "whitened", "freeze_through": "all", "cached_views": 1}
    config = tiny_config(
        tmp_path,
        run={"steps": 1, "validate_every": 0},
        model=model,
        optimizer={"head_lr": 0.0, "backbone_lr": 0.0, "warmup_steps": 0},
    )
    result, _ = run(config)
    embedder = load_network(result.folder / "checkpoints" / "last.safetensors")
    training, _ = split_images(new_images(config.data, validate=False), config.data, validate=False)
    form = embedder.preprocessing
    transform = training_transform(config.data, form)
    features = encode(embedder, cached_activations(embedder, training.images, n_views=1, transform=transform), what="features")
    closed = closed_form_head(features, training.labels, embedder.dim)
    assert embedder.normalize_features
    np.testing.assert_allclose(embedder.head.weight.detach().numpy(), closed.weight, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(embedder.head.bias.detach().numpy(), closed.bias, rtol=1e-4, atol=1e-4)
    assert resume(result.folder, console=Console(file=io.StringIO())).finished


@pytest.mark.usefixtures("_one_shrinkage")
@pytest.mark.parametrize("model", [{}, {"freeze_through": "stem", "cached_views": 2}], ids=["live", "cached"])
def test_a_refitted_head_is_the_closed_form_on_the_trained_features(tmp_path, monkeypatch, model):
    monkeypatch.setenv("FACETRIC_CACHE", str(tmp_path / "cache"))
    short = {"steps": 3, "validate_every": 3}
    plain, _ = run(tiny_config(tmp_path / "plain", run=short, model=model))
    result, _ = run(tiny_config(tmp_path / "refitted", run=short, model={**model, "head_refit": True}))
    config = read_config(result.folder / "config.toml")
    training, _ = split_images(new_images(config.data, validate=True), config.data, validate=True)
    last, own = (load_network(folder / "checkpoints" / "last.safetensors") for folder in (result.folder, plain.folder))
    images = training.images
    if model:
        transform = training_transform(config.data, last.preprocessing)
        images = cached_activations(last, training.images, n_views=2, center=True, transform=transform)
    closed = closed_form_head(encode(last, images, what="features"), training.labels, last.dim)
    np.testing.assert_allclose(last.head.weight.detach().numpy(), closed.weight, rtol=1e-3, atol=1e-4)
    assert (last.normalize_features, own.normalize_features) == (True, False)
    for name, tensor in own.backbone.state_dict().items():  # training did not notice
        assert torch.equal(tensor, last.backbone.state_dict()[name]), name
    assert [row["loss"] for row in rows_of(result.folder) if "loss" in row] == [
        row["loss"] for row in rows_of(plain.folder) if "loss" in row
    ]
    assert result.validation[0] != plain.validation[0]  # the start has a closed-form head too


def test_too_few_images_for_a_refitted_head_are_refused_before_training(tmp_path):
    with pytest.raises(ValueError, match=r"a whitened head of 700 dimensions needs more than 700 images"):
        run(tiny_config(tmp_path, model={"dim": 700, "head_refit": True}))
    assert not (tmp_path / "tiny").exists()


def test_no_step_at_all_saves_the_network_with_its_initial_head(tmp_path):
    result, _ = run(tiny_config(tmp_path, run={"steps": 0, "validate_every": 0}))
    assert (result.step, result.finished) == (0, True)
    last, start = load_network(result.folder / "checkpoints" / "last.safetensors"), start_network(open_run(result.folder))
    for name, tensor in start.state_dict().items():
        assert torch.equal(tensor, last.state_dict()[name]), name
    assert resume(result.folder).finished
    reported = CliRunner().invoke(app, ["report", str(result.folder)])
    assert reported.exit_code == 0, reported.output  # without a single row of metrics


def test_a_disk_that_is_full_at_the_last_state_costs_no_weights(finished, tmp_path, monkeypatch):
    written = write_state

    def full(folder, step, state):
        if step == 6:
            raise OSError(errno.ENOSPC, "No space left on device", str(folder))
        written(folder, step, state)

    monkeypatch.setattr("facetric.runs.states.write_state", full)
    with pytest.raises(OSError, match="No space left"):
        run(tiny_config(tmp_path))
    monkeypatch.undo()
    assert resume(tmp_path / "tiny").finished  # there is room again
    saved = [load_file(folder / "checkpoints" / "last.safetensors") for folder in (finished[0].folder, tmp_path / "tiny")]
    assert all(torch.equal(saved[0][name], saved[1][name]) for name in saved[0])


def test_a_nested_loss_resumes_bitwise(tmp_path):
    nested = {"nested": [4, 8], "n_subsets": 2}
    whole, _ = run(tiny_config(tmp_path / "whole", run={"steps": 4}, loss=nested))
    first, _ = run(tiny_config(tmp_path / "parts", run={"steps": 4}, loss=nested))
    for path in (first.folder / "checkpoints").glob("state_00000004*"):
        path.unlink()
    assert resume(first.folder).finished  # again from step 2
    assert rows_of(whole.folder) == rows_of(first.folder)
    weights = [(folder / "checkpoints" / "last.safetensors").read_bytes() for folder in (whole.folder, first.folder)]
    assert weights[0] == weights[1]
    assert read_config(whole.folder / "config.toml").loss.nested == (4, 8)


@pytest.mark.usefixtures("_one_shrinkage")
def test_weights_halfway_to_the_pretrained_ones_resume_bitwise(tmp_path, monkeypatch):
    monkeypatch.setenv("FACETRIC_CACHE", str(tmp_path / "cache"))
    model = {"freeze_through": "stem", "cached_views": 1, "head_refit": True, "pretrained_fraction": 0.5}
    short = {"steps": 4, "validate_every": 4}
    whole, _ = run(tiny_config(tmp_path / "whole", run=short, model=model))
    parts, _ = run(tiny_config(tmp_path / "parts", run=short, model=model))
    for path in (parts.folder / "checkpoints").glob("state_00000004*"):
        path.unlink()
    (parts.folder / "checkpoints" / "last.safetensors").unlink()
    assert resume(parts.folder).finished
    saved = [load_file(folder / "checkpoints" / "last.safetensors") for folder in (whole.folder, parts.folder)]
    assert all(torch.equal(saved[0][name], saved[1][name]) for name in saved[0])


def test_pictures_on_disk_train_through_the_prepared_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FACETRIC_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    for label in range(8):
        (tmp_path / "pictures" / str(label)).mkdir(parents=True)
        for number in range(6):
            noise = rng.integers(0, 60, size=(40, 50, 3)) + 20 * label
            Image.fromarray(noise.astype(np.uint8)).save(tmp_path / "pictures" / str(label) / f"{number}.png")
    data = {"name": "folder", "root": str(tmp_path / "pictures"), "options": {"test_fraction": 0.25}, "size": 164, "pad": 0}
    changes = {
        "data": {**data, "validation_fraction": 0.34, "augment": "crop"},
        "model": {"backbone": "test_efficientnet", "freeze_through": "blocks.0", "cached_views": 2, "head_init": "pca"},
        "batches": {"size": 8, "images_per_class": 4},
    }
    result, _ = run(tiny_config(tmp_path / "runs", run={"steps": 3}, **changes))
    assert result.finished
    kinds = sorted(json.loads(path.read_text())["dtype"] for path in (tmp_path / "cache").glob("trunk-*.json"))
    assert kinds == ["float16", "float32"]  # views to train from, central crops to score


def test_a_loss_that_is_not_finite_stops_the_run_and_saves_the_batch(tmp_path):
    config = tiny_config(tmp_path, optimizer={"head_lr": 1e30, "backbone_lr": 1e30, "warmup_steps": 0})
    with pytest.raises(DivergedError, match="not finite in step 2; the batch is in") as stopped:
        run(config)
    batch = load_file(tmp_path / "tiny" / "nonfinite_step_2.safetensors")
    assert batch["inputs"].shape == (12, 1, 32, 32)
    assert len(batch["labels"]) == len(batch["image_ids"]) == len(batch["embeddings"]) == 12
    assert "\n" not in str(stopped.value)


def test_validation_classes_of_one_image_each_are_refused():
    with pytest.raises(ValueError, match=r"none of the 12 validation classes has 2 images.*data\.validation_seed"):
        check_validation(np.arange(12))
    check_validation(np.array([0, 0, *range(1, 11)]))


def test_embeddings_of_zero_stop_the_run(tmp_path):
    with pytest.raises(DivergedError, match=r"after step 3 the embeddings of 1 of 2 validation images are zero.*learning rates"):
        refuse_bad_embeddings(np.array([[0.6, 0.8], [0.0, 0.0]], dtype=np.float32), 3, metric="cosine")
    refuse_bad_embeddings(np.array([[0.6, 0.8], [0.0, 0.0]], dtype=np.float32), 3, metric="euclidean")
    with pytest.raises(DivergedError, match="1 of 2 validation images are zero or not finite"):
        refuse_bad_embeddings(np.array([[0.6, 0.8], [np.nan, 0.0]], dtype=np.float32), 3, metric="euclidean")
    config = tiny_config(tmp_path, run={"steps": 1}, optimizer={"head_lr": 1e30, "warmup_steps": 0})
    with pytest.raises(DivergedError, match=r"after step 1 the embeddings of (\d+) of \1 validation images are zero"):
        run(config)


def test_distances_that_overflow_stop_the_run_as_a_loss_that_is_not_finite_does(tmp_path):
    changes = {"optimizer": {"head_lr": 1e20, "warmup_steps": 0}, "loss": {"name": "facility_location", "normalize": False}}
    with pytest.raises(DivergedError, match="the loss is not finite in step 2; the batch is in"):
        run(tiny_config(tmp_path, run={"validate_every": 0}, **changes))


def test_a_run_that_diverged_unseen_says_so_when_it_is_evaluated(tmp_path):
    config = tiny_config(tmp_path, run={"steps": 1, "validate_every": 0}, optimizer={"head_lr": 1e30, "warmup_steps": 0})
    run(config)
    with pytest.raises(DivergedError, match=r"last.safetensors the embeddings of (\d+) of \1 images are zero.*lower rates"):
        open_run(tmp_path / "tiny").evaluate()


def test_spoiled_weights_are_not_saved():
    network = torch.nn.Linear(2, 2)
    refuse_non_finite_weights(network, 3)
    network.weight.data[0, 0] = torch.nan
    with pytest.raises(DivergedError, match="1 tensors of the network \\(weight, …\\) are not finite after step 3"):
        refuse_non_finite_weights(network, 3)


def test_a_terminal_shows_a_bar(tmp_path):
    out = io.StringIO()
    config = tiny_config(tmp_path, run={"steps": 3, "validate_every": 0})
    train(config, console=Console(file=out, width=200, force_terminal=True))
    assert "3/3" in out.getvalue()
    assert "images/s" in out.getvalue()


def test_collapse_is_reported_once():
    watch = CollapseWatch(loss_name="facility_location", patience=3)
    said = [watch.idle(active) for active in (False, False, True, False, False, False, False)]
    assert [line is not None for line in said] == [False] * 5 + [True, False]
    assert "raise loss.margin_weight or loss.margin_decay" in said[5]
    alike = torch.ones(8, 4) + 1e-6 * torch.randn(8, 4)
    assert watch.spread(torch.randn(8, 4)) is None
    assert "collapsed" in watch.spread(alike)
    assert watch.spread(alike) is None


def test_rows_beyond_the_checkpoint_are_cut(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2}\n{"step": 3}\n{"step": 4, "lo')
    cut_rows(path, after=2)
    append_row(path, {"step": 3, "again": True})
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n{"step": 3, "again": true}\n'


def test_states_hold_no_code(tmp_path):
    write_state(tmp_path, 5, {"numbers": [1, 2.5], "tensor": torch.arange(3)})
    assert read_state(tmp_path / "state_00000005.pt")["numbers"] == [1, 2.5]
    write_state(tmp_path, 6, {"code": History()})
    with pytest.raises(ValueError, match="more than tensors and plain containers"):
        read_state(tmp_path / "state_00000006.pt")


def test_learning_rates_warm_up_and_fall(tmp_path):
    config = tiny_config(tmp_path, run={"steps": 100}, optimizer={"warmup_steps": 9}).optimizer
    parameter = torch.nn.Parameter(torch.zeros(2, 2))
    optimizer = build_optimizer([{"name": "head", "params": [parameter], "lr": 1.0}], config)
    rates = LearningRates(optimizer, config, n_steps=100)
    factors = [rates.factor(step) for step in range(1, 101)]
    assert factors[:9] == pytest.approx([step / 10 for step in range(1, 10)])
    assert factors[9] == 1.0
    assert sorted(factors[9:], reverse=True) == factors[9:]
    assert 0 < factors[-1] < 0.01


def test_a_small_dataset_keeps_its_gamma(tmp_path):
    """A pass over it has fewer steps than one over CUB in the paper."""
    loss = {"name": "facility_location", "margin_weight": 8.0}
    result, _ = run(tiny_config(tmp_path, run={"steps": 47, "validate_every": 0}, loss=loss))
    assert result.run.manifest.count("train")[0] // 12 < 45
    assert [row["margin_weight"] for row in rows_of(result.folder)] == [8.0] * 45 + [8.0 * 0.94] * 2
