"""`facetric embed`: every photo once, whatever happens: broken files, kills, copies, other files in the way."""

import csv
import os
import shutil
import signal
import sqlite3
import time

import numpy as np
import pytest
from typer.testing import CliRunner

import facetric
import processes
from evaluation.run_folders import make_run
from facetric.cli.main import app
from facetric.embedder import Vectors
from facetric.images import content_hash
from facetric.photos import embed_folder, ingest, open_collection
from images.broken_files import write_broken_files
from photos.photo_files import photo, write_photos

FORMATS = ("npz", "csv", "parquet")


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_row_holds_path_content_model_and_vector(run, model, tmp_path, suffix):
    root, output = tmp_path / "photos", tmp_path / f"vectors.{suffix}"
    paths = write_photos(root, 35)
    result = invoke("embed", root, "--model", run, "--output", output)
    assert result.exit_code == 0, result.stderr
    assert "35 photos, 16 dimensions (35 embedded now)" in result.stdout
    found = Vectors.load(output)
    assert list(found.names) == paths
    assert list(found.hashes) == [content_hash((root / path).read_bytes()).hex() for path in paths]
    assert found.model == model.fingerprint
    np.testing.assert_allclose(found.vectors, model.encode(root), atol=1e-6)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photos", output.name]  # nothing else is left


def test_the_formats_hold_the_same_vectors_to_the_last_bit(model, tmp_path):
    write_photos(tmp_path / "photos", 20)
    found = []
    for suffix in FORMATS:
        embed_folder(tmp_path / "photos", model, tmp_path / f"vectors.{suffix}")
        found.append(Vectors.load(f"{tmp_path}/vectors.{suffix}"))
    for other in found[1:]:
        assert (other.names, other.hashes, other.model) == (found[0].names, found[0].hashes, found[0].model)
        np.testing.assert_array_equal(other.vectors, found[0].vectors)


def test_broken_files_are_listed_and_the_others_embedded(run, tmp_path):
    root = tmp_path / "photos"
    paths = write_photos(root, 3)
    broken = {name for name, kind in write_broken_files(root).items() if kind not in ("suspicious", "not used")}
    result = invoke("embed", root, "--model", run, "--output", tmp_path / "vectors.csv")
    assert result.exit_code == 0, result.stderr
    assert f"{len(broken)} broken and left out, listed in {tmp_path / 'vectors.problems.csv'}" in result.stdout
    assert result.stderr.count("left out: ") == 11  # ten and "more"
    with (tmp_path / "vectors.problems.csv").open(newline="") as file:
        listed = dict(csv.reader(file))
    assert listed.keys() - {"path"} == broken
    assert "is truncated: copy or download it again" in listed["half.jpg"]
    assert set(paths) < set(Vectors.load(tmp_path / "vectors.csv").names)
    for name in broken:
        (root / name).unlink()
    assert invoke("embed", root, "--model", run, "--output", tmp_path / "vectors.csv").exit_code == 0
    assert not (tmp_path / "vectors.problems.csv").exists()


def test_a_folder_of_broken_files_alone_writes_nothing(run, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"text")
    result = invoke("embed", tmp_path / "photos", "--model", run, "--output", tmp_path / "vectors.npz")
    assert result.exit_code == 2
    assert "photos can be opened: " in result.stderr
    assert not (tmp_path / "vectors.npz").exists()


def test_only_new_contents_are_embedded_later(model, tmp_path):
    root, output = tmp_path / "photos", tmp_path / "vectors.npz"
    write_photos(root, 12)
    before = embed_folder(root, model, output)
    (root / "00" / "deep" / "000.jpg").rename(root / "moved.jpg")
    shutil.copy(root / "moved.jpg", root / "copy.jpg")
    (root / "01" / "deep" / "010.jpg").unlink()
    photo(99).save(root / "new.jpg")
    after = embed_folder(root, model, output)
    assert (before.n_photos, before.n_new, after.n_photos, after.n_new) == (12, 12, 13, 1)
    found = Vectors.load(output)
    rows = {path: row for row, path in enumerate(found.names)}
    np.testing.assert_array_equal(found.vectors[rows["moved.jpg"]], found.vectors[rows["copy.jpg"]])
    fresh = embed_folder(root, model, tmp_path / "fresh.npz")
    assert (fresh.n_new, output.read_bytes()) == (12, (tmp_path / "fresh.npz").read_bytes())  # the copy is embedded once


