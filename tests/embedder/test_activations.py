"""Activations of the frozen part: equal to the live trunk, kept by content, made again when something changed."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from PIL import Image

from facetric.embedder import Network, Vectors, activations, build_network, encode, vectors_file
from facetric.embedder.activations import Activations, cached_activations
from facetric.images import Arrays, Files, Preprocessing, RandomCrop, cache
from facetric.images.sources import prepare

N = 21


@pytest.fixture
def embedder() -> Network:
    return build_network("glyphnet", dim=8, normalize=False, freeze_through="stages.1", seed=1)


@pytest.fixture
def images() -> Arrays:
    return Arrays(np.random.default_rng(0).integers(0, 256, (N, 40, 40), dtype=np.uint8))


def batch(cache: Activations, rows, view: int) -> torch.Tensor:
    return torch.from_numpy(cache.values[cache.rows[rows], view]).float()


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def built(embedder: Network, images, folder: Path, **options) -> tuple[Activations, list[str]]:
    """The cache, and what was logged: nothing when it was there."""
    logger, handler = logging.getLogger("facetric"), _Lines()
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        with patch.dict(os.environ, {"FACETRIC_CACHE": str(folder)}):
            return cached_activations(embedder, images, **options), handler.lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def test_the_central_view_is_the_live_trunk_to_half_precision(embedder: Network, images: Arrays, tmp_path: Path) -> None:
    cache, _ = built(embedder, images, tmp_path, n_views=2, center=True)
    assert (len(cache), cache.n_views, cache.central, cache.starts_at) == (N, 2, 2, "activations")
    live = embedder.trunk(torch.from_numpy(embedder.crop(images.pixels)))
    kept = torch.from_numpy(cache.inputs(np.arange(N)))
    assert kept.dtype == torch.float32
    assert torch.allclose(kept, live, rtol=2**-10, atol=1e-5)


def test_random_views_are_crops_of_the_picture_that_depend_on_seed_image_and_view_alone(
    embedder: Network, images: Arrays, tmp_path: Path
) -> None:
    crop = RandomCrop(embedder.preprocessing, flip=False)
    two, three, other = (
        built(embedder, images, tmp_path, n_views=n, seed=seed, transform=crop)[0] for n, seed in ((2, 0), (3, 0), (2, 1))
    )
    assert np.array_equal(two.values, three.values[:, :2])
    assert not np.array_equal(two.values, other.values)
    few, _ = built(embedder, images.take([7, 4]), tmp_path / "few", n_views=2, transform=crop)
    np.testing.assert_allclose(few.values, two.values[[7, 4]], rtol=2**-9, atol=1e-4)
    draws = np.stack(np.meshgrid(np.arange(9) / 9, np.arange(9) / 9, [0.9]), axis=-1).reshape(-1, 3)  # all 81 crops
    live = embedder.trunk(torch.from_numpy(crop.apply(images.pixels, draws, rows=np.full(81, 4)))).flatten(1)
    for view in (0, 1, 2):
        distances = (live - batch(three, [4], view).flatten(1)).abs().amax(dim=1)
        assert distances.min() < 1e-2 < distances.median()
    assert not np.array_equal(three.values[4, 0], three.values[4, 1])


def test_gradients_from_the_cache_are_those_of_the_live_step(embedder: Network, images: Arrays, tmp_path: Path) -> None:
    cache, _ = built(embedder, images, tmp_path, n_views=0, center=True)
    embedder.eval()
    live = torch.from_numpy(embedder.crop(images.pixels))
    gradients = []
    for embeddings in (embedder(live), embedder.from_activations(batch(cache, np.arange(N), 0))):
        embedder.zero_grad()
        embeddings.square().sum().backward()
        gradients.append(embedder.backbone.stages[2][1].weight.grad.clone())
    assert torch.allclose(gradients[0], gradients[1], rtol=0.02, atol=0.02 * float(gradients[0].abs().max()))


def test_a_cache_is_used_again_and_its_size_announced_before_it_is_built(
    embedder: Network, images: Arrays, tmp_path: Path
) -> None:
    first, said = built(embedder, images, tmp_path)
    again, nothing = built(embedder, images, tmp_path)
    (path,) = tmp_path.glob("*.rows")
    assert len(said) == 1
    assert f"{N} images in 4 views through stages.1, once: {path.stat().st_size / 1e6:.1f} MB in {path}" in said[0]
    assert nothing == []
    assert np.array_equal(again.values, first.values)


def test_anything_that_decides_the_activations_gives_another_cache(embedder: Network, images: Arrays, tmp_path: Path) -> None:
    built(embedder, images, tmp_path)
    variants: list[dict] = [
        {"seed": 1},
        {"n_views": 3},
        {"center": True},
        {"transform": RandomCrop(embedder.preprocessing, flip=False)},
    ]
    for options in variants:
        built(embedder, images, tmp_path, **options)
    built(build_network("glyphnet", freeze_through="stages.1", seed=2), images, tmp_path)
    built(build_network("glyphnet", freeze_through="stages.0", seed=1), images, tmp_path)
    assert len(list(tmp_path.glob("*.rows"))) == len(variants) + 3


def test_a_new_version_of_our_code_gives_another_cache(
    embedder: Network, images: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(embedder, images, tmp_path)
    monkeypatch.setitem(cache.FORMATS, "activations", 99)
    built(embedder, images, tmp_path)
    assert len(list(tmp_path.glob("*.rows"))) == 2


def test_the_crops_are_those_of_this_version_of_the_activations() -> None:
    """When this fails because crops are made in another way: raise the number, then take over the new sums."""
    images = Arrays(np.random.Generator(np.random.Philox(7)).integers(0, 256, (3, 12, 10), dtype=np.uint8))
    form = Preprocessing(size=12, crop=8, mean=(0.5,), std=(0.25,), channels=1)
    crops = torch.from_numpy(activations._crops(images, RandomCrop(form), 2, True, 5, np.arange(3)))
    assert cache.FORMATS["activations"] == 3
    assert crops.shape == (9, 1, 8, 8)
    weights = torch.arange(1, 65).reshape(8, 8)
    expected = [166.96, -84.19, -45.87, 52.13, 345.99, 52.13, 405.27, 637.36, 154.48]
    assert (crops[:, 0] * weights).sum(dim=(1, 2)).tolist() == pytest.approx(expected, abs=0.05)


def test_one_more_image_costs_one_image(embedder: Network, images: Arrays, tmp_path: Path) -> None:
    first, _ = built(embedder, images.take(np.arange(N - 1)), tmp_path)
    whole, said = built(embedder, images, tmp_path)
    assert said[0].startswith("computing activations of 1 images in 4 views")
    assert np.array_equal(whole.values[: N - 1], first.values)
    assert whole.rows.tolist() == list(range(N))


def test_what_comes_behind_the_trunk_does_not_matter(embedder: Network, images: Arrays, tmp_path: Path) -> None:
    built(embedder, images, tmp_path)
    with torch.no_grad():
        embedder.head.weight.zero_()
        embedder.backbone.stages[2][1].weight.zero_()
    assert built(embedder, images, tmp_path)[1] == []


def test_files_prepared_images_and_arrays_give_the_same_activations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = build_network("test_resnet", weights="none", freeze_through="layer1")
    rng = np.random.default_rng(0)
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for path in paths:
        Image.fromarray(rng.integers(0, 256, (180, 200, 3), dtype=np.uint8)).save(path)
    monkeypatch.setenv("FACETRIC_CACHE", str(tmp_path / "prepared"))
    prepared = prepare(Files(paths))
    from_files, said = built(embedder, Files(paths), tmp_path / "c", n_views=2)
    from_prepared, nothing = built(embedder, prepared, tmp_path / "c", n_views=2)
    assert (len(said), nothing) == (1, [])
    assert np.array_equal(from_files.values[from_files.rows], from_prepared.values[from_prepared.rows])
    apart, _ = built(embedder, prepared, tmp_path / "d", n_views=2)
    assert np.array_equal(from_files.values, apart.values)
    arrays, _ = built(embedder, Arrays(prepared.pixels.copy()), tmp_path / "c", n_views=0, center=True)
    taken, _ = built(embedder, prepared.take([2]), tmp_path / "c", n_views=0, center=True)
    assert np.array_equal(arrays.inputs(np.array([2])), taken.inputs(np.array([0])))
    live = embedder.trunk(torch.from_numpy(embedder.crop(prepared.pixels[2:])))
    assert torch.allclose(torch.from_numpy(taken.inputs(np.array([0]))), live, rtol=2**-10, atol=1e-4)


def test_activations_beyond_half_precision_are_refused(embedder: Network, images: Arrays, tmp_path: Path) -> None:
    with torch.no_grad():
        embedder.backbone.stages[1][5].weight.fill_(1e8)
    with pytest.raises(ValueError, match=r"activations through 'stages.1' of images 0 to 1 exceed float16's range"):
        built(embedder, images, tmp_path)
    assert [path.stat().st_size for path in tmp_path.glob("*.keys")] == [0]


def test_impossible_caches_are_refused(embedder: Network, images: Arrays, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing is frozen: set freeze_through"):
        built(build_network("glyphnet"), images, tmp_path)
    with pytest.raises(ValueError, match=r"at least one image and one view; got 21 images, n_views=0 and center=False"):
        built(embedder, images, tmp_path, n_views=0)
    with pytest.raises(ValueError, match="images of 20×40 are smaller than the crop"):
        built(embedder, Arrays(images.pixels[:, :20]), tmp_path)


def test_a_build_is_one_line_in_the_log_and_nothing_on_the_terminal(
    embedder: Network, images: Arrays, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = [line for _ in range(2) for line in built(embedder, images, tmp_path)[1]]
    assert len(lines) == 1
    assert lines[0].startswith(f"computing activations of {N} images in 4 views")
    assert capfd.readouterr() == ("", "")


def test_features_are_those_of_the_central_crop_in_eval_mode(embedder: Network, images: Arrays, tmp_path: Path) -> None:
    embedder.train()
    state = {name: tensor.clone() for name, tensor in embedder.state_dict().items()}
    features = encode(embedder, images, batch_size=8, what="features")
    assert embedder.training
    assert all(torch.equal(tensor, state[name]) for name, tensor in embedder.state_dict().items())
    with torch.no_grad():
        crops = torch.from_numpy(embedder.crop(images.pixels))
        live = embedder.eval().features(crops).numpy()
    assert (features.dtype, features.shape) == (np.float32, (N, embedder.n_features))
    np.testing.assert_allclose(features, live, rtol=1e-4, atol=1e-5)
    cache, _ = built(embedder, images, tmp_path, n_views=1, center=True)
    np.testing.assert_allclose(encode(embedder, cache, what="features"), live, rtol=0.02, atol=0.02 * live.max())


def test_vectors_are_kept_as_they_are_made_and_those_of_another_network_are_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("FACETRIC_CACHE", str(tmp_path))
    monkeypatch.setattr(vectors_file, "_BLOCK", 8)
    network, encoded = build_network("glyphnet", dim=8, weights="none", seed=1), []
    images = Arrays(np.random.default_rng(0).integers(0, 256, (30, 36, 36), dtype=np.uint8))
    expected = encode(network, images)

    def killed_after_two(network, source, **options):
        if len(encoded) == 2:
            raise KeyboardInterrupt
        encoded.append(len(source))
        return encode(network, source, **options)

    monkeypatch.setattr(vectors_file, "encode", killed_after_two)
    with pytest.raises(KeyboardInterrupt):
        Vectors.of(network, images)
    encoded.append(0)
    np.testing.assert_allclose(Vectors.of(network, images).vectors, expected, atol=1e-6)
    assert encoded == [8, 8, 0, 8, 6]
    np.testing.assert_allclose(Vectors.of(network, images.take([29, 3])).vectors, expected[[29, 3]], atol=1e-6)
    assert len(encoded) == 5
    other = Vectors.of(build_network("glyphnet", dim=8, weights="none", seed=2), images).vectors
    assert not np.allclose(other, expected, atol=1e-3)
