"""What `train` and `resume` do before the first step and after the last: refuse early, leave torch alone, log."""

import logging
from datetime import timedelta

import pytest
import torch
from threadpoolctl import threadpool_info

import facetric
from evaluation.run_folders import make_pictures
from facetric.machine import blas_threads
from facetric.runs import Run, open_run
from facetric.training import resume, session, train
from training.tiny_runs import rows_of, tiny_config

PICTURES = {"backbone": "test_efficientnet", "dim": 8, "weights": "none", "head_init": "orthogonal"}


def folder_config(tmp_path, root, *, data=None, **run):
    return tiny_config(
        tmp_path / "runs",
        run={"steps": 2, "validate_every": 1, **run},
        data={"name": "folder", "root": str(root), "options": {"test_fraction": 0.0}, "size": 164, "pad": 0, **(data or {})},
        model=PICTURES,
        batches={"size": 6},
        optimizer={"warmup_steps": 0},
    )


@pytest.mark.parametrize(("n_classes", "n_images", "fraction", "found"), [(6, 10, 0.17, "10 of 1"), (6, 4, 0.34, "8 of 2")])
def test_validation_that_cannot_be_scored_is_refused_before_there_is_a_folder(tmp_path, n_classes, n_images, fraction, found):
    """It used to fail at step 0, and the retry said that the folder exists."""
    root = make_pictures(tmp_path / "pictures", n_classes=n_classes, n_images=n_images)
    config = folder_config(tmp_path, root, data={"validation_fraction": fraction})
    with pytest.raises(ValueError, match=f"needs 9 images of 2 classes or more; there are {found}: .*--set run.validate_every=0"):
        train(config)
    assert not Run.of(config).path.exists()
    assert train(folder_config(tmp_path, root, validate_every=0)).finished


def test_a_new_class_changes_nothing_for_a_run_that_is_resumed(tmp_path, monkeypatch):
    monkeypatch.setenv("FACETRIC_CACHE", str(tmp_path / "cache"))
    root = make_pictures(tmp_path / "pictures", n_classes=10, n_images=5)
    options = {"validation_fraction": 0.3, "options": {"test_fraction": 0.3}}
    whole = train(folder_config(tmp_path / "whole", root, data=options, steps=4, checkpoint_every=2))
    partly = folder_config(tmp_path, root, data=options, steps=4, checkpoint_every=2)
    _stop_after(monkeypatch, partly, step=2)
    make_pictures(tmp_path / "more", n_classes=1, n_images=5)
    (tmp_path / "more" / "class00").rename(root / "aaa-new")
    resumed = resume(Run.of(partly).path)
    assert resumed.finished
    assert rows_of(resumed.folder) == rows_of(whole.folder)
    assert open_run(resumed.folder).manifest.fingerprint == open_run(whole.folder).manifest.fingerprint


def _stop_after(monkeypatch, config, *, step):
    """Train up to this step's checkpoint, then stop as a signal would."""
    from facetric.training import loop

    class Stopped(loop.Interruption):
        @property
        def signal_number(self):
            return 15 if Run.of(config).metrics_file.read_text().count('"loss"') >= step else 0

        @signal_number.setter
        def signal_number(self, value):
            pass

    with monkeypatch.context() as patch:
        patch.setattr(loop, "Interruption", Stopped)
        assert train(config).step == step


def test_torch_is_as_it_was_before(tmp_path):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    torch.set_num_threads(2)
    train(tiny_config(tmp_path, run={"steps": 1, "validate_every": 0, "threads": 1}, optimizer={"warmup_steps": 0}))
    assert torch.get_num_threads() == 2
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.equal(torch.rand(3), expected)


def test_numpys_products_take_the_threads_of_the_run_and_then_what_they_had():
    def numbers():
        return {library["num_threads"] for library in threadpool_info() if "numpy" in library["filepath"]}

    with blas_threads(2):
        with session.torch_settings(threads=1):
            assert numbers() == {1}
        assert numbers() == {2}


def test_as_a_library_it_speaks_through_logging_only(tmp_path, caplog, capfd):
    with caplog.at_level(logging.INFO, "facetric"):
        train(tiny_config(tmp_path, run={"steps": 1, "validate_every": 0}, optimizer={"warmup_steps": 0}))
    assert "next: facetric evaluate" in caplog.text
    assert capfd.readouterr() == ("", "")


def test_a_finished_run_never_lacks_its_last_weights(tmp_path, monkeypatch):
    """The last state used to be written before the weights: a full disk in between lost them for good."""
    config = tiny_config(tmp_path, run={"steps": 2, "validate_every": 0, "checkpoint_every": 100}, optimizer={"warmup_steps": 0})

    def full_disk(network, path):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("facetric.runs.run.save_network", full_disk)
    with pytest.raises(OSError, match="No space left"):
        train(config)
    monkeypatch.undo()  # room is made
    assert resume(Run.of(config).path).finished
    assert facetric.load(Run.of(config).path).dim == config.model.dim


def test_work_of_the_first_process_alone_may_take_longer_than_half_an_hour(monkeypatch):
    """torch's default of 30 minutes used to end the others while rank 0 computed features or validated."""
    made = {}

    class Strategy(session.DDPStrategy):
        def __init__(self, **options):
            made.update(options)
            raise ValueError("far enough")

    monkeypatch.setattr(session, "DDPStrategy", Strategy)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="far enough"):
        session.start_fabric(tiny_config("runs").run)
    assert made["timeout"] >= timedelta(hours=12)
