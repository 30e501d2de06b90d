"""`facetric duplicates`: copies are found however they were made, distinct photos are left alone, nothing is deleted."""

import csv
import shutil

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont
from typer.testing import CliRunner

import facetric
from facetric.cli.main import app
from facetric.photos import find_duplicates
from facetric.photos.duplicates import altered, look_alike_groups
from facetric.photos.ingest import drawn
from facetric.photos.near import aligned, hash_codes, near_groups, normalized
from photos.photo_files import photo

SIZE = (640, 480)


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def write(path, image, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)


def cropped(image, left, top, right, bottom):
    width, height = image.size
    return image.crop((left * width, top * height, (1 - right) * width, (1 - bottom) * height))


COPIES = {
    "small": lambda image: image.resize((160, 120)),
    "cropped": lambda image: cropped(image, 0.02, 0.03, 0.04, 0.01),
    "one side": lambda image: cropped(image, 0.05, 0, 0, 0),
    "every side": lambda image: cropped(image, 0.05, 0.05, 0.05, 0.05),
    "darker": lambda image: image.point(lambda value: 0.8 * value),
}


def names(group):
    return [(str(photo.path), suggestion) for photo, suggestion in zip(group.photos, group.suggestions, strict=True)]


def test_exact_copies_are_found_wherever_they_lie_and_the_shortest_name_is_kept(tmp_path):
    write(tmp_path / "b.jpg", photo(0, SIZE))
    write(tmp_path / "other.jpg", photo(1, SIZE))
    for copy in ("a folder/b (1).jpg", "a folder/b copy.jpg"):
        (tmp_path / copy).parent.mkdir(exist_ok=True)
        shutil.copy(tmp_path / "b.jpg", tmp_path / copy)
    found = find_duplicates(tmp_path)
    assert [(group.kind, names(group)) for group in found.groups] == [
        ("exact", [("b.jpg", "keep"), ("a folder/b (1).jpg", "duplicate"), ("a folder/b copy.jpg", "duplicate")])
    ]
    assert found.n_photos == 4


@pytest.mark.parametrize("copy", COPIES)
def test_a_copy_is_found_and_the_larger_photo_kept(tmp_path, copy):
    for seed in range(4):
        write(tmp_path / f"{seed}.png", photo(seed, SIZE))
    write(tmp_path / "copy.jpg", COPIES[copy](photo(2, SIZE)), quality=60)
    (group,) = find_duplicates(tmp_path).groups
    assert group.kind == "near"
    assert names(group) == [("2.png", "keep"), ("copy.jpg", "duplicate")]


def test_the_least_compressed_of_equal_size_is_kept(tmp_path):
    for quality in (40, 95, 70):
        write(tmp_path / f"{quality}.jpg", photo(0, SIZE), quality=quality)
    (group,) = find_duplicates(tmp_path).groups
    assert [str(photo.path) for photo in group.photos] == ["95.jpg", "70.jpg", "40.jpg"]


def test_two_hundred_distinct_photos_are_left_alone(tmp_path):
    for seed in range(200):
        write(tmp_path / f"{seed}.jpg", photo(seed, (80, 60)))
    assert find_duplicates(tmp_path).groups == ()


def test_the_same_shape_in_another_color_is_another_photo():
    """Shops photograph one shirt in ten colors; brightness alone would take them for copies."""
    shape = Image.new("RGB", (64, 64), "white")
    shape.paste((180, 60, 60), (16, 8, 48, 60))
    other = Image.new("RGB", (64, 64), "white")
    other.paste((40, 100, 190), (16, 8, 48, 60))
    grays, colors = (np.stack(arrays) for arrays in zip(drawn(shape), drawn(other), strict=True))
    pictures, _ = normalized(grays)
    correlation, difference = aligned(pictures[0], pictures[1])
    assert correlation > 0.97
    assert difference < 1
    assert near_groups(grays, colors).tolist() == [0, 1]


def test_plain_pictures_are_not_copies_of_each_other():
    rng = np.random.default_rng(0)
    grays = (128 + rng.integers(0, 2, (20, 32, 32))).astype(np.uint8)
    assert near_groups(grays, np.full((20, 4, 4, 2), 128, dtype=np.uint8)).tolist() == list(range(20))


def lettered(character, size, *, color="black"):
    """A letter in the middle of white paper."""
    paper = Image.new("RGB", SIZE, "white")
    font = ImageFont.load_default(size)
    ImageDraw.Draw(paper).text((SIZE[0] / 2, SIZE[1] / 2), character, fill=color, font=font, anchor="mm")
    return paper


@pytest.mark.parametrize("size", [80, 120, 240])
def test_different_letters_on_paper_are_no_copies_however_small(size):
    """They have the paper in common, and a stretch makes an O of a D."""
    sketches = [drawn(lettered(character, size)) for character in "abcdefghkmnopqrstuvwxyz23456789"]
    grays, colors = (np.stack(arrays) for arrays in zip(*sketches, strict=True))
    assert near_groups(grays, colors).tolist() == list(range(len(grays)))


@pytest.mark.parametrize("copy", COPIES)
def test_a_copy_of_a_drawing_is_found(copy):
    for character in "aRg5":
        sketches = [drawn(lettered(character, 240, color=(60, 60, 60))), drawn(COPIES[copy](lettered(character, 240)))]
        grays, colors = (np.stack(arrays) for arrays in zip(*sketches, strict=True))
        assert near_groups(grays, colors).tolist() == [0, 0], character


