"""The trunk cache: equal to the live trunk, found again, rebuilt when something changed, never half there."""

from __future__ import annotations

import logging
import pickle
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

import processes
from facetric.embedder import Network, build_network, encode
from facetric.embedder import activations as trunk_cache
from facetric.embedder.activations import TrunkCache, build_trunk_cache
from facetric.images import PreparedCacheError, Preprocessing, RandomCrop, array_file, cache_key, prepare
from facetric.images.array_file import ArrayFile

N = 21


@pytest.fixture
def embedder() -> Network:
    return build_network("glyphnet", dim=8, normalize=False, freeze_through="stages.1", seed=1)


@pytest.fixture
def pictures() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (N, 40, 40), dtype=np.uint8)


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def built(embedder: Network, images, folder: Path, **options) -> tuple[TrunkCache, list[str]]:
    """The cache, and what was logged: nothing when it was there."""
    logger, handler = logging.getLogger("facetric"), _Lines()
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        return build_trunk_cache(embedder, images, folder=folder, **options), handler.lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def test_the_central_view_is_the_live_trunk_to_half_precision(embedder: Network, pictures: np.ndarray, tmp_path: Path) -> None:
    cache, _ = built(embedder, pictures, tmp_path, n_views=2, center=True)
    assert (len(cache), cache.n_views, cache.center_view) == (N, 2, 2)
    assert cache.nbytes == cache.file.path.stat().st_size
    live = embedder.trunk(torch.from_numpy(embedder.crop(pictures)))
    kept = cache.batch(np.arange(N), np.full(N, 2))
    assert kept.dtype == torch.float32
    assert torch.allclose(kept, live, rtol=2**-10, atol=1e-5)


def test_random_views_are_crops_of_the_picture_that_depend_on_seed_image_and_view_alone(
    embedder: Network, pictures: np.ndarray, tmp_path: Path
) -> None:
    crop = RandomCrop(embedder.preprocessing, flip=False)
    two, three, other = (
        built(embedder, pictures, tmp_path, n_views=n, seed=seed, transform=crop)[0] for n, seed in ((2, 0), (3, 0), (2, 1))
    )
    assert np.array_equal(two.activations, three.activations[:, :2])
    assert not np.array_equal(two.activations, other.activations)
    draws = np.stack(np.meshgrid(np.arange(9) / 9, np.arange(9) / 9, [0.9]), axis=-1).reshape(-1, 3)  # all 81 crops
    live = embedder.trunk(torch.from_numpy(crop.apply(pictures, draws, rows=np.full(81, 4)))).flatten(1)
    for view in (0, 1, 2):
        distances = (live - three.batch([4], [view]).flatten(1)).abs().amax(dim=1)
        assert distances.min() < 1e-2 < distances.median()
    assert not np.array_equal(three.activations[4, 0], three.activations[4, 1])


def test_gradients_from_the_cache_are_those_of_the_live_step(embedder: Network, pictures: np.ndarray, tmp_path: Path) -> None:
    cache, _ = built(embedder, pictures, tmp_path, n_views=0, center=True)
    embedder.eval()
    live = torch.from_numpy(embedder.crop(pictures))
    gradients = []
    for embeddings in (embedder(live), embedder.from_activations(cache.batch(np.arange(N), np.zeros(N, int)))):
        embedder.zero_grad()
        embeddings.square().sum().backward()
        gradients.append(embedder.backbone.stages[2][1].weight.grad.clone())
    assert torch.allclose(gradients[0], gradients[1], rtol=0.02, atol=0.02 * float(gradients[0].abs().max()))


def test_a_cache_is_used_again_and_its_size_announced_before_it_is_built(
    embedder: Network, pictures: np.ndarray, tmp_path: Path
) -> None:
    first, said = built(embedder, pictures, tmp_path)
    again, nothing = built(embedder, pictures, tmp_path)
    assert len(said) == 1
    assert f"{N} images in 4 views through stages.1, once: {first.nbytes / 1e6:.1f} MB in {first.file.path}" in said[0]
    assert nothing == []
    assert again.file == first.file
    assert np.array_equal(again.activations, first.activations)


