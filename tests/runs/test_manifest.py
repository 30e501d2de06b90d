"""The manifest: evaluation, report and resume use the split that training saw, whatever has become of the folder since."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from evaluation.run_folders import make_pictures, make_run
from facetric.embedder import Vectors
from facetric.images.readers import load_dataset
from facetric.runs import open_run
from facetric.runs.manifest import Manifest


def classes_of(path):
    """Names of the classes that embeddings.npz holds, by the folders of the images."""
    return {name.split("/")[-2] for name in Vectors.load(path).names}


def trained_classes(run):
    manifest = open_run(run).manifest
    return {manifest.class_names[label] for label in manifest.labels[manifest.splits != "test"]}


def test_it_holds_every_image_with_class_split_and_content_and_survives_the_file(tmp_path):
    root = make_pictures(tmp_path / "pictures")
    manifest = open_run(make_run(tmp_path / "runs", root=root)).manifest
    assert len(manifest) == 12 * 4
    assert manifest.images[0] == "class00/0.png"
    assert manifest.count("test") == (24, 6)
    assert manifest.count("train") == manifest.count("validation") == (12, 3)
    again = Manifest.from_json(manifest.to_json())
    assert again.fingerprint == manifest.fingerprint
    assert again.to_json() == manifest.to_json()


def test_a_class_that_was_trained_on_is_never_scored_as_test(tmp_path):
    """A new class used to change the draw of the test classes."""
    root = make_pictures(tmp_path / "pictures")
    run = make_run(tmp_path / "runs", root=root)
    open_run(run).evaluate(n_restarts=1, facility=False)
    before = classes_of(run / "embeddings.npz")
    for name in ("aaa-new", "zzz-new"):
        shutil.copytree(root / "class03", root / name)
    drawn_anew = load_dataset("folder", root).select("test")
    assert trained_classes(run) & {drawn_anew.class_names[label] for label in drawn_anew.labels}  # the trap is there
    open_run(run).evaluate(n_restarts=1, facility=False)
    assert classes_of(run / "embeddings.npz") == before
    assert not trained_classes(run) & before
    changes = open_run(run).images("test")[1]
    assert changes.new_classes == ("aaa-new", "zzz-new")
    assert len(changes.added) == 8


def test_what_was_added_removed_or_changed_is_counted_and_named(tmp_path, caplog):
    root = make_pictures(tmp_path / "pictures")
    run = make_run(tmp_path / "runs", root=root)
    manifest = open_run(run).manifest
    test = [name for name, split in zip(manifest.images, manifest.splits, strict=True) if split == "test"]
    (root / test[0]).unlink()
    Image.fromarray(np.zeros((36, 36), dtype=np.uint8)).save(root / test[1])
    shutil.copy(root / test[2], (root / test[2]).with_name("more.png"))
    with caplog.at_level("WARNING", "facetric"):
        report = open_run(run).evaluate(n_restarts=1, facility=False)
    changes = open_run(run).images("test")[1]
    assert changes.removed == (test[0],)
    assert changes.changed == (test[1],)
    assert len(changes.added) == 1
    assert report.n_images == len(test) - 1
    for words in ("1 image was added", "1 image is missing", "1 image has changed", test[0], test[1]):
        assert words in caplog.text, words


def test_a_folder_may_be_moved(tmp_path):
    root = make_pictures(tmp_path / "pictures")
    manifest = open_run(make_run(tmp_path / "runs", root=root)).manifest
    moved = tmp_path / "elsewhere" / "photos"
    moved.parent.mkdir()
    root.rename(moved)
    dataset, changes = manifest.match(load_dataset("folder", moved), str(moved))
    assert not changes
    assert len(dataset) == len(manifest)
    assert dataset.splits.tolist() == manifest.splits.tolist()


def test_validation_of_a_run_without_validation_is_refused(tmp_path):
    """It used to draw validation classes from those that were trained on."""
    root = make_pictures(tmp_path / "pictures")
    run = make_run(tmp_path / "runs", root=root, validate=False)
    with pytest.raises(ValueError, match=r"has no validation images: its validation was off .* --split with one of test, train"):
        open_run(run).evaluate(split="validation")


def test_changed_training_pictures_stop_a_resume_unless_accepted(tmp_path):
    root = make_pictures(tmp_path / "pictures")
    run = open_run(make_run(tmp_path / "runs", root=root))
    trained = run.manifest.images[int(np.flatnonzero(run.manifest.splits == "train")[0])]
    Image.fromarray(np.zeros((36, 36), dtype=np.uint8)).save(root / trained)
    with pytest.raises(ValueError, match=rf"1 image changed since .* \({trained}\).*--accept-changes"):
        run.images_to_resume()
    dataset, changes = run.images_to_resume(accept_changes=True)
    assert changes.changed == (trained,)
    assert len(dataset) == len(run.manifest)
    (root / trained).unlink()
    with pytest.raises(ValueError, match=r"1 image needed to resume .* cannot be found"):
        run.images_to_resume(accept_changes=True)


def test_changed_test_pictures_do_not_stop_a_resume(tmp_path):
    root = make_pictures(tmp_path / "pictures")
    run = open_run(make_run(tmp_path / "runs", root=root))
    (root / run.manifest.images[int(np.flatnonzero(run.manifest.splits == "test")[0])]).unlink()
    dataset, changes = run.images_to_resume()
    assert len(changes.removed) == 1
    assert len(dataset) == len(run.manifest) - 1


def test_an_emptied_class_folder_stops_neither_evaluation_nor_resume(tmp_path):
    root = make_pictures(tmp_path / "pictures")
    run = open_run(make_run(tmp_path / "runs", root=root))
    manifest = run.manifest
    first = int(np.flatnonzero(manifest.splits == "test")[0])
    gone = tuple(manifest.images[i] for i in np.flatnonzero(manifest.labels == manifest.labels[first]))
    for name in gone:
        (root / name).unlink()
    assert run.evaluate(n_restarts=1, facility=False).n_images == manifest.count("test")[0] - len(gone)
    assert run.images("test")[1].removed == gone
    dataset, changes = run.images_to_resume()
    assert changes.removed == gone
    assert len(dataset) == len(manifest) - len(gone)


def test_a_relabeled_image_keeps_the_class_it_was_trained_with(tmp_path):
    root = make_pictures(tmp_path / "pictures", n_classes=6)
    rows = [f"{path.relative_to(root)},{path.parent.name}" for path in sorted(root.rglob("*.png"))]
    table = root / "table.csv"
    table.write_text("path,label\n" + "\n".join(rows))
    run = open_run(make_run(tmp_path / "runs", root=table, dataset="csv"))
    table.write_text("path,label\n" + "\n".join([rows[0].replace(",class00", ",class01"), *rows[1:]]))
    dataset, changes = run.manifest.match(load_dataset("csv", table), str(table))
    assert changes.relabeled == ("class00/0.png",)
    assert dataset.class_names[dataset.labels[0]] == "class00"


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "list", "format"])
def test_a_damaged_manifest_is_one_line(tmp_path, damage):
    run = make_run(tmp_path / "runs", root=make_pictures(tmp_path / "pictures"))
    file = run / "manifest.json"
    text = file.read_text()
    damaged = {
        "flip": text.replace('"train"', '"test"', 1),
        "cut": text[: len(text) // 2],
        "empty": "",
        "list": "[]",
        "format": json.dumps({**json.loads(text), "format": 99}),
    }
    file.write_text(damaged[damage])
    with pytest.raises(ValueError, match=r"manifest.json cannot be used: .*restore it, or train again") as refused:
        open_run(run)
    assert "\n" not in str(refused.value)


def test_a_run_without_a_manifest_is_refused(tmp_path):
    run = make_run(tmp_path / "runs", root=make_pictures(tmp_path / "pictures"))
    (run / "manifest.json").unlink()
    with pytest.raises(ValueError, match=r"manifest.json is missing. Without it"):
        open_run(run)


def test_class_folders_that_swap_names_do_not_make_training_pictures_test_pictures(tmp_path):
    root = make_pictures(tmp_path / "pictures")
    run = make_run(tmp_path / "runs", root=root)
    manifest = open_run(run).manifest
    trained, tested = (
        manifest.images[int(np.flatnonzero(manifest.splits == split)[0])].split("/")[0] for split in ("train", "test")
    )
    for before, after in ((trained, "spare"), (tested, trained), ("spare", tested)):
        (root / before).rename(root / after)
    report = open_run(run).evaluate(n_restarts=1, facility=False)
    assert {name.split("/")[0] for name in open_run(run).images("test")[1].leaked} == {tested}
    assert report.n_images == manifest.count("test")[0] - 4
    with pytest.raises(ValueError, match="cannot be found"):
        open_run(run).images_to_resume(accept_changes=True)


def test_data_that_was_moved_is_one_line_with_the_way_out(tmp_path):
    root = make_pictures(tmp_path / "pictures")
    run = make_run(tmp_path / "runs", root=root)
    root.rename(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"is no longer in .*: set data.root in .*config.toml"):
        open_run(run).evaluate()


def test_files_are_hashed_once_for_all_splits(tmp_path, monkeypatch):
    monkeypatch.setenv("FACETRIC_CACHE", str(tmp_path / "cache"))
    run = make_run(tmp_path / "runs", root=make_pictures(tmp_path / "pictures"))
    for split in ("test", "train"):
        open_run(run).evaluate(split=split, n_restarts=1, facility=False)
    (hashes,) = (tmp_path / "cache").glob("contents-*.keys")
    assert hashes.stat().st_size == 16 * len(list((tmp_path / "pictures").rglob("*.png")))
