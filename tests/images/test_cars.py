"""Cars196 in its three layouts: the official class order, whatever the folders are called."""

import shutil

import numpy as np
import pytest
from scipy.io import savemat

from facetric.images.readers import cars_names, load_dataset
from facetric.images.readers.published import PUBLISHED, SplitCount
from images.official_layouts import (
    CAR_NAMES,
    PER_CLASS,
    name_cells,
    save_image,
    write_car_folders,
    write_car_ims,
    write_devkit,
)

SMALL = {"train": SplitCount(3, 9), "test": SplitCount(3, 9)}


@pytest.fixture(autouse=True)
def _small_counts(monkeypatch):
    monkeypatch.setitem(PUBLISHED, "cars", SMALL)


def has_official_order(dataset):
    names = tuple(name.replace("-", "/") for name in dataset.class_names)
    return names == CAR_NAMES and set(dataset.labels[dataset.splits == "train"]) == {0, 1, 2}


@pytest.mark.parametrize("root", ["cars", "."])
@pytest.mark.parametrize("write", [write_car_ims, write_devkit, write_car_folders])
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
    monkeypatch.setattr(cars_names, "_READ_MAT", "import os; os.abort()")  # as SciPy's reader does on some damaged files
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


# --- class folders


@pytest.mark.parametrize("halves", [(), ("train", "test")])
def test_numbers_of_car_ims_give_the_order_of_class_folders(tmp_path, halves):
    dataset = load_dataset("cars", write_car_folders(tmp_path, halves=halves))
    assert has_official_order(dataset)
    assert sorted(CAR_NAMES) != list(CAR_NAMES)


def test_numbers_of_the_devkit_are_not_mistaken_for_an_order(tmp_path):
    write_car_folders(tmp_path, halves=("train", "test"), numbers="devkit")
    with pytest.raises(ValueError, match=r"official order of the 6 classes .* put cars_meta\.mat .* or names\.csv"):
        load_dataset("cars", tmp_path)


@pytest.mark.parametrize("where", [".", "devkit", "archive"])
@pytest.mark.parametrize("file", ["cars_meta.mat", "names.csv"])
def test_a_list_of_names_gives_the_order_despite_the_slash(tmp_path, file, where):
    root = tmp_path / "cars"
    images = root / "car_data" / "car_data" if where == "archive" else root
    write_car_folders(images, halves=("train", "test"), numbers="devkit")
    folder = root if where == "archive" else root / where
    folder.mkdir(exist_ok=True)
    if file == "names.csv":
        (folder / file).write_text("\n".join(CAR_NAMES))
    else:
        savemat(folder / file, name_cells())
    dataset = load_dataset("cars", root)
    assert has_official_order(dataset)
    assert dataset.class_names[5] == "Ram C/V Cargo Van Minivan 2012"


def test_a_folder_that_is_not_in_the_list_is_named(tmp_path):
    write_car_folders(tmp_path)
    save_image(tmp_path / "Trabant 601 1963" / "000099.jpg")
    savemat(tmp_path / "cars_meta.mat", name_cells())
    with pytest.raises(ValueError, match="1 class folders are not in the list of 6 official names: Trabant 601 1963"):
        load_dataset("cars", tmp_path)


def test_numbers_in_folder_names_give_the_order(tmp_path):
    for class_id, name in enumerate(("Zebra", "Yak", "Ant", "Bee"), start=1):
        for k in range(2):
            save_image(tmp_path / f"{class_id}.{name}" / f"photo{k}.jpg")
    dataset = load_dataset("cars", tmp_path, check_counts=False)
    assert dataset.class_names == ("1.Zebra", "2.Yak", "3.Ant", "4.Bee")


def test_all_196_names_alone_give_the_paper_split(tmp_path):
    """Makes from A to E are classes 1 to 98: the order within a half is not known, and does not matter."""
    for i in range(98):
        save_image(tmp_path / f"{'ABCDE'[i % 5]}make model {i}" / "photo.jpg")
        save_image(tmp_path / f"{'FGHMsV'[i % 6]}make model {i}" / "photo.jpg")
    dataset = load_dataset("cars", tmp_path, check_counts=False)
    assert {dataset.class_names[label][0] for label in dataset.select("train").labels} == set("ABCDE")
    assert dataset.select("test").n_classes == 98
