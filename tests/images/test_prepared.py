"""The prepared cache: right pixels, never a damaged one, one builder at a time, and no litter."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import processes
from facetric.images import array_file, array_format, cache_key
from facetric.images import prepared as prepared_module
from facetric.images.decoding import ImageError, open_image
from facetric.images.prepared import PreparedCacheError, cache_folder, prepare

SIZE = 24


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "pictures"
    folder.mkdir()
    rng = np.random.default_rng(0)
    paths = []
    for number in range(12):
        paths.append(folder / f"Vögel {number}.jpg")
        Image.fromarray(rng.integers(0, 256, (30 + number, 40, 3), dtype=np.uint8)).save(paths[-1])
    return paths


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def expected(pictures: list[Path], size: int = SIZE) -> np.ndarray:
    return np.stack([np.asarray(open_image(path).resize((size, size), Image.Resampling.BILINEAR)) for path in pictures])


def count_builds(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Grows by a path with every build from now on."""
    built: list[Path] = []
    build = prepared_module._build
    monkeypatch.setattr(prepared_module, "_build", lambda file, *rest: (built.append(file.path), build(file, *rest)))
    return built


def leftovers(cache: Path) -> list[str]:
    """Files other than finished caches and locks."""
    return [path.name for path in cache.glob("*") if path.suffix not in {".bytes", ".lock"}] if cache.is_dir() else []


def test_the_cache_holds_every_image_resized_in_order(pictures: list[Path], cache: Path) -> None:
    images = prepare(pictures, size=SIZE, folder=cache, name="some birds/2")
    assert np.array_equal(images.pixels[images.rows], expected(pictures))
    assert images.path.name.startswith("some_birds_2-24-")
    assert leftovers(cache) == []


def test_the_default_size_is_the_papers(pictures: list[Path], cache: Path) -> None:
    assert prepare(pictures[:2], folder=cache).pixels.shape == (2, 256, 256, 3)