def test_anything_that_decides_the_activations_gives_another_cache(
    embedder: Network, pictures: np.ndarray, tmp_path: Path
) -> None:
    paths = {built(embedder, pictures, tmp_path)[0].file.path}
    variants: list[dict] = [
        {"seed": 1},
        {"n_views": 3},
        {"center": True},
        {"transform": RandomCrop(embedder.preprocessing, flip=False)},
    ]
    paths |= {built(embedder, pictures, tmp_path, **options)[0].file.path for options in variants}
    paths.add(built(embedder, pictures[::-1].copy(), tmp_path)[0].file.path)
    paths.add(built(build_network("glyphnet", freeze_through="stages.1", seed=2), pictures, tmp_path)[0].file.path)
    paths.add(built(build_network("glyphnet", freeze_through="stages.0", seed=1), pictures, tmp_path)[0].file.path)
    assert len(paths) == len(variants) + 4


def test_a_new_version_of_our_code_gives_another_cache(
    embedder: Network, pictures: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = built(embedder, pictures, tmp_path)[0].file.path
    monkeypatch.setattr(cache_key, "ACTIVATIONS", cache_key.ACTIVATIONS + 1)
    assert built(embedder, pictures, tmp_path)[0].file.path != before


def test_the_crops_are_those_of_this_version_of_the_activations() -> None:
    """When this fails because crops are made in another way: raise ACTIVATIONS, then take over the new sums."""
    pictures = np.random.Generator(np.random.Philox(7)).integers(0, 256, (3, 12, 10), dtype=np.uint8)
    form = Preprocessing(size=12, crop=8, mean=(0.5,), std=(0.25,), channels=1)
    crops = trunk_cache._crops(pictures, np.arange(3), RandomCrop(form), 2, True, 5)
    assert cache_key.ACTIVATIONS == 2
    assert crops.shape == (9, 1, 8, 8)
    weights = torch.arange(1, 65).reshape(8, 8)
    expected = [166.96, -4.96, -45.87, 390.32, 105.16, 52.13, 395.8, 380.82, 154.48]
    assert (crops[:, 0] * weights).sum(dim=(1, 2)).tolist() == pytest.approx(expected, abs=0.05)


def test_a_cache_says_what_it_was_made_from(embedder: Network, pictures: np.ndarray, tmp_path: Path) -> None:
    in_memory = built(embedder, pictures, tmp_path)[0].file.description()
    assert (in_memory["kind"], in_memory["source"]) == ("activations", None)
    assert in_memory["detail"] == "glyphnet through stages.1, 4 views"
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for path in paths:
        Image.new("RGB", (260, 260), "red").save(path)
    resnet = build_network("test_resnet", weights="none", freeze_through="layer1")
    prepared = prepare(paths, folder=tmp_path / "c", name="birds")
    for images, name in ((prepared.take([1]), "birds"), (paths, "")):
        description = built(resnet, images, tmp_path / "c", n_views=1)[0].file.description()
        assert description["name"] == name
        assert description["source"] == prepared.file.description()["source"]
        assert description["source"]["files"] == [str(path) for path in paths]


def test_what_comes_behind_the_trunk_does_not_matter(embedder: Network, pictures: np.ndarray, tmp_path: Path) -> None:
    built(embedder, pictures, tmp_path)
    with torch.no_grad():
        embedder.head.weight.zero_()
        embedder.backbone.stages[2][1].weight.zero_()
    assert built(embedder, pictures, tmp_path)[1] == []


def test_files_prepared_images_and_arrays_give_the_same_activations(tmp_path: Path) -> None:
    embedder = build_network("test_resnet", weights="none", freeze_through="layer1")
    rng = np.random.default_rng(0)
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for path in paths:
        Image.fromarray(rng.integers(0, 256, (180, 200, 3), dtype=np.uint8)).save(path)
    prepared = prepare(paths, folder=tmp_path / "prepared")
    caches = [built(embedder, images, tmp_path / "c", n_views=2)[0] for images in (paths, prepared, prepared.pixels.copy())]
    assert all(np.array_equal(cache.activations, caches[0].activations) for cache in caches)
    taken, _ = built(embedder, prepared.take([2]), tmp_path / "c", n_views=0, center=True)
    live = embedder.trunk(torch.from_numpy(embedder.crop(prepared.pixels[2:])))
    assert torch.allclose(taken.batch([0], [0]), live, rtol=2**-10, atol=1e-4)


def test_a_damaged_cache_is_built_again(embedder: Network, pictures: np.ndarray, tmp_path: Path) -> None:
    cache, _ = built(embedder, pictures, tmp_path)
    before = cache.activations.copy()
    with cache.file.path.open("r+b") as file:
        file.seek(9000)
        file.write(b"damage")
    again, said = built(embedder, pictures, tmp_path)
    assert len(said) == 1
    assert np.array_equal(again.activations, before)


def build_slowly(pictures: str, folder: str) -> None:
    """In a process that is killed."""
    array_file.NOTE_EVERY = 0.0
    crops = trunk_cache._crops

    def slow(images, rows, *rest):
        time.sleep(0.2)
        return crops(images, rows, *rest)

    trunk_cache._crops = slow
    embedder = build_network("glyphnet", dim=8, normalize=False, freeze_through="stages.1", seed=1)
    build_trunk_cache(embedder, np.load(pictures), n_views=8, folder=Path(folder))


def test_a_killed_build_goes_on_where_it_was(
    embedder: Network, pictures: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "pictures.npy", pictures)
    task, log = "embedder.test_trunk_cache:build_slowly", tmp_path / "log"
    process = processes.start(tmp_path / "pictures.npy", tmp_path / "killed", function=task, log=log)
    processes.wait_for(lambda: any(part.stat().st_size > 300_000 for part in (tmp_path / "killed").glob("*.part")))
    process.send_signal(signal.SIGKILL)
    assert processes.wait(process) == -signal.SIGKILL, log.read_text()

    first_rows: list[int] = []
    write = ArrayFile.write

    def watched(self: ArrayFile, rows, **options) -> None:
        write(self, lambda first: (first_rows.append(first), rows(first))[1], **options)

    monkeypatch.setattr(ArrayFile, "write", watched)
    resumed, said = built(embedder, pictures, tmp_path / "killed", n_views=8)
    whole, _ = built(embedder, pictures, tmp_path / "whole", n_views=8)
    assert len(said) == 1
    assert 0 < first_rows[0] < N
    assert first_rows[1] == 0
    np.testing.assert_allclose(resumed.activations, whole.activations, rtol=2**-9, atol=1e-4)
    assert resumed.file.is_good(verify=True)
    assert [path.suffix for path in sorted((tmp_path / "killed").iterdir())] == [".f16", ".lock"]


def test_a_half_built_file_that_was_damaged_is_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_file, "NOTE_EVERY", 0.0)
    file = ArrayFile(tmp_path / "a.f16", "key", (4, 2048), "float16", "test file")
    rows = np.arange(4 * 2048).reshape(4, 2048).astype(np.float16)
    starts: list[int] = []

    def interrupted(first: int):
        starts.append(first)
        yield rows[first : first + 2]
        raise KeyboardInterrupt

    def all_rows(first: int):
        starts.append(first)
        yield rows[first:]

    with pytest.raises(KeyboardInterrupt):
        file.write(interrupted)
    with (tmp_path / "a.part").open("r+b") as part:
        part.seek(5000)
        part.write(b"damage")
    file.write(all_rows)
    assert starts == [0, 0]
    assert np.array_equal(file.mapped(), rows)