@pytest.mark.skipif(os.name != "posix", reason="names are Unicode elsewhere")
@pytest.mark.parametrize("suffix", FORMATS)
def test_names_that_are_not_unicode_are_embedded_and_written_escaped(model, tmp_path, suffix):
    root = tmp_path / "photos"
    root.mkdir()
    photo(0).save(root / os.fsdecode(b"caf\xe9, \n2.jpg"))
    (root / os.fsdecode(b"bad\xe9.jpg")).write_bytes(b"text")
    output = tmp_path / f"vectors.{suffix}"
    found = embed_folder(root, model, output)
    assert (found.n_photos, len(found.problems)) == (1, 1)
    assert Vectors.load(output).names == ("caf\\udce9, \n2.jpg",)
    assert embed_folder(root, model, output).n_new == 0


def n_kept(place):
    """Vectors in the unfinished work."""
    stores = list(place.glob("*.sqlite"))
    if not stores:
        return 0
    try:
        with sqlite3.connect(f"file:{stores[0]}?mode=ro", uri=True) as connection:
            return connection.execute("SELECT count(*) FROM vectors").fetchone()[0]
    except sqlite3.Error:  # not made yet
        return 0


def test_killed_twice_it_goes_on_embeds_nothing_twice_and_ends_with_the_same_bytes(tmp_path):
    root, output = tmp_path / "photos", tmp_path / "vectors.parquet"
    write_photos(root, 160)  # with the packaged network: seconds
    command = ["embed", root, "-o", output]
    kept = 0
    for i in range(2):
        log = tmp_path / f"log {i}"
        child = processes.start(*command, log=log)
        until = time.monotonic() + 300
        while n_kept(tmp_path / "vectors.parquet.partial") <= kept and time.monotonic() < until:
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
        assert processes.wait(child) == -signal.SIGKILL, log.read_text()
        before, kept = kept, n_kept(tmp_path / "vectors.parquet.partial")
        assert before < kept < 160
        assert not output.exists()
    done = processes.command(*command)
    assert done.returncode == 0, done.stderr
    assert f"160 photos, 1280 dimensions ({160 - kept} embedded now, {kept} known by content)" in done.stdout
    embed_folder(root, facetric.load(), tmp_path / "left alone.parquet")
    assert output.read_bytes() == (tmp_path / "left alone.parquet").read_bytes()
    assert not (tmp_path / "vectors.parquet.partial").exists()


@pytest.mark.parametrize("name", ["vectors.npz", "vectors.csv", "vectors.parquet", "vectors.problems.csv"])
def test_a_file_that_it_did_not_write_is_not_touched(run, tmp_path, name):
    write_photos(tmp_path / "photos", 2)
    (tmp_path / name).write_text("path,label\na.jpg,owl\n")
    output = tmp_path / ("vectors.npz" if "problems" in name else name)
    result = invoke("embed", tmp_path / "photos", "--model", run, "-o", output)
    assert result.exit_code == 2
    assert "not written by" in result.stderr
    assert (tmp_path / name).read_text() == "path,label\na.jpg,owl\n"
    assert invoke("embed", tmp_path / "photos", "--model", run, "-o", output, "--overwrite").exit_code == 0
    assert len(Vectors.load(output)) == 2


def test_vectors_of_another_model_are_not_replaced_unasked(run, model, tmp_path):
    write_photos(tmp_path / "photos", 2)
    embed_folder(tmp_path / "photos", model, tmp_path / "v.npz")
    other = facetric.load(make_run(tmp_path, name="second", root=run.parent / "pictures", seed=3))
    with pytest.raises(ValueError, match=r"holds vectors of another model .*: choose another file, or pass overwrite=True"):
        embed_folder(tmp_path / "photos", other, tmp_path / "v.npz")
    embed_folder(tmp_path / "photos", other, tmp_path / "v.npz", overwrite=True)
    assert Vectors.load(tmp_path / "v.npz").model == other.fingerprint


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("vectors.txt", "vectors are written as .parquet, .npz or .csv; got"),
        ("nowhere/vectors.npz", "nowhere does not exist: create it"),
        ("photos", "vectors are written as"),
    ],
)
def test_an_output_that_cannot_be_is_refused_at_once(run, tmp_path, output, message):
    write_photos(tmp_path / "photos", 1)
    result = invoke("embed", tmp_path / "photos", "--model", run, "-o", tmp_path / output)
    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr


@pytest.mark.skipif(os.name != "posix", reason="such names cannot exist elsewhere")
def test_names_cannot_send_control_characters_to_the_terminal(run, tmp_path):
    root = tmp_path / "\x1b[31mphotos"
    root.mkdir()
    for name in ("a\x1b[2J.png", "copy\x1b[2J.png"):
        photo(0).save(root / name)
    (root / "broken\x1b]0;title\x07.jpg").write_bytes(b"text")
    embedded = invoke("embed", root, "--model", run, "-o", root / "v.npz")
    found = invoke("duplicates", root, "--no-look-alikes", "-o", root / "d.csv")
    for result in (embedded, found):
        assert result.exit_code == 0, result.stderr
        assert "\x1b" not in result.output
        assert "broken\\x1b]0;title\\x07.jpg is not an image" in result.stderr
    assert "a\\x1b[2J.png" in found.stdout


