"""Cars196 in its two official layouts."""

import shutil

import numpy as np
import pytest
from scipy.io import savemat

from facetric.images.readers import load_dataset, official
from facetric.images.readers.annotations import PUBLISHED, SplitCount
from images.official_layouts import CAR_NAMES, PER_CLASS, save_image, write_car_ims, write_devkit

SMALL = {"train": SplitCount(3, 9), "test": SplitCount(3, 9)}


@pytest.fixture(autouse=True)
def _small_counts(monkeypatch):
    monkeypatch.setitem(PUBLISHED, "cars", SMALL)


def has_official_order(dataset):
    names = tuple(name.replace("-", "/") for name in dataset.class_names)
    return names == CAR_NAMES and set(dataset.labels[dataset.splits == "train"]) == {0, 1, 2}


@pytest.mark.parametrize("root", ["cars", "."])
@pytest.mark.parametrize("write", [write_car_ims, write_devkit])
def test_every_layout_gives_the_official_order(tmp_path, write, root):
    write(tmp_path / "cars")
    dataset = load_dataset("cars", tmp_path / root)
    assert len(dataset) == len(CAR_NAMES) * PER_CLASS
    assert has_official_order(dataset)


def test_both_official_halves_are_merged(tmp_path):
    base = write_devkit(tmp_path)
    dataset = load_dataset("cars", base)
    first, last = dataset.images.index(base / "cars_train" / "00001.jpg"), dataset.images.index(base / "cars_test" / "00009.jpg")
    assert (dataset.labels[first], dataset.labels[last]) == (2, 3)
    assert {path.parent.name for path in dataset.select("train").images} == {"cars_train", "cars_test"}


def test_doubled_folders_and_a_devkit_in_its_own_folder_are_found(tmp_path):
    base = write_devkit(tmp_path / "plain")
    shutil.move(base / "cars_train", tmp_path / "new" / "cars_train" / "cars_train")
    shutil.move(base / "cars_test", tmp_path / "new" / "cars_test" / "cars_test")
    shutil.move(base / "devkit", tmp_path / "new" / "car_devkit" / "devkit")
    shutil.move(base / "cars_test_annos_withlabels.mat", tmp_path / "new" / "car_devkit" / "devkit")
    assert has_official_order(load_dataset("cars", tmp_path / "new"))


def test_a_devkit_without_test_labels_says_which_file_is_needed(tmp_path):
    base = write_devkit(tmp_path, labels_beside=False)
    shutil.copy(base / "devkit" / "cars_train_annos.mat", base / "devkit" / "cars_test_annos.mat")
    with pytest.raises(ValueError, match=r"cars_test_annos_withlabels\.mat is not in .*cars_test_annos\.mat of the devkit"):
        load_dataset("cars", base)


def test_one_half_alone_is_refused(tmp_path):
    base = write_devkit(tmp_path)
    shutil.rmtree(base / "cars_test")
    with pytest.raises(ValueError, match="holds no folder cars_test: both official halves are needed"):
        load_dataset("cars", base)


def test_car_ims_without_annotations_says_which_file_is_needed(tmp_path):
    base = write_car_ims(tmp_path)
    (base / "cars_annos.mat").unlink()
    with pytest.raises(ValueError, match=r"cars_annos\.mat is not beside it"):
        load_dataset("cars", base)


@pytest.mark.parametrize("content", [b"", b"garbage" * 100, b"MATLAB 5.0 MAT-file" + bytes(200)])
def test_a_damaged_mat_file_is_named(tmp_path, content):
    base = write_car_ims(tmp_path)
    (base / "cars_annos.mat").write_bytes(content)
    with pytest.raises(ValueError, match=r"cars_annos\.mat"):
        load_dataset("cars", base)


def test_a_mat_file_that_crashes_its_reader_is_named(tmp_path, monkeypatch):
    write_car_ims(tmp_path / "cars")
    monkeypatch.setattr(official, "_READ_MAT", "import os; os.abort()")  # as SciPy's reader does on some damaged files
    with pytest.raises(ValueError, match=r"cars_annos\.mat is not a MATLAB file .* stopped with status -6\): download it again"):
        load_dataset("cars", tmp_path / "cars")


@pytest.mark.slow
def test_flipped_bits_in_a_mat_file_never_crash(tmp_path):
    base = tmp_path / "cars"
    write_car_ims(base)
    content = (base / "cars_annos.mat").read_bytes()
    rng = np.random.default_rng(0)
    n_refused = 0
    for _ in range(150):
        damaged = bytearray(content)
        damaged[rng.integers(len(damaged))] ^= 1 << rng.integers(8)
        (base / "cars_annos.mat").write_bytes(damaged)
        try:
            load_dataset("cars", base, check_counts=False)
        except ValueError:
            n_refused += 1
    assert n_refused > 10


def test_a_mat_file_of_something_else_is_named(tmp_path):
    base = write_car_ims(tmp_path)
    savemat(base / "cars_annos.mat", {"annotations": [1, 2, 3]})
    with pytest.raises(ValueError, match=r"cars_annos\.mat has no annotations with relative_im_path and class"):
        load_dataset("cars", base)


def test_classes_without_known_names_are_numbered(tmp_path):
    base = write_devkit(tmp_path)
    (base / "devkit" / "cars_meta.mat").unlink()
    assert load_dataset("cars", base).class_names[:2] == ("class 001", "class 002")


def test_published_counts_are_checked(tmp_path, monkeypatch):
    monkeypatch.undo()
    write_car_ims(tmp_path)
    with pytest.raises(ValueError, match=r"published: 98 classes with 8,054 images; test has .* 98 classes with 8,131 images"):
        load_dataset("cars", tmp_path)


def test_class_folders_are_refused_in_one_line(tmp_path):
    save_image(tmp_path / "AM General Hummer SUV 2000" / "00001.jpg")
    with pytest.raises(ValueError, match=r"holds no known layout of Cars196: .*; class folders are read with --data folder$"):
        load_dataset("cars", tmp_path)