def test_a_disk_that_is_too_small_is_refused_before_work_begins(
    embedder: Network, pictures: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(array_file.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
    with pytest.raises(PreparedCacheError, match=r"the cache of activations of 21 images needs .* GB; .*set FACETRIC_CACHE"):
        built(embedder, pictures, tmp_path)
    assert [path for path in tmp_path.iterdir() if path.suffix != ".lock"] == []


def test_activations_beyond_half_precision_are_refused(embedder: Network, pictures: np.ndarray, tmp_path: Path) -> None:
    with torch.no_grad():
        embedder.backbone.stages[1][5].weight.fill_(1e8)
    with pytest.raises(ValueError, match=r"activations through 'stages.1' of images 0 to 1 exceed float16's range"):
        built(embedder, pictures, tmp_path)
    assert [path for path in tmp_path.iterdir() if path.suffix != ".lock"] == []


def test_a_cache_travels_to_another_process_without_its_activations(
    embedder: Network, pictures: np.ndarray, tmp_path: Path
) -> None:
    cache, _ = built(embedder, pictures, tmp_path)
    packed = pickle.dumps(cache)
    assert len(packed) < 2000
    assert torch.equal(pickle.loads(packed).batch([3], [1]), cache.batch([3], [1]))


@pytest.mark.parametrize(
    ("image_ids", "view_ids", "message"),
    [
        ([0, 1], [0], "one view per image"),
        ([[0]], [[0]], "one view per image"),
        ([N], [0], f"image_ids must lie between 0 and {N - 1}; got {N} to {N}"),
        ([-1], [0], "image_ids must lie"),
        ([0], [4], "view_ids must lie between 0 and 3"),
    ],
)
def test_a_batch_that_is_not_there_is_refused(
    embedder: Network, pictures: np.ndarray, tmp_path: Path, image_ids, view_ids, message: str
) -> None:
    cache, _ = built(embedder, pictures, tmp_path)
    with pytest.raises(ValueError, match=message):
        cache.batch(image_ids, view_ids)


def test_impossible_caches_are_refused(embedder: Network, pictures: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing is frozen: set freeze_through"):
        built(build_network("glyphnet"), pictures, tmp_path)
    with pytest.raises(ValueError, match=r"at least one image and one view; got 21 images, n_views=0 and center=False"):
        built(embedder, pictures, tmp_path, n_views=0)
    with pytest.raises(ValueError, match="images of 20×40 are smaller than the crop"):
        built(embedder, pictures[:, :20], tmp_path)


def test_a_build_is_one_line_in_the_log_and_nothing_on_the_terminal(
    embedder: Network, pictures: np.ndarray, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = [line for _ in range(2) for line in built(embedder, pictures, tmp_path)[1]]
    assert len(lines) == 1
    assert lines[0].startswith(f"computing activations of {N} images in 4 views")
    assert capfd.readouterr() == ("", "")


def test_features_are_those_of_the_central_crop_in_eval_mode(embedder: Network, pictures: np.ndarray, tmp_path: Path) -> None:
    embedder.train()
    state = {name: tensor.clone() for name, tensor in embedder.state_dict().items()}
    features = encode(embedder, pictures, batch_size=8, what="features")
    assert embedder.training
    assert all(torch.equal(tensor, state[name]) for name, tensor in embedder.state_dict().items())
    with torch.no_grad():
        crops = torch.from_numpy(embedder.crop(pictures))
        live = embedder.eval().features(crops).numpy()
    assert (features.dtype, features.shape) == (np.float32, (N, embedder.n_features))
    np.testing.assert_allclose(features, live, rtol=1e-4, atol=1e-5)
    cache, _ = built(embedder, pictures, tmp_path, n_views=1, center=True)
    np.testing.assert_allclose(encode(embedder, cache, what="features"), live, rtol=0.02, atol=0.02 * live.max())
