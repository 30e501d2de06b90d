"""What the package `datasets` wrote is read as class folders are; torchvision's ImageFolder layout is that of class folders."""

import json

import numpy as np
import pytest
from PIL import Image
from torchvision.datasets import ImageFolder
from typer.testing import CliRunner

from facetric.cli.main import app
from facetric.images import load_dataset, load_present, open_image

datasets = pytest.importorskip("datasets", reason="the package that writes what is read here")
NAMES = ["owl", "wren", "a/b"]


def picture(seed):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (20, 30, 3), dtype=np.uint8))


@pytest.fixture
def written(monkeypatch, tmp_path):
    monkeypatch.setenv("FACETRIC_CACHE", str(tmp_path / "cache"))
    datasets.disable_progress_bars()
    columns = {"image": [picture(row) for row in range(9)], "label": [row % 3 for row in range(9)]}
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=NAMES)})
    return datasets.Dataset.from_dict(columns, features=features)


def save_folder(written, root):
    written.save_to_disk(root)
    return root


def save_splits(written, root):
    datasets.DatasetDict(train=written.select(range(6)), test=written.select(range(6, 9))).save_to_disk(root)
    return root


def save_parquet(written, root):
    root.mkdir()
    written.to_parquet(root / "train-00000-of-00001.parquet")
    return root


def save_one_file(written, root):
    written.to_parquet(root.with_suffix(".parquet"))
    return root.with_suffix(".parquet")


def classes(dataset):
    """The class of every image, by its pixels."""
    found = [np.asarray(open_image(path)).tobytes() for path in dataset.images]
    return {pixels: dataset.class_names[label] for pixels, label in zip(found, dataset.labels, strict=True)}


@pytest.mark.parametrize("save", [save_folder, save_splits, save_parquet, save_one_file])
def test_every_image_has_the_class_that_it_was_written_with(written, tmp_path, save):
    root = save(written, tmp_path / "data")
    dataset = load_dataset("huggingface", root)
    assert dataset.class_names == tuple(sorted(NAMES))
    assert classes(dataset) == {picture(row).tobytes(): NAMES[row % 3] for row in range(9)}
    for label in range(3):  # of new classes, as everywhere
        assert len(set(dataset.splits[dataset.labels == label])) == 1
    again = load_present("huggingface", root)
    assert [str(path) for path in again.images] == [str(path) for path in dataset.images]


def test_images_that_were_removed_from_the_cache_are_unpacked_again(written, tmp_path):
    root = save_folder(written, tmp_path / "data")
    before = load_dataset("huggingface", root)
    before.images[3].unlink()
    assert classes(load_dataset("huggingface", root)) == classes_of(before)


def classes_of(dataset):
    assert all(path.is_file() for path in dataset.images)
    return classes(dataset)


def test_texts_are_classes_and_files_of_images_stay_as_they_are(written, tmp_path):
    del written
    for row in range(4):
        picture(row).save(tmp_path / f"{row}.jpg")
    rows = {"image": [str(tmp_path / f"{row}.jpg") for row in range(4)], "kind": ["b", "a", None, "a"]}
    features = datasets.Features({"image": datasets.Image(), "kind": datasets.Value("string")})
    made = datasets.Dataset.from_dict(rows, features=features)
    made.to_parquet(tmp_path / "paths.parquet")  # names the files
    made.save_to_disk(tmp_path / "bytes")  # holds what is in them
    expected = [(tmp_path / f"{row}.jpg").read_bytes() for row in (0, 1, 3)]
    for root in (tmp_path / "paths.parquet", tmp_path / "bytes"):
        dataset = load_dataset("huggingface", root, label="kind", test_fraction=0.5)
        assert dataset.class_names == ("a", "b")
        assert dataset.labels.tolist() == [1, 0, 0]
        assert [path.read_bytes() for path in dataset.images] == expected


def test_what_is_wrong_is_one_line(written, tmp_path):
    def said(root, **options):
        with pytest.raises(ValueError, match=str(tmp_path)) as error:
            load_dataset("huggingface", root, **options)
        assert "\n" not in str(error.value)
        return str(error.value)

    root = save_parquet(written, tmp_path / "data")
    (file,) = root.iterdir()
    assert "has no column 'lable'; it has image, label; did you mean 'label'?" in said(root, label="lable")
    two = written.add_column("fine", [0] * 9).cast_column("fine", datasets.ClassLabel(names=["x"]))
    two.to_parquet(tmp_path / "two.parquet")
    assert "must have one column of classes; found several, label, fine" in said(tmp_path / "two.parquet")
    written.remove_columns("image").to_parquet(tmp_path / "none.parquet")
    assert "has no column of images" in said(tmp_path / "none.parquet")
    file.write_bytes(file.read_bytes()[:-100])
    assert f"{file} cannot be read (" in said(root)
    arrow = next(save_folder(written, tmp_path / "arrow").glob("*.arrow"))
    arrow.write_bytes(arrow.read_bytes()[:2000])
    assert f"{arrow} cannot be read (" in said(tmp_path / "arrow")
    assert "holds no .parquet or .arrow file" in said(tmp_path / "cache")


def test_it_is_checked_and_recognized(written, tmp_path):
    root = save_splits(written, tmp_path / "data")
    result = CliRunner().invoke(app, ["data", "check", str(root), "--json"])
    found = json.loads(result.stdout)
    assert (found["layout"], found["ok"], found["n_files"]) == ("huggingface", True, 9)


def test_the_layout_of_torchvision_s_image_folder_is_that_of_class_folders(tmp_path):
    for row in range(9):
        folder = tmp_path / "train" / f"class {row % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        picture(row).save(folder / f"{row}.png")
    theirs, ours = ImageFolder(tmp_path / "train"), load_dataset("folder", tmp_path / "train")
    assert [(str(path), label) for path, label in theirs.samples] == [
        (str(path), label) for path, label in zip(ours.images, ours.labels.tolist(), strict=True)
    ]
    assert tuple(theirs.classes) == ours.class_names
    with pytest.raises(ValueError, match=r"if its sub-folders .* are the classes, pass .*train as root"):
        load_dataset("folder", tmp_path)
