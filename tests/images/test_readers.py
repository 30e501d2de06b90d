"""The readers: every layout gives the same record, with the paper's split and published counts."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from facetric.images import ImageDataset, list_images, open_image
from facetric.images.readers import load_dataset, load_present
from facetric.images.readers.annotations import PUBLISHED, SplitCount
from images.official_layouts import PER_CLASS, save_image, write_cub, write_folder, write_products

SMALL = {"train": SplitCount(3, 9), "test": SplitCount(3, 9)}


def class_of(dataset, path):
    return dataset.class_names[dataset.labels[dataset.images.index(path)]]


# --- CUB


@pytest.mark.parametrize("root", ["CUB_200_2011", "."])
def test_cub_is_read_from_its_folder_or_the_parent(tmp_path, monkeypatch, root):
    monkeypatch.setitem(PUBLISHED, "cub", SMALL)
    base = write_cub(tmp_path / "CUB_200_2011")
    dataset = load_dataset("cub", tmp_path / root)
    assert dataset.class_names[:2] == ("001.Bird_1", "002.Bird_2")
    assert dataset.splits.tolist() == ["train"] * 9 + ["test"] * 9
    assert class_of(dataset, base / "images" / "004.Bird_4" / "Bird_4_0001.jpg") == "004.Bird_4"
    assert open_image(dataset.images[0]).size == (24, 20)


def test_wrong_counts_are_refused_unless_asked_for(tmp_path):
    write_cub(tmp_path)
    with pytest.raises(
        ValueError,
        match=r"train has 3 classes with 9 images, published: 100 .* with 5,864 images.*data\.options\.check_counts=false",
    ):
        load_dataset("cub", tmp_path)
    assert len(load_dataset("cub", tmp_path, check_counts=False)) == 18


def test_missing_images_are_counted_and_the_first_few_named(tmp_path):
    base = write_cub(tmp_path)
    for path in sorted((base / "images").rglob("*.jpg"))[:7]:
        path.unlink()
    with pytest.raises(ValueError, match=r"7 of 18 listed images do not exist: .*Bird_1_0000\.jpg, .* and 2 more: restore them"):
        load_dataset("cub", tmp_path, check_counts=False)


def test_a_dangling_link_counts_as_missing(tmp_path):
    base = write_cub(tmp_path)
    image = next(iter(sorted((base / "images").rglob("*.jpg"))))
    image.unlink()
    image.symlink_to(tmp_path / "nowhere.jpg")
    with pytest.raises(ValueError, match=r"1 of 18 listed images do not exist"):
        load_dataset("cub", tmp_path, check_counts=False)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("classes.txt", None, r"classes\.txt does not exist: it belongs to the dataset"),
        ("classes.txt", "", "is empty"),
        ("classes.txt", "1 001.Bird\n", r"classes\.txt has no name for class 2, 3"),
        ("images.txt", "one a.jpg\n", r"images\.txt, line 1: expected a number and a text, got 'one a\.jpg'"),
        ("images.txt", "1 a.jpg\n\n1 b.jpg\n", r"images\.txt, line 3: number 1 appears twice"),
        ("image_class_labels.txt", "1 1\n", r"gives no class for 17 images of images\.txt: 001\.Bird_1/Bird_1_0001\.jpg"),
        ("images.txt", b"1 \xff.jpg\n", "is not UTF-8 text"),
    ],
)
def test_damaged_cub_lists_are_named(tmp_path, file, content, message):
    path = write_cub(tmp_path) / file
    path.unlink()
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message):
        load_dataset("cub", tmp_path, check_counts=False)


def test_the_real_cub_has_the_published_counts():
    if "FACETRIC_DATA" not in os.environ:
        pytest.skip("set FACETRIC_DATA to the folder that holds CUB_200_2011")
    dataset = load_dataset("cub", os.environ["FACETRIC_DATA"])
    train, test = dataset.select("train"), dataset.select("test")
    assert (len(train), train.n_classes, len(test), test.n_classes) == (5_864, 100, 5_924, 100)
    assert dataset.class_names[99:101] == ("100.Brown_Pelican", "101.White_Pelican")
    assert not set(train.labels) & set(test.labels)


# --- Online Products


@pytest.mark.parametrize("root", ["Stanford_Online_Products", "."])
def test_products_keep_their_own_split(tmp_path, monkeypatch, root):
    monkeypatch.setitem(PUBLISHED, "products", SMALL)
    base = write_products(tmp_path / "Stanford_Online_Products")
    dataset = load_dataset("products", tmp_path / root)
    assert dataset.splits.tolist() == ["train"] * 9 + ["test"] * 9
    assert dataset.class_names == ("bicycle 1", "chair 2", "bicycle 3", "chair 4", "bicycle 5", "chair 6")
    assert class_of(dataset, base / "chair_final" / "000000000004_0.JPG") == "chair 4"


def test_product_counts_and_files_are_checked(tmp_path):
    base = write_products(tmp_path)
    with pytest.raises(ValueError, match="published: 11,318 classes with 59,551 images"):
        load_dataset("products", tmp_path)
    (base / "Ebay_test.txt").write_text("1 2 3 a.jpg\n")
    with pytest.raises(ValueError, match=r"Ebay_test\.txt must start with the line 'image_id class_id super_class_id path'"):
        load_dataset("products", tmp_path)
    (base / "Ebay_test.txt").write_text("image_id class_id super_class_id path\n1 x 1 a.jpg\n")
    with pytest.raises(ValueError, match=r"Ebay_test\.txt, line 2: expected"):
        load_dataset("products", tmp_path)
    (base / "Ebay_test.txt").unlink()
    with pytest.raises(ValueError, match=r"Ebay_test\.txt does not exist"):
        load_dataset("products", tmp_path)


def test_a_product_in_both_lists_is_a_leak(tmp_path):
    base = write_products(tmp_path)
    with (base / "Ebay_test.txt").open("a") as file:
        file.write("99 1 1 bicycle_final/000000000001_0.JPG\n")
    with pytest.raises(ValueError, match=r"class 'bicycle 1' is in the .* splits must share no class"):
        load_dataset("products", tmp_path, check_counts=False)


# --- folders


def test_a_folder_is_split_by_class_and_by_seed(tmp_path):
    write_folder(tmp_path, classes=[f"Vögel {i}" for i in range(10)])
    dataset = load_dataset("folder", tmp_path, seed=3)
    assert len(dataset) == 10 * PER_CLASS
    assert len(set(dataset.select("test").labels)) == 3
    assert not set(dataset.select("train").labels) & set(dataset.select("test").labels)
    assert load_dataset("folder", tmp_path, seed=3).splits.tolist() == dataset.splits.tolist()
    assert any(load_dataset("folder", tmp_path, seed=s).splits.tolist() != dataset.splits.tolist() for s in range(4, 8))


@pytest.mark.parametrize(
    ("n_classes", "n_test"), [(2, 1), (3, 2), (4, 2), (7, 2), (8, 3), (25, 8), (39, 13), (40, 13), (200, 67)]
)
def test_a_third_of_the_classes_tests_and_at_least_two_whatever_their_number(n_classes, n_test):
    names = tuple(map(str, range(n_classes)))
    dataset = ImageDataset("x", list(map(Path, names)), np.arange(n_classes), names, np.full(n_classes, "all"))
    assert (dataset.with_test().splits == "test").sum() == n_test


def test_test_fraction_goes_from_nothing_to_everything(tmp_path):
    write_folder(tmp_path)
    assert [
        len(set(np.unique(d.labels[d.splits == "test"])))
        for d in (load_dataset("folder", tmp_path, test_fraction=share) for share in (0, 0.25, 0.75, 1))
    ] == [0, 1, 3, 4]


def test_hidden_files_and_folders_are_no_images_and_no_classes(tmp_path):
    write_folder(tmp_path)
    (tmp_path / "ant" / "._0.png").write_bytes(b"macOS")
    (tmp_path / "ant" / "notes.txt").write_text("not an image")
    save_image(tmp_path / "__MACOSX" / "a.png")
    save_image(tmp_path / ".cache" / "a.png")
    assert load_dataset("folder", tmp_path).class_names == ("ant", "bee", "cow", "dog")
    assert len(load_dataset("folder", tmp_path)) == 4 * PER_CLASS


def test_linked_class_folders_work(tmp_path):
    write_folder(tmp_path / "real")
    (tmp_path / "set").mkdir()
    for name in ("ant", "bee"):
        (tmp_path / "set" / name).symlink_to(tmp_path / "real" / name)
    assert len(load_dataset("folder", tmp_path / "set")) == 2 * PER_CLASS


def test_folders_that_are_no_dataset_say_why(tmp_path):
    with pytest.raises(ValueError, match="has no sub-folders; found 0 images: make one sub-folder per class"):
        load_dataset("folder", tmp_path)
    save_image(tmp_path / "ant" / "1.png")
    with pytest.raises(ValueError, match=r"at least 2 classes to compare; found 1 \('ant'\): add another class"):
        load_dataset("folder", tmp_path)
    (tmp_path / "bee").mkdir()
    with pytest.raises(ValueError, match=r"1 of 2 in .* hold none: bee: put images in or remove the folder"):
        load_dataset("folder", tmp_path)
    with pytest.raises(ValueError, match="nowhere does not exist: pass a folder with one sub-folder per class as root"):
        load_dataset("folder", tmp_path / "nowhere")
    with pytest.raises(ValueError, match="is not a folder"):
        load_dataset("folder", tmp_path / "ant" / "1.png")


def test_a_level_too_many_is_pointed_out(tmp_path):
    write_folder(tmp_path / "all" / "photos")
    with pytest.raises(ValueError, match=r"its sub-folders \(ant, bee, cow, dog\) are the classes, pass .*photos as root"):
        load_dataset("folder", tmp_path / "all")


@pytest.mark.parametrize("share", [-0.1, 1.5, 0.01])
def test_a_share_that_leaves_nothing_is_refused(tmp_path, share):
    write_folder(tmp_path)
    with pytest.raises(ValueError, match="test_fraction"):
        load_dataset("folder", tmp_path, test_fraction=share)


@given(n_classes=st.integers(2, 60), share=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_a_split_by_fraction_never_divides_a_class(n_classes, share, seed):
    labels = np.repeat(np.arange(n_classes), 2)
    paths, names = [Path(str(label)) for label in labels], tuple(map(str, range(n_classes)))
    dataset = ImageDataset("x", paths, labels, names, np.full(len(labels), "all"))
    n_test = round(share * n_classes)
    if 0 < share < 1 and not 0 < n_test < n_classes:
        with pytest.raises(ValueError, match="both need at least one"):
            dataset.with_test(share, seed=seed)
        return
    splits = dataset.with_test(share, seed=seed).splits
    assert (splits[::2] == splits[1::2]).all()
    assert (splits[::2] == "test").sum() == n_test


# --- CSV


def write_csv(path, rows, header="path,label"):
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def photos(tmp_path):
    return write_folder(tmp_path / "photos")


def test_csv_paths_start_from_the_file_or_from_the_root(tmp_path, photos):
    rows = [f"{name}/{k}.png,{i}" for i, name in enumerate(("ant", "bee")) for k in range(PER_CLASS)]
    beside = write_csv(photos / "list.csv", rows)
    elsewhere = write_csv(tmp_path / "elsewhere.csv", rows)
    for dataset in (load_dataset("csv", beside), load_dataset("csv", photos), load_dataset("csv", photos, file=elsewhere)):
        assert dataset.class_names == ("0", "1")
        assert class_of(dataset, photos / "bee" / "2.png") == "1"
    absolute = write_csv(tmp_path / "absolute.csv", [f"{photos}/{row}" for row in rows])
    assert len(load_dataset("csv", absolute)) == 2 * PER_CLASS


def test_a_csv_split_column_is_kept_and_other_columns_ignored(photos):
    rows = ["ant/0.png,x,ant,train", "bee/0.png,y,bee,validation", "", "cow/0.png,z,Küh,test"]
    dataset = load_dataset("csv", write_csv(photos / "list.csv", rows, header="\ufeffPath, remark, label, split"))
    assert dataset.splits.tolist() == ["train", "validation", "test"]
    assert dataset.class_names == ("Küh", "ant", "bee")
    with pytest.raises(ValueError, match="has a split column, so test_fraction and seed do nothing"):
        load_dataset("csv", photos / "list.csv", seed=1)


def test_csv_leaks_are_refused(photos):
    table = write_csv(photos / "list.csv", ["ant/0.png,ant,train", "ant/1.png,ant,test"], header="path,label,split")
    with pytest.raises(
        ValueError,
        match=r"class 'ant' is in the test and in the train split; splits must share no class.*data\.options\.shared_classes",
    ):
        load_dataset("csv", table)
    assert load_dataset("csv", table, shared_classes=True).splits.tolist() == ["train", "test"]


@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        ("file,class", ["ant/0.png,ant"], "must start with the line path,label or path,label,split; got 'file,class'"),
        ("path,label", [], "lists no image"),
        ("path,label", ["ant/0.png,"], "row 2: label must not be empty"),
        ("path,label", ["ant/0.png"], "row 2: label must not be empty"),
        ("path,label", ["ant/0.png,a", "bee/0.png,b", "ant/0.png,b"], "must list every image once; listed again: .*ant/0.png"),
        ("path,label,split", ["ant/0.png,a,trian"], "row 2: split must be one of train, .* did you mean 'train'"),
        ("path,label", ["ant/0.png,a", "no/1.png,b", "no/2.png,b"], r"2 of 3 listed images do not exist: .*no/1\.png"),
        ("path,label", ['"ant/0.png,a'], "is not a CSV file that can be read"),
    ],
)
def test_csv_mistakes_are_named(photos, header, rows, message):
    with pytest.raises(ValueError, match=message):
        load_dataset("csv", write_csv(photos / "list.csv", rows, header=header))


def test_a_folder_of_several_tables_asks_which(photos):
    with pytest.raises(ValueError, match=r"exactly one CSV file; found none: pass the file itself as root \(--root\)"):
        load_dataset("csv", photos)
    for name in ("a", "b"):
        write_csv(photos / f"{name}.csv", ["ant/0.png,a"])
    with pytest.raises(ValueError, match=r"found a\.csv, b\.csv: pass the file itself"):
        load_dataset("csv", photos)


# --- the door


def test_published_counts_add_up_to_the_datasets():
    totals = {name: sum(count.n_images for count in splits.values()) for name, splits in PUBLISHED.items()}
    assert totals == {"cub": 11_788, "cars": 16_185, "products": 120_053}
    classes = {name: sum(count.n_classes for count in splits.values()) for name, splits in PUBLISHED.items()}
    assert classes == {"cub": 200, "cars": 196, "products": 22_634}


def test_an_unknown_dataset_names_the_nearest():
    with pytest.raises(ValueError, match=r"folder, csv, huggingface, glyphs; got 'product'; did you mean 'products'\?"):
        load_dataset("product", "x")


def test_an_unknown_option_names_the_nearest(tmp_path):
    with pytest.raises(
        ValueError, match=r"'folder' has no option 'test_fractoin'; it has test_fraction, seed; did you mean 'test_fraction'\?"
    ):
        load_dataset("folder", tmp_path, test_fractoin=0.5)


def test_a_root_is_asked_for_when_needed_and_refused_when_not(tmp_path):
    with pytest.raises(ValueError, match="'cub' is read from disk: pass root"):
        load_dataset("cub")
    with pytest.raises(ValueError, match="'glyphs' is built in and has no root"):
        load_dataset("glyphs", tmp_path)


def test_roots_without_the_official_files_say_what_to_pass(tmp_path):
    with pytest.raises(ValueError, match=r"holds no images\.txt and image_class_labels\.txt.* pass the folder CUB_200_2011"):
        load_dataset("cub", tmp_path)
    with pytest.raises(
        ValueError, match=r"holds no Ebay_train\.txt and Ebay_test\.txt.* pass the folder Stanford_Online_Products"
    ):
        load_dataset("products", tmp_path)
    with pytest.raises(ValueError, match="holds no known layout of Cars196"):
        load_dataset("cars", tmp_path)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("folder", {"test_fraction": "abc"}, r"test_fraction must be a number; got 'abc': leave it out"),
        ("folder", {"test_fraction": float("nan")}, r"test_fraction must be a number; got nan"),
        ("folder", {"seed": "abc"}, r"seed must be a whole number; got 'abc': 0 is the default \(--set data\.options\.seed=…\)"),
        ("folder", {"seed": True}, r"seed must be a whole number; got True"),
        ("folder", {"seed": -1}, r"seed must be a whole number, 0 or more; got -1: 0 is the default"),
        ("csv", {"test_fraction": 10**400}, r"test_fraction must be a number; got 1000"),
        ("csv", {"seed": 1.5}, r"seed must be a whole number; got 1\.5: leave it out"),
        ("csv", {"shared_classes": "yes"}, r"shared_classes must be true or false; got 'yes': false is the default"),
        ("csv", {"file": 3}, r"file must be a text; got 3: leave it out"),
        ("cub", {"check_counts": 0}, r"check_counts must be true or false; got 0: true is the default"),
        ("glyphs", {"min_images": "x"}, r"min_images must be a whole number; got 'x': 8 is the default"),
    ],
)
def test_options_of_another_type_are_refused(tmp_path, name, options, message):
    with pytest.raises(ValueError, match=message):
        load_dataset(name, None if name == "glyphs" else tmp_path, **options)


# --- Images that are gone, and images of phones


def test_a_run_can_read_what_is_left_of_a_folder_or_a_table(tmp_path):
    write_folder(tmp_path / "folder")
    whole = load_dataset("folder", tmp_path / "folder")
    emptied = whole.images[0].parent
    gone = [path for path in whole.images if path.parent == emptied]
    table = tmp_path / "table.csv"
    table.write_text("path,label\n" + "".join(f"{path},{path.parent.name}\n" for path in whole.images))
    for path in gone:
        path.unlink()
    for name, root in (("folder", tmp_path / "folder"), ("csv", table)):
        with pytest.raises(ValueError, match=r"hold none|do not exist"):
            load_dataset(name, root)
        left = load_present(name, root)
        assert left.images == [path for path in whole.images if path not in gone]
        assert {class_of(left, path) for path in left.images} == set(whole.class_names) - {emptied.name}


def test_heic_photos_are_trained_on_where_they_can_be_opened(tmp_path):
    heif = pytest.importorskip("pillow_heif")
    heif.register_heif_opener()
    write_folder(tmp_path)
    before = load_dataset("folder", tmp_path)
    photo = before.images[0].with_name("phone.HEIC")
    open_image(before.images[0]).save(photo, format="HEIF")
    dataset = load_dataset("folder", tmp_path)
    assert set(dataset.images) - set(before.images) == {photo}
    assert open_image(photo).size == open_image(before.images[0]).size


def test_photos_of_phones_are_listed_whatever_is_installed(tmp_path):
    write_folder(tmp_path)
    (tmp_path / "ant" / "phone.HEIC").write_bytes(b"")
    assert {path.relative_to(tmp_path) for path in load_dataset("folder", tmp_path).images} == set(list_images(tmp_path).images)