def test_a_built_cache_is_used_again(pictures: list[Path], cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = count_builds(monkeypatch)
    first, second = (prepare(pictures, size=SIZE, folder=cache) for _ in range(2))
    assert built == [first.path] == [second.path]


def test_other_settings_or_changed_images_give_another_cache(pictures: list[Path], cache: Path) -> None:
    paths = {prepare(pictures, size=SIZE, folder=cache).path, prepare(pictures, size=25, folder=cache).path}
    paths.add(prepare(pictures[::-1], size=SIZE, folder=cache).path)
    Image.new("RGB", (40, 40), "red").save(pictures[3])
    changed = prepare(pictures, size=SIZE, folder=cache)
    assert len(paths | {changed.path}) == 4
    assert np.array_equal(changed.pixels, expected(pictures))


def flip_a_byte(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("position", [0, 40, 100, 4095, 4096, 12_000, -1])
def test_a_flipped_byte_is_found_and_the_cache_rebuilt(
    pictures: list[Path], cache: Path, position: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = prepare(pictures, size=SIZE, folder=cache).path
    flip_a_byte(path, position if position >= 0 else path.stat().st_size + position)
    built = count_builds(monkeypatch)
    assert np.array_equal(prepare(pictures, size=SIZE, folder=cache).pixels, expected(pictures))
    assert built == [path]


@pytest.mark.parametrize("n_bytes", [0, 10, 4096, 20_000])
def test_a_truncated_cache_is_rebuilt(pictures: list[Path], cache: Path, n_bytes: int) -> None:
    path = prepare(pictures, size=SIZE, folder=cache).path
    os.truncate(path, n_bytes)
    assert np.array_equal(prepare(pictures, size=SIZE, folder=cache).pixels, expected(pictures))


def damage_quietly(path: Path, position: int) -> None:
    """Flip a bit, and let the file keep its time of change."""
    status = path.stat()
    flip_a_byte(path, position)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("position", [4096, 5000, 24_000])
def test_in_a_small_cache_damage_that_keeps_the_time_of_change_is_found_at_the_next_opening(
    pictures: list[Path], cache: Path, position: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = prepare(pictures, size=SIZE, folder=cache).path
    damage_quietly(path, position)
    built = count_builds(monkeypatch)
    assert np.array_equal(prepare(pictures, size=SIZE, folder=cache).pixels, expected(pictures))
    assert built == [path]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> int:
    """Blocks of 1 KiB, so that the cache of the pictures has 21 of them; how many bytes a block has."""
    for module in (array_file, array_format):
        monkeypatch.setattr(module, "BLOCK_BYTES", 1024)
    return 1024


@pytest.mark.parametrize("block", [0, 20])
def test_in_a_large_cache_the_first_and_the_last_block_are_read_at_every_opening(
    pictures: list[Path], cache: Path, small_blocks: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = prepare(pictures, size=SIZE, folder=cache).path
    damage_quietly(path, 4096 + block * small_blocks)
    built = count_builds(monkeypatch)
    prepare(pictures, size=SIZE, folder=cache)
    assert built == [path]


def test_in_a_large_cache_any_other_block_is_read_with_the_stated_probability(
    pictures: list[Path], cache: Path, small_blocks: int
) -> None:
    images = prepare(pictures, size=SIZE, folder=cache)
    damage_quietly(images.path, 4096 + 7 * small_blocks)
    n_found = sum(not images.file.is_good() for _ in range(1000))
    assert n_found == pytest.approx(1000 * 6 / 19, abs=75)  # 5 standard deviations
    assert not images.file.is_good(verify=True)


def test_damage_of_the_checksums_or_of_the_description_is_found(pictures: list[Path], cache: Path, small_blocks: int) -> None:
    images = prepare(pictures, size=SIZE, folder=cache)
    end_of_rows = 4096 + 12 * SIZE * SIZE * 3
    for position in (end_of_rows, end_of_rows + 4 * 21, images.path.stat().st_size - 1):
        damage_quietly(images.path, position)
        assert not images.file.is_good()
        damage_quietly(images.path, position)  # flips it back
        assert images.file.is_good()


def test_pictures_that_change_places_are_noticed_though_size_and_time_are_equal(tmp_path: Path, cache: Path) -> None:
    paths = [tmp_path / "red.bmp", tmp_path / "blue.bmp"]
    for path in paths:
        Image.new("RGB", (30, 30), path.stem).save(path)
        os.utime(path, ns=(10**18, 10**18))
    assert paths[0].stat().st_size == paths[1].stat().st_size
    prepare(paths, size=SIZE, folder=cache)
    for source, target in ((paths[0], tmp_path / "c"), (paths[1], paths[0]), (tmp_path / "c", paths[1])):
        source.rename(target)
    assert np.array_equal(prepare(paths, size=SIZE, folder=cache).pixels, expected(paths))


def test_a_picture_that_is_replaced_with_size_and_time_kept_is_noticed(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "red.bmp"
    Image.new("RGB", (30, 30), "red").save(path)
    prepare([path], size=SIZE, folder=cache)
    status = path.stat()
    data = path.read_bytes()
    time.sleep(0.02)  # the clock of a file system ticks a few times in this
    path.write_bytes(data[:-300] + bytes(300))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_ino == status.st_ino
    assert np.array_equal(prepare([path], size=SIZE, folder=cache).pixels, expected([path]))


def test_a_new_version_of_our_code_gives_another_cache(
    pictures: list[Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = prepare(pictures, size=SIZE, folder=cache).path
    monkeypatch.setattr(cache_key, "PREPARATION", cache_key.PREPARATION + 1)
    assert prepare(pictures, size=SIZE, folder=cache).path != before


def test_the_pixels_are_those_of_this_version_of_the_preparation(tmp_path: Path, cache: Path) -> None:
    """When this fails because images are decoded or resized in another way: raise PREPARATION, then take over the new sums."""
    rows, columns = np.mgrid[:9, :7]
    colors = np.stack([rows * 28, columns * 40, rows * columns * 5, 255 - rows * 20], axis=-1).astype(np.uint8)
    turned = Image.Exif()
    turned[0x0112] = 6
    for name, image in (("rgb", colors[..., :3]), ("alpha", colors), ("gray", colors[..., 0])):
        Image.fromarray(np.ascontiguousarray(image)).save(tmp_path / f"{name}.png", exif=turned)
    paths = sorted(tmp_path.glob("*.png"))
    pixels = prepare(paths, size=5, folder=cache).pixels.astype(int)
    weights = np.arange(1, 26).reshape(5, 5)
    assert cache_key.PREPARATION == 2
    assert (pixels * weights[..., None]).sum(axis=(1, 2)).tolist() == [
        [43630, 61165, 38455],
        [34020, 34020, 34020],
        [34020, 52600, 24959],
    ]


def test_a_copied_cache_is_verified_once_and_not_rebuilt(
    pictures: list[Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = prepare(pictures, size=SIZE, folder=cache).path
    written = path.stat().st_mtime_ns
    path.touch()
    built = count_builds(monkeypatch)
    prepare(pictures, size=SIZE, folder=cache)
    assert built == []
    assert path.stat().st_mtime_ns == written


def build_slowly(cache: str, *pictures: str) -> None:
    """In a process that is killed."""
    decode = prepared_module._decode

    def slow(image, size):
        time.sleep(0.2)
        return decode(image, size)

    prepared_module._decode = slow
    prepare([Path(picture) for picture in pictures], size=SIZE, folder=Path(cache), n_threads=1)


def test_a_killed_build_is_cleaned_up_and_done_again(pictures: list[Path], cache: Path, tmp_path: Path) -> None:
    process = processes.start(cache, *pictures, function="images.test_prepared:build_slowly", log=tmp_path / "log")
    # the part says whose it is
    processes.wait_for(lambda: any((cache / name).read_bytes().startswith(b"facetric") for name in leftovers(cache)))
    process.send_signal(signal.SIGKILL)
    assert processes.wait(process) == -signal.SIGKILL, (tmp_path / "log").read_text()
    assert len(leftovers(cache)) == 1  # half-written, under a temporary name
    assert list(cache.glob("*.bytes")) == []
    assert np.array_equal(prepare(pictures, size=SIZE, folder=cache).pixels, expected(pictures))
    assert leftovers(cache) == []


def build_at_the_sign(sign: str, cache: str, *pictures: str) -> None:
    """In one of two processes that begin together."""
    build = prepared_module._build

    def told(*arguments):
        print("built", flush=True)
        build(*arguments)

    prepared_module._build = told
    print("ready", flush=True)
    processes.wait_for(Path(sign).exists)
    print(prepare([Path(picture) for picture in pictures], size=SIZE, folder=Path(cache)).pixels.sum())


def test_two_processes_at_once_build_one_cache(pictures: list[Path], cache: Path, tmp_path: Path) -> None:
    logs, task = [tmp_path / "0.log", tmp_path / "1.log"], "images.test_prepared:build_at_the_sign"
    children = [processes.start(tmp_path / "go", cache, *pictures, function=task, log=log) for log in logs]
    for log in logs:
        processes.wait_for(lambda log=log: processes.contains(log, "ready\n"))
    (tmp_path / "go").touch()
    assert processes.wait_all(children) == [0, 0], [log.read_text() for log in logs]
    lines = [line for log in logs for line in log.read_text().splitlines()]
    assert lines.count("built") == 1
    assert lines.count(str(expected(pictures).sum())) == 2
    assert leftovers(cache) == []


def test_an_unreadable_image_is_named_and_nothing_is_left(pictures: list[Path], cache: Path) -> None:
    pictures[5].write_bytes(pictures[5].read_bytes()[:300])
    with pytest.raises(ImageError, match="Vögel 5"):
        prepare(pictures, size=SIZE, folder=cache)
    pictures[5].unlink()
    with pytest.raises(ImageError, match="Vögel 5"):
        prepare(pictures, size=SIZE, folder=cache)
    assert list(cache.glob("*.bytes")) == leftovers(cache) == []


def test_a_disk_that_is_too_small_is_refused_before_work_begins(
    pictures: list[Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(array_file.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
    with pytest.raises(PreparedCacheError, match=r"needs 0\.0 GB; .* has 0\.0 GB: free some space, or set FACETRIC_CACHE"):
        prepare(pictures, size=SIZE, folder=cache)
    assert list(cache.glob("*.bytes")) == leftovers(cache) == []


def build_and_print_the_error(cache: str, *pictures: str) -> None:
    try:
        prepare([Path(picture) for picture in pictures], size=SIZE, folder=Path(cache))
    except PreparedCacheError as error:
        print(error)


@pytest.mark.skipif(sys.platform == "win32", reason="limits of file size are POSIX")
def test_a_disk_that_fills_up_gives_one_error_and_leaves_nothing(pictures: list[Path], cache: Path) -> None:
    task = "images.test_prepared:build_and_print_the_error"
    result = processes.command(cache, *pictures, function=task, file_size_limit=10_000)
    assert result.returncode == 0
    assert result.stdout.startswith("cannot write the prepared cache")
    assert "set FACETRIC_CACHE" in result.stdout
    assert result.stderr == ""
    assert list(cache.glob("*.bytes")) == leftovers(cache) == []


def test_an_unwritable_folder_gives_one_error(pictures: list[Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(PreparedCacheError, match=r"cannot .* the prepared cache .* set FACETRIC_CACHE to another folder"):
        prepare(pictures, size=SIZE, folder=tmp_path / "file" / "cache")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_finished_cache_in_a_read_only_folder_is_used(pictures: list[Path], cache: Path) -> None:
    prepare(pictures, size=SIZE, folder=cache)
    cache.chmod(0o555)
    try:
        assert len(prepare(pictures, size=SIZE, folder=cache)) == 12
        with pytest.raises(PreparedCacheError, match="Permission denied"):
            prepare(pictures, size=SIZE + 1, folder=cache)
    finally:
        cache.chmod(0o755)


def test_no_litter_when_there_is_no_terminal(pictures: list[Path], cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    prepare(pictures, size=SIZE, folder=cache)
    assert capfd.readouterr() == ("", "")


def test_a_view_travels_to_another_process_without_its_pixels(pictures: list[Path], cache: Path) -> None:
    view = prepare(pictures, size=SIZE, folder=cache).take([3, 1])
    packed = pickle.dumps(view)
    assert len(packed) < 2000
    again = pickle.loads(packed)
    assert len(again) == 2
    assert np.array_equal(again.pixels[again.rows], expected(pictures)[[3, 1]])


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FACETRIC_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
    monkeypatch.delenv("FACETRIC_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "facetric"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "facetric"


def test_nothing_to_prepare_is_refused(cache: Path) -> None:
    with pytest.raises(ValueError, match="no images to prepare"):
        prepare([], folder=cache)


def test_as_many_threads_decode_as_the_machine_has_cores(tmp_path, monkeypatch):
    together = threading.Barrier(5)  # passed only if five threads decode at once
    decode = prepared_module._decode

    def decode_together(image, size):
        together.wait(timeout=30)
        return decode(image, size)

    monkeypatch.setattr(prepared_module, "available_cores", lambda: 5)
    monkeypatch.setattr(prepared_module, "_decode", decode_together)
    paths = [tmp_path / f"{number}.png" for number in range(5)]
    for path in paths:
        Image.new("RGB", (9, 9)).save(path)
    assert len(prepare(paths, size=8, folder=tmp_path / "cache")) == 5