def test_groups_are_those_of_comparing_every_pair():
    """Skipping pairs that are joined already, and hashing first, changes nothing."""
    sketches = []
    for seed in range(12):
        image = photo(seed, SIZE)
        sketches += [drawn(image), *(drawn(copy(image)) for name, copy in COPIES.items() if (seed + len(name)) % 2)]
    grays, colors = (np.stack(arrays) for arrays in zip(*sketches, strict=True))
    pictures, _ = normalized(grays)
    codes = hash_codes(grays)
    n = len(grays)
    first = list(range(n))
    for _ in range(n):  # until nothing changes
        for i in range(n):
            for j in range(i + 1, n):
                bits = sum(int(word).bit_count() for word in codes[i] ^ codes[j])
                near_colors = np.abs(colors[i].astype(float) - colors[j]).mean() <= 10
                correlation, difference = aligned(pictures[i], pictures[j])
                if bits <= 30 and near_colors and correlation >= 0.97 and difference <= 1.25:
                    first[i] = first[j] = min(first[i], first[j])
    assert near_groups(grays, colors).tolist() == first
    assert len(set(first)) == 12


def test_a_photo_of_a_phone_held_sideways_is_the_same_photo(tmp_path):
    write(tmp_path / "a.jpg", photo(0, SIZE))
    exif = Image.Exif()
    exif[0x0112] = 6
    write(tmp_path / "b.jpg", photo(0, SIZE).transpose(Image.Transpose.ROTATE_90), exif=exif)
    assert [group.kind for group in find_duplicates(tmp_path).groups] == ["near"]


def test_look_alikes_come_last_and_are_to_be_compared_not_dropped(tmp_path):
    """With the real network. One photo of every picture is compared: copies are in the groups before."""
    for seed in range(30):
        write(tmp_path / f"{seed:02}.jpg", photo(seed, SIZE), quality=90)
    shutil.copy(tmp_path / "03.jpg", tmp_path / "03 (1).jpg")
    write(tmp_path / "05 small.jpg", photo(5, SIZE).resize((320, 240)))
    model = facetric.load()
    found = find_duplicates(tmp_path, model)
    assert [(group.kind, names(group)) for group in found.groups[:2]] == [
        ("exact", [("03.jpg", "keep"), ("03 (1).jpg", "duplicate")]),
        ("near", [("05.jpg", "keep"), ("05 small.jpg", "duplicate")]),
    ]
    assert {group.kind for group in found.groups[2:]} <= {"look-alike"}
    assert (found.n_photos, found.n_copies) == (32, 2)
    vectors = model.encode([altered(photo(seed, SIZE)) for seed in range(30)])
    originals = model.encode([tmp_path / f"{seed:02}.jpg" for seed in range(30)])
    assert ((vectors * originals).sum(axis=1) >= found.similarity).mean() >= 0.85  # nine of ten, by its definition
    for group in found.of_kind("look-alike"):
        assert group.suggestions == ("keep", *["compare"] * (len(group.photos) - 1))


def test_vectors_are_linked_by_their_direction():
    vectors = np.array([[1, 0], [0, 2], [3, 0.1], [0, 1], [-1, 0]], dtype=np.float32)
    assert look_alike_groups(vectors, 0.99).tolist() == [0, 1, 0, 1, 4]
    assert look_alike_groups(vectors, -1.0).tolist() == [0] * 5


def test_the_command_writes_a_table_lists_broken_files_and_deletes_nothing(tmp_path):
    root, output = tmp_path / "photos", tmp_path / "duplicates.csv"
    write(root / "a.png", photo(0, SIZE))
    write(root / "sub" / "a.jpg", photo(0, SIZE).resize((320, 240)))
    write(root / "b.png", photo(1, SIZE))
    (root / "broken.jpg").write_bytes(b"text")
    before = sorted(root.rglob("*"))
    result = invoke("duplicates", root, "--no-look-alikes", "--output", output)
    assert result.exit_code == 0, result.stderr
    assert "Near copies (resized, recompressed, slightly cropped): 1 group" in result.stdout
    assert "3 photos, 1 of them copies of others. Nothing was deleted." in result.stdout
    assert "left out: " in result.stderr
    with output.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["group"], row["kind"], row["suggestion"], row["path"], row["width"]) for row in rows] == [
        ("1", "near", "keep", "a.png", "640"),
        ("1", "near", "duplicate", "sub/a.jpg", "320"),
    ]
    assert sorted(root.rglob("*")) == before
    assert invoke("duplicates", root, "--no-look-alikes", "--output", output).exit_code == 0  # its own file


def test_a_table_that_it_did_not_write_is_not_touched(tmp_path):
    write(tmp_path / "photos" / "a.png", photo(0))
    (tmp_path / "labels.csv").write_text("path,label\n")
    result = invoke("duplicates", tmp_path / "photos", "--no-look-alikes", "-o", tmp_path / "labels.csv")
    assert result.exit_code == 2
    assert "was not written by `facetric duplicates`: choose another place, or pass --overwrite" in result.stderr
    assert (tmp_path / "labels.csv").read_text() == "path,label\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "--no-look-alikes"], "nowhere does not exist: pass a photo, or a folder of photos"),
        (["photos", "--no-look-alikes"], "there are no photos in photos: pass a folder that holds some"),
        (["photos", "--no-look-alikes", "--model", "runs/a"], "pass --model or --no-look-alikes, not both"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    result = invoke("duplicates", *arguments)
    assert (result.exit_code, message in result.stderr, len(result.stderr.splitlines())) == (2, True, 1), result.stderr
