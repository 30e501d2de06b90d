"""The check of a dataset: everything that is wrong, by name, and nothing that is not."""

import os
import shutil
import time

import pytest

from facetric import machine
from facetric.images.check import check_dataset
from facetric.images.readers.annotations import PUBLISHED, SplitCount
from images.broken_files import encoded, photo, write_broken_files
from images.official_layouts import PER_CLASS, save_image, write_car_ims, write_cub, write_devkit, write_folder, write_products

SMALL = {"train": SplitCount(3, 9), "test": SplitCount(3, 9)}


@pytest.fixture
def _small_counts(monkeypatch):
    for name in ("cub", "cars", "products"):
        monkeypatch.setitem(PUBLISHED, name, SMALL)


def kinds_of(check, severity=None):
    return {(finding.kind, finding.subject) for finding in check.findings if severity in (None, finding.severity)}


@pytest.mark.parametrize(
    ("layout", "write"),
    [("cub", write_cub), ("products", write_products), ("cars", write_car_ims), ("cars", write_devkit), ("folder", write_folder)],
)
@pytest.mark.usefixtures("_small_counts")
def test_a_sound_dataset_is_recognized_and_has_no_findings(tmp_path, layout, write):
    check = check_dataset(write(tmp_path))
    assert (check.layout, check.findings, check.ok) == (layout, (), True)
    assert sum(count.n_images for count in check.counts.values()) == check.n_files
    assert check.published == PUBLISHED.get(layout, {})


@pytest.mark.parametrize("path", ["list.csv", "."])
def test_a_table_is_recognized_by_its_columns(tmp_path, path):
    write_folder(tmp_path)
    (tmp_path / "list.csv").write_text("path,label\n" + "".join(f"{n}/{k}.png,{n}\n" for n in ("ant", "bee") for k in range(3)))
    assert (check_dataset(tmp_path / path).layout, check_dataset(tmp_path / path).n_files) == ("csv", 6)


def test_wrong_counts_are_a_problem(tmp_path):
    check = check_dataset(write_cub(tmp_path))
    assert kinds_of(check, "problem") == {("counts", "train"), ("counts", "test")}
    assert "has 3 classes with 9 images, published: 100 classes with 5,864 images" in check.problems[0].detail


@pytest.mark.parametrize("layout", ["flat", "folder", "csv"])
def test_every_broken_file_is_reported_by_name_and_none_crashes(tmp_path, layout):
    folder = tmp_path if layout == "flat" else tmp_path / "broken"
    folder.mkdir(exist_ok=True)
    kinds = write_broken_files(folder)
    assert len(kinds) >= 30
    if layout != "flat":
        write_folder(tmp_path, classes=("ant", "bee"))
    if layout == "csv":
        kinds = {name: kind for name, kind in kinds.items() if "\n" not in name and kind != "not used"}
        rows = [f'"broken/{name}",broken' for name in kinds] + ["ant/0.png,ant", "ant/1.png,ant"]
        (tmp_path / "list.csv").write_text("\n".join(["path,label", *rows]))
    check = check_dataset(tmp_path)
    prefix = "" if layout == "flat" else "broken/"
    expected = {(kind, prefix + repr(name)[1:-1]) for name, kind in kinds.items()}
    assert expected <= kinds_of(check)
    assert kinds_of(check) - expected <= {("no classes", ".")}
    assert all(finding.detail.isprintable() for finding in check.findings)


def test_a_file_name_that_is_no_text_is_reported(tmp_path):
    write_folder(tmp_path)
    with open(os.fsencode(tmp_path / "ant") + b"/\xff\xfe.jpg", "wb") as file:
        file.write(b"not an image")
    check = check_dataset(tmp_path)
    assert kinds_of(check) == {("not an image", "ant/\\udcff\\udcfe.jpg")}


def test_missing_images_are_reported(tmp_path):
    base = write_cub(tmp_path)
    (base / "images" / "002.Bird_2" / "Bird_2_0001.jpg").unlink()
    assert ("missing", "images/002.Bird_2/Bird_2_0001.jpg") in kinds_of(check_dataset(base), "problem")


def test_duplicates_are_a_remark_in_a_class_and_a_problem_across(tmp_path):
    write_folder(tmp_path)
    shutil.copy(tmp_path / "ant" / "0.png", tmp_path / "ant" / "again.png")
    shutil.copy(tmp_path / "bee" / "0.png", tmp_path / "cow" / "wrong.png")
    check = check_dataset(tmp_path)
    assert kinds_of(check, "remark") == {("duplicate", "ant/0.png")}
    assert kinds_of(check, "problem") == {("two classes", "bee/0.png")}
    assert "the same content as cow/wrong.png, in the classes bee, cow" in check.problems[0].detail


@pytest.mark.usefixtures("_small_counts")
def test_the_same_content_in_two_splits_is_a_leak(tmp_path):
    base = write_cub(tmp_path) / "images"
    shutil.copy(base / "001.Bird_1" / "Bird_1_0000.jpg", base / "006.Bird_6" / "Bird_6_0002.jpg")
    check = check_dataset(tmp_path)
    assert kinds_of(check) == {("leak", "images/001.Bird_1/Bird_1_0000.jpg")}
    assert "in the splits test and train" in check.problems[0].detail


