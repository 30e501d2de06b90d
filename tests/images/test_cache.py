"""Caches by content: right pixels, one more image costs one row, one writer at a time, nothing half-written counts."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
from PIL import Image

import processes
from facetric import machine
from facetric.images import Arrays, Files, ImageError, cache, cache_folder, mapped_array, open_image, sources
from facetric.images.cache import CacheError
from facetric.images.hashing import content_hashes

SIZE = 24


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FACETRIC_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def images(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "images"
    folder.mkdir()
    rng = np.random.default_rng(0)
    paths = []
    for number in range(12):
        paths.append(folder / f"Vögel {number}.jpg")
        Image.fromarray(rng.integers(0, 256, (30 + number, 40, 3), dtype=np.uint8)).save(paths[-1])
    return paths


def expected(images: list[Path], size: int = SIZE) -> np.ndarray:
    return np.stack([np.asarray(open_image(path).resize((size, size), Image.Resampling.BILINEAR)) for path in images])


def prepare(images: list[Path], *, folder: Path | None = None, **options) -> Arrays:
    """In another folder if told; hashes stay in that of the test."""
    files = Files(images)
    assert len(files.hashes) == len(images)
    with patch.dict(os.environ, {} if folder is None else {"FACETRIC_CACHE": str(folder)}):
        return sources.prepare(files, **options)


def rows_file(size: int = SIZE) -> Path:
    (found,) = cache_folder().glob(f"images-{size}-*.rows")
    return found


def pixels(images: list[Path], **options) -> np.ndarray:
    prepared = prepare(images, **{"size": SIZE, **options})
    return prepared.pixels[prepared.rows]


def count_decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows by a file name with every image that is decoded from now on."""
    decoded: list[str] = []
    plain = sources.open_image
    monkeypatch.setattr(sources, "open_image", lambda path, **options: (decoded.append(path.name), plain(path, **options))[1])
    return decoded


def test_every_image_is_there_resized_in_order(images: list[Path]) -> None:
    prepared = prepare(images, size=SIZE)
    assert np.array_equal(prepared.pixels[prepared.rows], expected(images))
    assert [Path(name) for name in prepared.names] == images
    assert np.array_equal(pixels(images[::-1]), expected(images)[::-1])
    assert prepare(images[:2]).pixels.shape == (2, 256, 256, 3)  # the paper's size


def test_one_more_image_costs_one_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / f"{number}.png" for number in range(49)]
    for number, path in enumerate(paths):
        Image.new("RGB", (30, 30), (number, 0, 0)).save(path)
    decoded = count_decoded(monkeypatch)
    prepare(paths[:48], size=SIZE)
    assert len(decoded) == 48
    del decoded[:]
    assert np.array_equal(pixels(paths), expected(paths))
    assert decoded == ["48.png"]
    copy = tmp_path / "copy.png"
    copy.write_bytes(paths[3].read_bytes())
    assert np.array_equal(pixels([copy, paths[0]]), expected([copy, paths[0]]))
    assert decoded == ["48.png"]  # the same content under another name


def test_only_what_is_new_is_read(images: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    content_hashes(images[:11])
    read: list[str] = []
    plain = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: (read.append(path.name), plain(path))[1])
    content_hashes(images)
    assert [name for name in read if name.endswith(".jpg")] == ["Vögel 11.jpg"]


def test_other_settings_or_changed_images_are_not_mixed_up(images: list[Path]) -> None:
    prepare(images, size=SIZE)
    prepare(images, size=25)
    assert rows_file().stat().st_size != rows_file(25).stat().st_size
    Image.new("RGB", (40, 40), "red").save(images[3])
    assert np.array_equal(pixels(images), expected(images))
    assert np.array_equal(pixels(images, size=25), expected(images, 25))


