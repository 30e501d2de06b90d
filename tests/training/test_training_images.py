"""Training reads the images that it trains and validates on, and no others."""

import threading
import time

from PIL import Image

from evaluation.run_folders import make_pictures
from facetric.runs.config import DataTable
from facetric.runs.config_file import parse_config
from facetric.runs.manifest import new_images
from facetric.training import train
from facetric.training.feed import split_images


def test_a_broken_test_image_does_not_stop_training(tmp_path, monkeypatch):
    monkeypatch.setenv("FACETRIC_CACHE", str(tmp_path / "cache"))
    root = make_pictures(tmp_path / "pictures", n_classes=8)
    data = {"name": "folder", "root": str(root), "size": 36}
    dataset = new_images(DataTable.model_validate(data), validate=False)
    broken = next(path for path, split in zip(dataset.images, dataset.splits, strict=True) if split == "test")
    broken.write_bytes(broken.read_bytes()[:200])
    model = {"weights": "none", "dim": 8, "image_size": 32, "head_init": "orthogonal"}
    run = {"folder": str(tmp_path / "runs"), "steps": 1, "validate_every": 0}
    batches = {"size": 8, "class_ratio": 0.5}
    result = train(parse_config({"run": run, "data": data, "model": model, "batches": batches}))
    assert result.finished
    assert result.run.config.data.root == str(root)


def test_only_what_trains_is_decoded_by_as_many_threads_as_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("FACETRIC_CACHE", str(tmp_path / "cache"))
    root = make_pictures(tmp_path / "pictures", n_classes=8)
    data = DataTable.model_validate({"name": "folder", "root": str(root), "size": 36, "threads": 5})
    dataset = new_images(data, validate=False)
    opened, really_open = [], Image.open

    def recorded_open(*arguments, **options):
        opened.append(threading.current_thread().name)
        time.sleep(0.02)  # a thread that is free takes the next image
        return really_open(*arguments, **options)

    monkeypatch.setattr(Image, "open", recorded_open)
    training, held_out = split_images(dataset, data, validate=False)
    assert held_out is None
    assert len(opened) == len(training) == (dataset.splits == "train").sum() < len(dataset)
    assert len(set(opened)) == 5