def test_a_class_in_two_splits_is_a_leak(tmp_path):
    write_folder(tmp_path)
    rows = ["ant/0.png,ant,train", "ant/1.png,ant,test", "bee/0.png,bee,train", "bee/1.png,bee,train"]
    (tmp_path / "list.csv").write_text("\n".join(["path,label,split", *rows]))
    assert kinds_of(check_dataset(tmp_path / "list.csv")) == {("leak", "ant")}


def test_small_classes_and_unused_files_are_remarks(tmp_path):
    write_folder(tmp_path)
    save_image(tmp_path / "elk" / "only.png")
    save_image(tmp_path / "stray.png")
    save_image(tmp_path / "ant" / "deeper" / "1.png")
    (tmp_path / "ant" / ".DS_Store").write_bytes(b"hidden")
    (tmp_path / "ant" / "._0.png").write_bytes(b"hidden")
    check = check_dataset(tmp_path)
    assert check.ok
    assert kinds_of(check) == {("single image", "elk"), ("no class", "stray.png"), ("not used", "ant/deeper")}


@pytest.mark.usefixtures("_small_counts")
def test_files_that_no_list_mentions_are_remarks(tmp_path):
    write_cub(tmp_path)
    save_image(tmp_path / "images" / "001.Bird_1" / "new.jpg")
    check = check_dataset(tmp_path)
    assert check.ok
    assert kinds_of(check) == {("not used", "images/001.Bird_1/new.jpg")}


def test_empty_classes_and_single_classes_are_problems(tmp_path):
    write_folder(tmp_path, classes=("ant",))
    (tmp_path / "bee").mkdir()
    assert kinds_of(check_dataset(tmp_path)) == {("empty class", "bee"), ("too few classes", "ant")}


def test_a_level_too_many_is_pointed_out_by_the_check(tmp_path):
    write_folder(tmp_path / "train")
    assert "check it by itself if its sub-folders are the classes" in check_dataset(tmp_path).problems[-1].detail


@pytest.mark.parametrize(
    ("name", "content", "detail"),
    [
        ("a.png", encoded(photo(0, (15, 40)), "PNG"), "tiny: 15 × 40 pixels"),
        ("a.png", encoded(photo(0, (401, 40)), "PNG"), "extreme shape: 401 × 40 pixels"),
        ("a.jpg", encoded(photo(0), "GIF"), "a GIF file with the suffix '.jpg'"),
        ("a.jpg", encoded(photo(0).resize((1, 1)).resize((64, 64)), "JPEG"), "every pixel has the same color"),
    ],
)
def test_odd_but_readable_files_are_remarks(tmp_path, name, content, detail):
    write_folder(tmp_path)
    (tmp_path / "ant" / name).write_bytes(content)
    check = check_dataset(tmp_path)
    assert check.ok
    assert [(finding.subject, finding.detail) for finding in check.findings] == [(f"ant/{name}", detail)]


def test_annotations_that_cannot_be_understood_are_one_problem(tmp_path):
    base = write_cub(tmp_path)
    (base / "images.txt").write_text("nonsense")
    check = check_dataset(base)
    assert [finding.kind for finding in check.findings] == ["annotations"]
    assert "line 1: expected a number and a text" in check.findings[0].detail


def test_the_layout_can_be_said_and_is_checked(tmp_path):
    write_cub(tmp_path)
    assert check_dataset(tmp_path / "images", layout="folder").ok
    with pytest.raises(ValueError, match=r"layout must be one of cub, .*; got 'flder'; did you mean 'folder'\?"):
        check_dataset(tmp_path, layout="flder")
    with pytest.raises(ValueError, match="nowhere does not exist"):
        check_dataset(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"images\.txt is a file, but not a \.csv file"):
        check_dataset(tmp_path / "images.txt")


def test_progress_counts_every_file_and_threads_change_nothing(tmp_path, monkeypatch):
    write_folder(tmp_path)
    calls = []
    monkeypatch.setattr(machine, "available_cores", lambda: 1)
    first = check_dataset(tmp_path, progress=lambda _, done, n: calls.append((done, n)))
    assert calls == [(done, 4 * PER_CLASS) for done in range(1, 4 * PER_CLASS + 1)]
    monkeypatch.setattr(machine, "available_cores", lambda: 5)
    assert check_dataset(tmp_path).findings == first.findings


@pytest.mark.slow
def test_the_real_cub_passes_in_under_a_minute():
    if "FACETRIC_DATA" not in os.environ:
        pytest.skip("set FACETRIC_DATA to the folder that holds CUB_200_2011")
    started = time.perf_counter()
    check = check_dataset(os.environ["FACETRIC_DATA"])
    assert time.perf_counter() - started < 60
    assert check.ok
    assert (check.layout, check.n_files, check.counts) == ("cub", 11_788, PUBLISHED["cub"])
