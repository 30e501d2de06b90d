"""The paper's crops, against plain slicing and torchvision."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import functional

from facetric.images.preprocessing import CenterCrop, Crop, Preprocessing, RandomCrop

SMALL = Preprocessing(size=20, crop=13)
GRAY = Preprocessing(size=20, crop=13, mean=(0.5,), std=(0.25,), channels=1)


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def normalized(image: np.ndarray, preprocessing: Preprocessing) -> np.ndarray:
    """torchvision's ToTensor and Normalize of a picture (height, width, channels)."""
    return functional.normalize(functional.to_tensor(image), list(preprocessing.mean), list(preprocessing.std)).numpy()


@given(st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_a_random_crop_is_a_part_of_the_picture_flipped_or_not(seed: int) -> None:
    images = noise(4, 20, 17, 3)
    views = RandomCrop(SMALL)(images, np.random.default_rng(seed))
    assert views.dtype == np.float32
    assert views.shape == (4, 3, 13, 13)
    draws = np.random.default_rng(seed).random((4, 3))
    for image, draw, view in zip(images, draws, views, strict=True):
        top, left, flip = int(draw[0] * 8), int(draw[1] * 5), draw[2]
        part = image[top : top + 13, left : left + 13]
        part = part[:, ::-1] if flip < 0.5 else part
        assert np.array_equal(view, normalized(np.ascontiguousarray(part), SMALL))


def test_random_crops_reach_every_corner_and_flip_every_second_time() -> None:
    image = noise(1, 15, 15, 3)
    draws = np.random.default_rng(0).random((4000, 3))
    views = RandomCrop(SMALL).apply(image, draws, rows=np.zeros(4000, dtype=np.int64))
    distinct, counts = np.unique(views.reshape(4000, -1), axis=0, return_counts=True)
    assert len(distinct) == 3 * 3 * 2
    assert np.abs(counts - 4000 / 18).max() < 6 * 15


@pytest.mark.parametrize("edge", [20, 21])
def test_the_center_crop_is_torchvisions(edge: int) -> None:
    images = noise(3, edge, edge, 3)
    crop = Preprocessing(size=edge, crop=edge - 6)
    expected = [normalized(np.ascontiguousarray(image[3:-3, 3:-3]), crop) for image in images]
    assert np.array_equal(CenterCrop(crop)(images), np.stack(expected))


@pytest.mark.parametrize("crop", [RandomCrop, CenterCrop])
def test_padding_is_black_pixels_on_every_side(crop: type[RandomCrop]) -> None:
    images, rows = noise(5, 13, 13, 3), np.array([4, 0, 4])
    draws = np.random.default_rng(0).random((3, crop.n_draws))
    border = np.pad(images, ((0, 0), (2, 2), (2, 2), (0, 0)))
    padded = Preprocessing(size=13, pad=2, crop=15)
    expected = crop(Preprocessing(size=17, crop=15)).apply(border, draws, rows=rows)
    assert np.array_equal(crop(padded).apply(images, draws, rows=rows), expected)


def test_flipping_can_be_turned_off() -> None:
    images = noise(64, 13, 13, 3)
    views = RandomCrop(SMALL, flip=False)(images, np.random.default_rng(0))
    assert np.array_equal(views, CenterCrop(SMALL)(images))


def test_the_default_is_the_papers() -> None:
    views = CenterCrop()(Preprocessing().pixels(Image.new("RGB", (500, 375), "white"))[None])
    assert views.shape == (1, 3, 227, 227)


def test_resizing_ignores_the_aspect_ratio_and_takes_any_mode() -> None:
    picture = Image.fromarray(noise(30, 50, 3))
    expected = np.asarray(picture.resize((20, 20), Image.Resampling.BILINEAR))
    assert np.array_equal(SMALL.pixels(picture), expected)
    assert SMALL.pixels(picture.convert("L")).shape == SMALL.pixels(picture.convert("P")).shape == (20, 20, 3)
    assert GRAY.pixels(picture).shape == (20, 20, 1)


@pytest.mark.parametrize("transform", [RandomCrop(SMALL), CenterCrop(SMALL)])
def test_a_gray_picture_serves_three_channels(transform: Crop) -> None:
    gray = noise(5, 20, 20)
    color = np.repeat(gray[..., None], 3, axis=3)
    assert np.array_equal(transform(gray, np.random.default_rng(0)), transform(color, np.random.default_rng(0)))


@pytest.mark.parametrize("transform", [RandomCrop(GRAY), CenterCrop(GRAY)])
def test_gray_stays_gray_for_a_gray_backbone(transform: Crop) -> None:
    assert transform(noise(5, 20, 20), np.random.default_rng(0)).shape == (5, 1, 13, 13)


@pytest.mark.parametrize("transform", [RandomCrop(SMALL), CenterCrop(SMALL)])
def test_rows_of_a_file_equal_the_images_themselves(transform: Crop) -> None:
    images = noise(9, 20, 20, 3)
    rows = np.array([7, 0, 7, 3])
    draws = np.random.default_rng(0).random((4, transform.n_draws))
    assert np.array_equal(transform.apply(images, draws, rows=rows), transform.apply(images[rows], draws))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"crop": 300}, "smaller than the backbone's crop"),
        ({"pad": -1}, "pad at least 0"),
        ({"channels": 4}, "channels must be 1"),
        ({"channels": 1}, "one number per channel"),
        ({"std": (1.0, 0.0, 1.0)}, "std must be above 0"),
    ],
)
def test_a_format_that_cannot_be_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Preprocessing(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (noise(2, 12, 20, 3), "smaller than the crop"),
        (noise(2, 20, 20, 4), "4 channels"),
        (noise(20, 20), "shape"),
        (noise(2, 20, 20, 3).astype(np.float32), "float32"),
    ],
)
def test_images_that_do_not_fit_are_refused(images: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CenterCrop(SMALL)(images)