def test_a_known_content_is_not_decoded_again(model, tmp_path, monkeypatch):
    write_photos(tmp_path / "photos", 3)
    embed_folder(tmp_path / "photos", model, tmp_path / "v.npz")
    photo(9).save(tmp_path / "photos" / "new.png")
    decoded, decode = [], ingest.decode_image
    monkeypatch.setattr(ingest, "decode_image", lambda *x, **y: decoded.append(x) or decode(*x, **y))
    embed_folder(tmp_path / "photos", model, tmp_path / "v.npz")
    assert len(decoded) == 1


def test_two_at_once_are_one_and_a_clear_line(model, tmp_path):
    from filelock import FileLock

    write_photos(tmp_path / "photos", 1)
    (tmp_path / "v.npz.partial").mkdir()
    with (
        FileLock(tmp_path / "v.npz.partial" / "lock"),
        pytest.raises(RuntimeError, match=r"v\.npz\.partial is being written by another process"),
    ):
        embed_folder(tmp_path / "photos", model, tmp_path / "v.npz")


def test_heic_and_avif_photos_are_embedded_where_their_plugin_is_installed(model, tmp_path):
    heif = pytest.importorskip("pillow_heif")
    heif.register_heif_opener()
    (tmp_path / "photos").mkdir()
    photo(0).save(tmp_path / "photos" / "a.png")
    photo(0).save(tmp_path / "photos" / "a.heic", quality=95)
    photo(0).save(tmp_path / "photos" / "a.avif", quality=95)
    found = embed_folder(tmp_path / "photos", model, tmp_path / "v.npz")
    assert (found.n_photos, found.problems) == (3, ())
    vectors = Vectors.load(tmp_path / "v.npz").vectors
    assert (vectors @ vectors.T).min() > 0.99


def test_without_the_plugin_the_package_is_named(model, tmp_path, monkeypatch):
    heif = pytest.importorskip("pillow_heif")
    heif.register_heif_opener()
    (tmp_path / "photos").mkdir()
    photo(0).save(tmp_path / "photos" / "a.png")
    photo(0).save(tmp_path / "photos" / "b.heic")
    monkeypatch.setattr("facetric.images.decoding.known_formats", lambda: ("JPEG", "PNG"))  # as Pillow is without it
    found = embed_folder(tmp_path / "photos", model, tmp_path / "v.npz")
    assert [problem.reason.partition("b.heic ")[2] for problem in found.problems] == [
        "is an image in HEIF format, which needs a package: pip install pillow-heif, or save it as JPEG"
    ]


def test_a_full_disk_is_one_line_and_what_was_done_is_kept(run, tmp_path):
    """On Linux, a limit on the size of files is what a full disk is to a program that writes."""
    write_photos(tmp_path / "photos", 64)
    done = processes.command("embed", tmp_path / "photos", "--model", run, "-o", tmp_path / "v.npz", file_size_limit=30_000)
    assert done.returncode == 1, done.stderr
    assert [line.startswith("facetric embed: ") for line in done.stderr.splitlines() if "loading" not in line] == [True]
    assert not (tmp_path / "v.npz").exists()
    assert invoke("embed", tmp_path / "photos", "--model", run, "-o", tmp_path / "v.npz").exit_code == 0
    assert len(Vectors.load(tmp_path / "v.npz")) == 64


def test_what_lies_in_the_place_of_its_unfinished_work_is_not_touched(model, tmp_path):
    write_photos(tmp_path / "photos", 2)
    place, mine = tmp_path / "v.npz.partial", tmp_path / "v.npz.partial" / "mine.txt"
    place.mkdir()
    mine.write_text("mine")
    with pytest.raises(ValueError, match=r"v\.npz\.partial exists and is not an index of facetric: choose another name"):
        embed_folder(tmp_path / "photos", model, tmp_path / "v.npz")
    assert mine.read_text() == "mine"
    shutil.rmtree(place)
    index = open_collection(place, model)
    index.add(tmp_path / "photos", label="owl")
    with pytest.raises(ValueError, match=r"v\.npz\.partial is an index"):
        embed_folder(tmp_path / "photos", model, tmp_path / "v.npz")
    assert len(index) == 2
    index.close()
    shutil.rmtree(place)
    add = ingest.ingest
    with pytest.MonkeyPatch.context() as patch:  # a note that somebody leaves there meanwhile
        patch.setattr("facetric.photos.folders.ingest", lambda *x, **y: mine.write_text("mine") and add(*x, **y))
        embed_folder(tmp_path / "photos", model, tmp_path / "v.npz")
    assert [path.name for path in place.iterdir()] == ["mine.txt"]
    assert len(Vectors.load(tmp_path / "v.npz")) == 2
