"""Sources of images: whatever images are kept as, a network gets the same pixels."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from facetric.images import Arrays, CenterCrop, Files, Preprocessing, RandomCrop, as_source
from facetric.machine import made_ahead

FORM = Preprocessing(size=20, pad=1, crop=13)
PIXELS = np.random.default_rng(0).integers(0, 256, (6, 20, 20, 3), dtype=np.uint8)


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    found = [tmp_path / f"{number}.png" for number in range(6)]
    for path, pixels in zip(found, PIXELS, strict=True):
        Image.fromarray(pixels).save(path)
    return found


def test_files_images_and_arrays_give_the_same_inputs(paths: list[Path]) -> None:
    rows, draws = np.array([3, 0, 3]), np.random.default_rng(1).random((3, 3))
    sources = (Arrays(PIXELS), Files(paths), Files(Image.fromarray(pixels) for pixels in PIXELS), as_source(paths[0].parent))
    for crop, given in ((CenterCrop(FORM), None), (RandomCrop(FORM), draws)):
        expected = crop.apply(PIXELS[rows], np.empty((3, 0)) if given is None else given)
        for source in sources:
            assert len(source) == len(source.names) == 6
            assert np.array_equal(source.inputs(rows, crop, given), expected)
            assert np.array_equal(source.take([1, 3, 0]).inputs(np.array([1, 2, 1]), crop, given), expected)


def test_images_are_known_by_their_content_alone(paths: list[Path], tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("FACETRIC_CACHE", str(tmp_path / "cache"))
    files, copies = Files(paths), []
    (tmp_path / "copies").mkdir()
    for path in paths:
        copies.append(tmp_path / "copies" / path.name)
        copies[-1].write_bytes(path.read_bytes())
    assert np.array_equal(files.take([2]).hashes, Files(paths[2:3]).hashes)  # not known yet
    assert np.array_equal(Files(copies).hashes, files.hashes)
    assert np.array_equal(files.take([2, 0]).hashes, files.hashes[[2, 0]])
    assert np.array_equal(Arrays(PIXELS).take([2, 0]).hashes, Arrays(PIXELS).hashes[[2, 0]])
    assert len({key.tobytes() for key in (*files.hashes, *Arrays(PIXELS).hashes)}) == 12
    copies[0].write_bytes(paths[1].read_bytes())
    assert np.array_equal(Files(copies).hashes[0], files.hashes[1])
    mixed = Files([paths[0], Image.fromarray(PIXELS[1]), paths[2]])
    assert np.array_equal(mixed.hashes[[0, 2]], files.hashes[[0, 2]])


def test_a_random_crop_without_draws_and_what_is_no_image_are_refused() -> None:
    with pytest.raises(ValueError, match="RandomCrop is random: pass draws, 3 per image"):
        Arrays(PIXELS).inputs(np.arange(2), RandomCrop(FORM))
    with pytest.raises(ValueError, match=r"images are a path.*got int"):
        as_source([7])
    with pytest.raises(ValueError, match="uint8 array"):
        as_source(PIXELS.astype(np.float32))
    with pytest.raises(ValueError, match="n_threads must be at least 1; got 0"):
        list(made_ahead([lambda: 1], 0))


def test_images_are_read_without_torch() -> None:
    code = (
        "import sys; from facetric.images import Files, Preprocessing, load_dataset, open_image; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