def test_a_new_version_of_our_code_gives_another_cache(images: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(images, size=SIZE)
    monkeypatch.setitem(cache.FORMATS, "prepared images", 99)
    prepare(images, size=SIZE)
    assert len(list(cache_folder().glob(f"images-{SIZE}-*.rows"))) == 2


def test_the_pixels_are_those_of_this_version_of_the_preparation(tmp_path: Path) -> None:
    """When this fails because images are decoded or resized in another way: raise the number, then take over the new sums."""
    rows, columns = np.mgrid[:9, :7]
    colors = np.stack([rows * 28, columns * 40, rows * columns * 5, 255 - rows * 20], axis=-1).astype(np.uint8)
    turned = Image.Exif()
    turned[0x0112] = 6
    for name, image in (("rgb", colors[..., :3]), ("alpha", colors), ("gray", colors[..., 0])):
        Image.fromarray(np.ascontiguousarray(image)).save(tmp_path / f"{name}.png", exif=turned)
    found = pixels(sorted(tmp_path.glob("*.png")), size=5).astype(int)
    weights = np.arange(1, 26).reshape(5, 5)
    assert cache.FORMATS["prepared images"] == 2
    assert (found * weights[..., None]).sum(axis=(1, 2)).tolist() == [
        [43630, 61165, 38455],
        [34020, 34020, 34020],
        [34020, 52600, 24959],
    ]


def test_images_that_change_places_are_noticed_though_size_and_time_are_equal(tmp_path: Path) -> None:
    paths = [tmp_path / "red.bmp", tmp_path / "blue.bmp"]
    for path in paths:
        Image.new("RGB", (30, 30), path.stem).save(path)
        os.utime(path, ns=(10**18, 10**18))
    assert paths[0].stat().st_size == paths[1].stat().st_size
    prepare(paths, size=SIZE)
    for source, target in ((paths[0], tmp_path / "c"), (paths[1], paths[0]), (tmp_path / "c", paths[1])):
        source.rename(target)
    assert np.array_equal(pixels(paths), expected(paths))


def test_an_image_that_is_replaced_with_size_and_time_kept_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "red.bmp"
    Image.new("RGB", (30, 30), "red").save(path)
    prepare([path], size=SIZE)
    status = path.stat()
    data = path.read_bytes()
    time.sleep(0.02)  # the clock of a file system ticks a few times in this
    path.write_bytes(data[:-300] + bytes(300))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_ino == status.st_ino
    assert np.array_equal(pixels([path]), expected([path]))


@pytest.mark.parametrize("suffix", [".rows", ".keys"])
@pytest.mark.parametrize("n_bytes", [0, 10, 100, 10_000])
def test_what_was_cut_off_is_made_again(images: list[Path], suffix: str, n_bytes: int) -> None:
    prepare(images, size=SIZE)
    path = rows_file().with_suffix(suffix)
    os.truncate(path, min(n_bytes, path.stat().st_size - 1))
    assert np.array_equal(pixels(images), expected(images))
    assert np.array_equal(pixels(images), expected(images))


def test_rows_without_a_key_are_overwritten(images: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(images[:5], size=SIZE)
    with rows_file().open("ab") as file:  # of a process that was killed before it had written the keys
        file.write(bytes(3 * SIZE * SIZE * 3 + 100))
    decoded = count_decoded(monkeypatch)
    assert np.array_equal(pixels(images), expected(images))
    assert len(decoded) == 7


def test_keys_of_lost_rows_never_count_again() -> None:
    """Rows are cut off, and the next process is killed after its rows and before its keys."""
    keys = np.arange(96, dtype=np.uint8).reshape(6, 16)

    def opened(keys):
        return mapped_array(keys, "test", "prepared images", (4,), "uint8")

    def fill(keys):
        with opened(keys) as array:
            before = array.rows
            array.write(np.repeat(array.missing[:, None], 4, axis=1).astype(np.uint8))
        return before.tolist(), array.values[array.rows][:, 0].tolist()

    fill(keys[:4])
    os.truncate(next(cache_folder().glob("test-*.rows")), 8)
    with suppress(KeyboardInterrupt), opened(keys[4:]) as array:
        array.write(np.full((1, 4), 7, dtype=np.uint8))
        raise KeyboardInterrupt
    assert fill(keys) == ([0, 1, -1, -1, 2, -1], [0, 1, 2, 3, 7, 5])


def build_slowly(folder: str, *images: str) -> None:
    """In a process that is killed."""
    cache.SYNC_EVERY = 0.0
    decode = sources.open_image

    def slow(image, **options):
        time.sleep(0.2)
        return decode(image, **options)

    sources.open_image = slow
    prepare([Path(image) for image in images], size=SIZE, folder=Path(folder), n_threads=1)


def test_a_killed_build_goes_on_where_it_was(images: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "killed"
    process = processes.start(folder, *images, function="images.test_cache:build_slowly", log=tmp_path / "log")
    processes.wait_for(lambda: any(path.stat().st_size >= 3 * 16 for path in folder.glob("images-*.keys")))
    process.send_signal(signal.SIGKILL)
    assert processes.wait(process) == -signal.SIGKILL, (tmp_path / "log").read_text()
    decoded = count_decoded(monkeypatch)
    assert np.array_equal(pixels(images, folder=folder), expected(images))
    assert 0 < len(decoded) <= 9
    prepared = prepare(images, size=SIZE, folder=folder)
    prepare(images, size=SIZE, folder=tmp_path / "whole")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()
    }
    assert prepared.rows.tolist() == list(range(12))


def build_at_the_sign(sign: str, folder: str, *images: str) -> None:
    """In one of two processes that begin together."""
    decode = sources.open_image

    def told(path, **options):
        print("decoded", flush=True)
        return decode(path, **options)

    sources.open_image = told
    print("ready", flush=True)
    processes.wait_for(Path(sign).exists)
    print(pixels([Path(image) for image in images], folder=Path(folder), n_threads=1).sum())


def test_two_processes_at_once_decode_every_image_once(images: list[Path], tmp_path: Path) -> None:
    logs, task = [tmp_path / "0.log", tmp_path / "1.log"], "images.test_cache:build_at_the_sign"
    orders = (images[:10], images[2:])
    children = [
        processes.start(tmp_path / "go", tmp_path / "both", *order, function=task, log=log)
        for log, order in zip(logs, orders, strict=True)
    ]
    for log in logs:
        processes.wait_for(lambda log=log: processes.contains(log, "ready\n"))
    (tmp_path / "go").touch()
    assert processes.wait_all(children) == [0, 0], [log.read_text() for log in logs]
    lines = [line for log in logs for line in log.read_text().splitlines()]
    assert lines.count("decoded") == 12
    for order in orders:
        assert str(expected(order).sum()) in lines


def test_an_unreadable_image_is_named_and_the_others_are_kept(images: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = images[5].read_bytes()
    images[5].write_bytes(whole[:300])
    with pytest.raises(ImageError, match="Vögel 5"):
        prepare(images, size=SIZE, n_threads=1)
    images[5].unlink()
    with pytest.raises(ImageError, match=r"Vögel 5\.jpg does not exist"):
        prepare(images, size=SIZE)
    images[5].write_bytes(whole)
    decoded = count_decoded(monkeypatch)
    assert np.array_equal(pixels(images), expected(images))
    assert len(decoded) == 7


def test_a_disk_that_is_too_small_is_refused_before_work_begins(images: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    content_hashes(images)
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
    message = r"needs 0\.0 GB for 12 images; .* has 0\.0 GB: free some space, or set FACETRIC_CACHE"
    with pytest.raises(CacheError, match=message):
        prepare(images, size=SIZE)


def build_and_print_the_error(folder: str, *images: str) -> None:
    try:
        prepare([Path(image) for image in images], size=SIZE, folder=Path(folder))
    except CacheError as error:
        print(error)


@pytest.mark.skipif(sys.platform == "win32", reason="limits of file size are POSIX")
def test_a_disk_that_fills_up_gives_one_error_and_nothing_wrong_is_left(images: list[Path], tmp_path: Path) -> None:
    task = "images.test_cache:build_and_print_the_error"
    result = processes.command(tmp_path / "full", *images, function=task, file_size_limit=10_000)
    assert result.returncode == 0
    assert result.stdout.startswith("cannot write the cache of prepared images")
    assert "set FACETRIC_CACHE" in result.stdout
    assert result.stderr == ""
    assert np.array_equal(pixels(images, folder=tmp_path / "full"), expected(images))


def test_an_unwritable_folder_gives_one_error(images: list[Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CacheError, match=r"cannot .* the cache of prepared images .* set FACETRIC_CACHE to another folder"):
        prepare(images, size=SIZE, folder=tmp_path / "file" / "cache")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_what_is_in_a_read_only_folder_is_used(images: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "read only"
    prepare(images, size=SIZE, folder=folder)
    folder.chmod(0o555)
    try:
        assert len(prepare(images, size=SIZE, folder=folder)) == 12
        with pytest.raises(CacheError, match="Permission denied"):
            prepare(images, size=SIZE + 1, folder=folder)
    finally:
        folder.chmod(0o755)


def test_nothing_is_printed_when_there_is_no_terminal(images: list[Path], capfd: pytest.CaptureFixture[str]) -> None:
    prepare(images, size=SIZE)
    assert capfd.readouterr() == ("", "")


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FACETRIC_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
    monkeypatch.delenv("FACETRIC_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "facetric"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "facetric"


def test_nothing_to_prepare_is_refused() -> None:
    with pytest.raises(ValueError, match="no images to prepare"):
        prepare([])


def test_as_many_threads_decode_as_the_machine_has_cores(tmp_path, monkeypatch):
    together = threading.Barrier(5)  # passed only if five threads decode at once
    decode = sources.open_image

    def decode_together(image, **options):
        together.wait(timeout=30)
        return decode(image, **options)

    monkeypatch.setattr(machine, "available_cores", lambda: 5)
    monkeypatch.setattr(sources, "open_image", decode_together)
    paths = [tmp_path / f"{number}.png" for number in range(5)]
    for number, path in enumerate(paths):
        Image.new("RGB", (9, 9), (number, 0, 0)).save(path)
    assert len(prepare(paths, size=8)) == 5
