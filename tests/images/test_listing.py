"""Photos are found wherever they lie, once, in one order, whatever else is in the folder."""

import os

import pytest
from PIL import Image

from facetric.images import list_images


def touch(*paths):
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def names(found):
    return [str(path) for path in found.images]


def test_nested_photos_are_listed_by_path_and_other_files_counted(tmp_path):
    touch(*(tmp_path / name for name in ("b.JPG", "a/deep/er/1.png", "a/2.heic", "c.avif", "notes.txt", "a/clip.mp4")))
    found = list_images(tmp_path)
    assert names(found) == ["a/2.heic", "a/deep/er/1.png", "b.JPG", "c.avif"]
    assert (found.n_others, found.problems) == (2, ())


def test_hidden_files_and_folders_are_left_out(tmp_path):
    touch(*(tmp_path / name for name in ("a.jpg", ".b.jpg", "._a.jpg", ".thumbnails/c.jpg", "__MACOSX/d.jpg")))
    found = list_images(tmp_path)
    assert (names(found), found.n_others) == (["a.jpg"], 0)


def test_links_are_followed_and_every_folder_is_listed_once_under_its_own_name(tmp_path):
    inside, outside = tmp_path / "photos", tmp_path / "elsewhere"
    touch(inside / "real" / "a.jpg", outside / "b.jpg")
    (inside / "again").symlink_to(inside / "real")  # sorts before the folder itself
    (inside / "real" / "up").symlink_to(inside)
    (inside / "far").symlink_to(outside)
    (inside / "far2").symlink_to(outside)
    (outside / "back").symlink_to(inside)
    (inside / "copy.jpg").symlink_to(outside / "b.jpg")
    (inside / "circle.jpg").symlink_to(inside / "circle.jpg")
    assert names(list_images(inside)) == ["circle.jpg", "copy.jpg", "far/b.jpg", "real/a.jpg"]


@pytest.mark.skipif(os.name != "posix", reason="names are Unicode elsewhere")
def test_names_that_are_not_unicode_are_listed(tmp_path):
    (tmp_path / os.fsdecode(b"caf\xe9.jpg")).touch()
    assert [os.fsencode(path) for path in list_images(tmp_path).images] == [b"caf\xe9.jpg"]


def test_a_folder_that_cannot_be_read_is_a_problem_and_the_others_are_listed(tmp_path, monkeypatch):
    touch(tmp_path / "a.jpg", tmp_path / "locked" / "b.jpg")
    scandir = os.scandir

    def refuse(path):  # root may read everything, so permissions alone do not show it
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found = list_images(tmp_path)
    assert names(found) == ["a.jpg"]
    assert [(str(problem.path), problem.reason) for problem in found.problems] == [
        ("locked", f"the folder {tmp_path / 'locked'} cannot be read (Permission denied): change its permissions")
    ]


def test_a_single_photo_is_a_list_of_one(tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    found = list_images(tmp_path / "a.png")
    assert (found.root, names(found)) == (tmp_path, ["a.png"])


@pytest.mark.parametrize(
    ("name", "message"), [("nothing", "nothing does not exist: pass a photo, or"), ("pipe", "is not a folder")]
)
def test_what_is_neither_a_folder_nor_a_file_is_refused(tmp_path, name, message):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match=message):
        list_images(tmp_path / name)
