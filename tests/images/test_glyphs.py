"""The built-in characters: enough of them, none that look the same, the same every time, and quickly."""

from __future__ import annotations

import hashlib
import resource
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.ft2font import FT2Font

from facetric.images.dataset import ImageDataset
from facetric.images.glyphs import LOOK_ALIKE, _Pen, load_glyphs, look_alike_pairs


@pytest.fixture(scope="module")
def glyphs() -> ImageDataset:
    return load_glyphs()


def labels_of(dataset: ImageDataset, characters: str) -> list[int | None]:
    by_code = {name.split()[0]: label for label, name in enumerate(dataset.class_names)}
    return [by_code.get(f"U+{ord(character):04X}") for character in characters]


def test_there_are_2000_classes_with_8_images_each(glyphs: ImageDataset) -> None:
    assert glyphs.n_classes == len(glyphs.class_names) >= 2000
    assert np.bincount(glyphs.labels).min() >= 8


def test_images_are_grayscale_bytes_with_ink_inside_a_free_margin(glyphs: ImageDataset) -> None:
    images = np.asarray(glyphs.images)
    assert images.dtype == np.uint8
    assert images.shape == (len(glyphs), 32, 32)
    assert images.any(axis=(1, 2)).all()
    assert not images[:, [0, -1], :].any()
    assert not images[:, :, [0, -1]].any()


def test_no_two_images_of_a_class_are_the_same(glyphs: ImageDataset) -> None:
    images = np.asarray(glyphs.images)
    seen = {(label, image.tobytes()) for label, image in zip(glyphs.labels.tolist(), images, strict=True)}
    assert len(seen) == len(glyphs)


def test_classes_are_named_after_their_characters(glyphs: ImageDataset) -> None:
    assert "U+0041 A" in glyphs.class_names
    assert list(glyphs.class_names) == sorted(glyphs.class_names, key=lambda name: int(name.split()[0][2:], 16))


@pytest.mark.parametrize("look_alikes", ["AΑА", "cсϲ", "HΗН", "oοо", "\u00b5μ"])
def test_of_characters_that_look_the_same_one_is_left(glyphs: ImageDataset, look_alikes: str) -> None:
    assert sum(label is not None for label in labels_of(glyphs, look_alikes)) == 1


@pytest.mark.parametrize("different", ["Oo0", "Ss", "Cc", "Zz", "Vv", "áàâ", "bd", "pq", ",'", "69"])
def test_characters_that_differ_in_size_place_or_accent_stay(glyphs: ImageDataset, different: str) -> None:
    assert None not in labels_of(glyphs, different)


def test_blank_characters_and_the_box_for_missing_ones_are_not_classes(glyphs: ImageDataset) -> None:
    assert labels_of(glyphs, " \u00a0\u2003\ue000") == [None] * 4
    boxes = {missing_glyph(face).tobytes() for face in ("DejaVuSans", "DejaVuSansMono-Bold", "DejaVuSerif")}
    assert not any(image.tobytes() in boxes for image in np.asarray(glyphs.images))


def missing_glyph(face: str) -> np.ndarray:
    """What the face draws for a character that it does not have."""
    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{face}.ttf"
    missing = 0x4E2D  # a Chinese character
    assert missing not in FT2Font(str(path)).get_charmap()
    image = _Pen(path, 32).draw(chr(missing))
    assert image is not None
    return image


def test_few_pairs_of_classes_still_look_alike_in_any_faces(glyphs: ImageDataset) -> None:
    first, second = look_alike_pairs(glyphs.images)
    pairs = np.sort(np.column_stack([glyphs.labels[first], glyphs.labels[second]]), axis=1)
    pairs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    assert 0 < len(pairs) / (glyphs.n_classes * (glyphs.n_classes - 1) / 2) < 5e-5


def test_half_of_the_characters_train_and_half_test_by_seed(glyphs: ImageDataset) -> None:
    train, test = set(glyphs.select("train").labels.tolist()), set(glyphs.select("test").labels.tolist())
    assert not train & test
    assert abs(len(train) - len(test)) <= 1
    one, other = load_glyphs(min_images=17, seed=0), load_glyphs(min_images=17, seed=1)  # few characters, for speed
    assert one.n_classes > 20
    assert np.array_equal(one.images, other.images)
    assert one.class_names == other.class_names
    assert not np.array_equal(one.splits, other.splits)


def processor_seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.slow
def test_a_cold_start_takes_seconds_and_gives_the_same_dataset(glyphs: ImageDataset) -> None:
    program = (
        "import hashlib; from facetric.images.glyphs import load_glyphs; d = load_glyphs();"
        "print(hashlib.sha256(d.images.tobytes() + d.labels.tobytes() + repr(d.splits.tolist()).encode()).hexdigest())"
    )
    before = processor_seconds_of_children()
    digest = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.strip()
    assert processor_seconds_of_children() - before < 20  # not by the clock: a busy machine is not a failure
    here = glyphs.images.tobytes() + glyphs.labels.tobytes() + repr(glyphs.splits.tolist()).encode()  # type: ignore[union-attr]
    assert digest == hashlib.sha256(here).hexdigest()


def test_look_alike_pairs_are_those_that_comparing_all_pixels_finds(glyphs: ImageDataset) -> None:
    images = np.asarray(glyphs.images)[:200]
    images = np.concatenate([images, np.minimum(images[:50], 250), np.zeros((2, 32, 32), np.uint8)])  # near copies, and blanks
    for threshold in (0.01, LOOK_ALIKE, 0.5):
        flat = images.reshape(len(images), -1).astype(np.float64)
        expected = set()
        for i in range(len(flat)):
            for j in range(i + 1, len(flat)):
                largest = max(np.linalg.norm(flat[i]), np.linalg.norm(flat[j]))
                if np.linalg.norm(flat[i] - flat[j]) < threshold * largest:
                    expected.add((i, j))
        first, second = look_alike_pairs(images, threshold=threshold, block=64)
        assert len(first) == len(expected)
        assert set(zip(first.tolist(), second.tolist(), strict=True)) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [({"size": 20}, "size must be a multiple of 8"), ({"min_images": 1}, "min_images"), ({"min_images": 99}, "lower min_images")],
)
def test_impossible_requests_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_glyphs(**options)  # type: ignore[arg-type]
