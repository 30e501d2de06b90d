"""The paper's crops, against plain slicing and torchvision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import functional

from facetric.images.preprocessing import CenterCrop, ImageFormat, RandomCrop, RandomResizedCrop, Transform, resized

SMALL = ImageFormat(size=20, crop=13)
GRAY = ImageFormat(size=20, crop=13, mean=(0.5,), std=(0.25,), channels=1)


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def normalized(image: np.ndarray, image_format: ImageFormat) -> torch.Tensor:
    """torchvision's ToTensor and Normalize of a picture (height, width, channels)."""
    return functional.normalize(functional.to_tensor(image), list(image_format.mean), list(image_format.std))


@given(st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_a_random_crop_is_a_part_of_the_picture_flipped_or_not(seed: int) -> None:
    images = noise(4, 20, 17, 3)
    views = RandomCrop(SMALL)(images, np.random.default_rng(seed))
    assert views.dtype == torch.float32
    assert views.shape == (4, 3, 13, 13)
    draws = np.random.default_rng(seed).random((4, 3))
    for image, draw, view in zip(images, draws, views, strict=True):
        top, left, flip = int(draw[0] * 8), int(draw[1] * 5), draw[2]
        part = image[top : top + 13, left : left + 13]
        part = part[:, ::-1] if flip < 0.5 else part
        assert torch.equal(view, normalized(np.ascontiguousarray(part), SMALL))


def test_random_crops_reach_every_corner_and_flip_every_second_time() -> None:
    image = noise(1, 15, 15, 3)
    draws = np.random.default_rng(0).random((4000, 3))
    views = RandomCrop(SMALL).apply(image, draws, rows=np.zeros(4000, dtype=np.int64))
    distinct, counts = torch.unique(views.flatten(1), dim=0, return_counts=True)
    assert len(distinct) == 3 * 3 * 2
    assert int((counts - 4000 / 18).abs().max()) < 6 * 15


@pytest.mark.parametrize("edge", [20, 21])
def test_the_center_crop_is_torchvisions(edge: int) -> None:
    images = noise(3, edge, edge, 3)
    crop = ImageFormat(size=edge, crop=edge - 6)
    expected = [normalized(np.ascontiguousarray(image[3:-3, 3:-3]), crop) for image in images]
    assert torch.equal(CenterCrop(crop)(images), torch.stack(expected))


def test_flipping_can_be_turned_off() -> None:
    images = noise(64, 13, 13, 3)
    views = RandomCrop(SMALL, flip=False)(images, np.random.default_rng(0))
    assert torch.equal(views, CenterCrop(SMALL)(images))


def test_the_default_is_the_papers() -> None:
    views = CenterCrop()(resized([Image.new("RGB", (500, 375), "white")], size=ImageFormat().size))
    assert views.shape == (1, 3, 227, 227)


def test_resizing_ignores_the_aspect_ratio_and_takes_any_mode() -> None:
    picture = Image.fromarray(noise(30, 50, 3))
    expected = np.asarray(picture.resize((20, 20), Image.Resampling.BILINEAR))
    assert np.array_equal(resized([picture], size=20)[0], expected)
    assert resized([picture.convert("L"), picture.convert("P")], size=20).shape == (2, 20, 20, 3)
    assert resized([picture], size=20, channels=1).shape == (1, 20, 20, 1)


@pytest.mark.parametrize("transform", [RandomCrop(SMALL), CenterCrop(SMALL), RandomResizedCrop(SMALL)])
def test_a_gray_picture_serves_three_channels(transform: Transform) -> None:
    gray = noise(5, 20, 20)
    color = np.repeat(gray[..., None], 3, axis=3)
    assert torch.equal(transform(gray, np.random.default_rng(0)), transform(color, np.random.default_rng(0)))


@pytest.mark.parametrize("transform", [RandomCrop(GRAY), CenterCrop(GRAY), RandomResizedCrop(GRAY)])
def test_gray_stays_gray_for_a_gray_backbone(transform: Transform) -> None:
    assert transform(noise(5, 20, 20), np.random.default_rng(0)).shape == (5, 1, 13, 13)


@pytest.mark.parametrize("transform", [RandomCrop(SMALL), CenterCrop(SMALL), RandomResizedCrop(SMALL)])
def test_rows_of_a_file_equal_the_images_themselves(transform: Transform) -> None:
    images = noise(9, 20, 20, 3)
    rows = np.array([7, 0, 7, 3])
    draws = np.random.default_rng(0).random((4, transform.n_draws))
    assert torch.equal(transform.apply(images, draws, rows=rows), transform.apply(images[rows], draws))


def test_a_resized_crop_of_the_whole_picture_is_the_resized_picture() -> None:
    images = noise(3, 26, 26, 3)
    whole = RandomResizedCrop(SMALL, flip=False, area=(1.0, 1.0), aspect=(1.0, 1.0))
    shrunk = resized([Image.fromarray(image) for image in images], size=13)
    assert torch.equal(whole(images, np.random.default_rng(0)), CenterCrop(SMALL)(shrunk))


def test_resized_crops_stay_inside_and_cover_the_asked_area() -> None:
    ramp = np.broadcast_to(np.arange(100, dtype=np.uint8)[:, None], (1, 100, 100))  # each value is its own row
    plain = ImageFormat(size=64, crop=64, mean=(0.0,), std=(1 / 255,), channels=1)
    draws = np.random.default_rng(0).random((500, 5))
    views = RandomResizedCrop(plain, aspect=(1.0, 1.0)).apply(ramp, draws, rows=np.zeros(500, dtype=np.int64))
    heights = views[:, 0, -1, 0] - views[:, 0, 0, 0] + 1
    assert 38 < heights.min() < 46  # √0.16 of 100, less the half pixels at both ends
    assert 96 < heights.max() <= 100


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"crop": 300}, "crop"),
        ({"channels": 4}, "channels must be 1"),
        ({"channels": 1}, "one number per channel"),
        ({"std": (1.0, 0.0, 1.0)}, "std must be above 0"),
    ],
)
def test_a_format_that_cannot_be_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ImageFormat(**options)  # type: ignore[arg-type]


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


@pytest.mark.parametrize(("options", "message"), [({"area": (0.5, 0.2)}, "area"), ({"aspect": (0.0, 1.0)}, "aspect")])
def test_ranges_of_a_resized_crop_are_checked(options: dict[str, tuple[float, float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RandomResizedCrop(SMALL, **options)  # type: ignore[arg-type]
