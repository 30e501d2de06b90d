"""`facetric index` and `facetric search`: nothing lost, nothing doubled, and a clear line for whatever is in the way."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import facetric
import processes
from evaluation.run_folders import make_pictures, make_run
from facetric.cli.main import app
from facetric.embedder import build_network
from facetric.photos import Hit, Match, Vote, open_collection, search_page
from facetric.photos.sqlite_store import SqliteStore
from facetric.photos.store import Entry
from facetric.runs import Run
from photos.photo_files import photo, write_photos


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def pictures(tmp_path):
    """12 classes of 4 pictures that are alike."""
    return make_pictures(tmp_path / "pictures")


def test_from_photos_to_matches_in_two_commands(run, model, pictures, tmp_path):
    index = tmp_path / "birds.index"
    done = invoke("index", "add", index, pictures, "--model", run, "--labels-from-folders")
    assert done.exit_code == 0, done.stderr
    assert "48 photos (48 embedded now)" in done.stdout
    query = pictures / "class03" / "1.png"
    found = invoke("search", index, query, "--top", "3", "--json", "--at-least", "-1")  # the model is the index's
    assert found.exit_code == 0, found.stderr
    (record,) = json.loads(found.stdout)
    vectors = model.encode(pictures).astype(np.float64)
    similarities = vectors @ model.encode(query)[0]
    assert record["hits"][0]["path"] == str(query)
    np.testing.assert_allclose([hit["similarity"] for hit in record["hits"]], np.sort(similarities)[::-1][:3], atol=1e-5)
    table = invoke("search", index, pictures / "class00", "--label", "class05", "--at-least", "-1")
    assert table.stdout.count("[class05]") == 16
    status = invoke("index", "status", index)
    assert "48 photos, 0 of them exact copies" in status.stdout
    assert "      4  class11" in status.stdout
    assert str(run) in status.stdout


def test_only_new_and_changed_photos_are_embedded_and_gone_ones_leave(model, tmp_path):
    root = tmp_path / "photos"
    write_photos(root, 12)
    index = open_collection(tmp_path / "i", model)
    assert index.add(root, label="bird").n_new == 12
    assert index.add(root).n_new == 0
    (root / "00" / "deep" / "000.jpg").rename(root / "moved.jpg")
    (root / "01" / "deep" / "010.jpg").unlink()
    photo(99).save(root / "00" / "deep" / "001.jpg")
    done = index.update(root)
    assert (done.n_photos, done.n_new, done.n_removed) == (11, 1, 2)
    assert [entry.path for entry in index.entries()] == sorted(str(path) for path in root.rglob("*.jpg"))
    assert {entry.label for entry in index.entries() if "moved" not in entry.path} == {"bird"}
    (match,) = index.search(root / "00" / "deep" / "001.jpg", top=1)
    assert match.hits[0].entry.path == str(root / "00" / "deep" / "001.jpg")


def test_a_photo_that_can_not_be_opened_for_a_while_keeps_its_place_and_label(model, tmp_path):
    root = tmp_path / "photos"
    write_photos(root, 12)
    index = open_collection(tmp_path / "i", model)
    index.add(root, label="bird")
    path = root / "00" / "deep" / "000.jpg"
    content = path.read_bytes()
    path.write_bytes(content[:100])
    assert index.update(root).n_removed == 0
    path.write_bytes(content)
    assert index.update(root).n_removed == 0
    assert [entry.label for entry in index.entries()] == ["bird"] * 12


def test_one_photo_that_is_updated_leaves_the_others_of_its_folder(run, model, tmp_path):
    root, index = tmp_path / "photos", tmp_path / "i"
    paths = write_photos(root, 6)
    open_collection(index, model).add(root)
    photo(99).save(root / paths[2])
    done = invoke("index", "update", index, root / paths[2], "--model", run)
    assert "1 photo (1 embedded now)" in done.stdout
    assert [entry.path for entry in open_collection(index, model).entries()] == [str(root / path) for path in paths]


def test_a_moved_folder_is_one_line_and_is_taken_over_without_embedding(run, tmp_path):
    index, old, new = tmp_path / "i", tmp_path / "old", tmp_path / "new"
    write_photos(old, 6)
    assert invoke("index", "add", index, old, "--model", run).exit_code == 0
    old.rename(new)
    refused = invoke("index", "update", index, old)
    assert refused.exit_code == 2
    assert f"old is not there: if it was moved, `facetric index add {index} NEW_FOLDER` takes it over" in refused.stderr
    searched = invoke("search", index, new / "00" / "deep" / "000.jpg")
    assert searched.exit_code == 0
    assert "6 photos missing, the first is" in searched.stderr
    assert "6 photos (0 embedded now, 6 known)" in invoke("index", "add", index, new).stdout
    assert "6 photos removed from the index" in invoke("index", "remove", index, old).stdout
    assert "missing" not in invoke("index", "status", index).stderr
    assert invoke("index", "remove", index, old).exit_code == 2


def said(stderr):
    """Lines, without what a slow machine prints while it waits."""
    return [line for line in stderr.splitlines() if line != "loading the model"]


def test_a_model_that_changed_is_refused_and_the_command_that_it_names_embeds_again(run, pictures, tmp_path):
    changed = tmp_path / "run"
    shutil.copytree(run, changed)
    index = tmp_path / "i"
    assert invoke("index", "add", index, pictures, "--model", changed, "--labels-from-folders").exit_code == 0
    Run(changed).save(build_network("glyphnet", dim=16, weights="none", seed=5), "best")
    query = pictures / "class00" / "0.png"
    for command in (["search", index, query], ["index", "add", index, pictures], ["index", "update", index, pictures]):
        result = invoke(*command)
        assert (result.exit_code, len(said(result.stderr))) == (2, 1), result.stderr
        assert "holds vectors of another model" in result.stderr
    named = result.stderr.rpartition("with `facetric ")[2].rstrip("`\n").split()
    done = invoke(*named)
    assert done.exit_code == 0, done.stderr
    assert "48 photos (48 embedded now)" in done.stdout
    (match,) = open_collection(index, facetric.load(changed)).search(query, top=1)
    assert (match.hits[0].entry.path, match.hits[0].entry.label) == (str(query), "class00")
    assert len(list(index.glob("*.sqlite"))) == 1


def n_photos(index):
    model = SqliteStore.recorded(str(index))
    if model is None:
        return 0
    with SqliteStore(str(index), model, read_only=True) as store:
        return len(store.entries())


@pytest.mark.slow
def test_killed_again_and_again_it_loses_nothing_and_doubles_nothing(tmp_path):
    root, index = tmp_path / "photos", tmp_path / "i"
    write_photos(root, 160)  # with the packaged network: seconds
    command, log = ["index", "add", index, root, "--label", "bird"], tmp_path / "log"
    kept = 0
    for _ in range(2):
        child = processes.start(*command, log=log)
        until = time.monotonic() + 300
        while n_photos(index) <= kept and time.monotonic() < until:  # a reader during writes
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
        assert processes.wait(child) == -signal.SIGKILL, log.read_text()
        before, kept = kept, n_photos(index)
        assert before < kept < 160
    done = processes.command(*command)
    assert done.returncode == 0, done.stderr
    assert f"160 photos ({160 - kept} embedded now, {kept} known)" in done.stdout
    entries = open_collection(index, facetric.load()).entries()
    assert [entry.path for entry in entries] == sorted(str(path) for path in root.rglob("*.jpg"))
    assert {entry.label for entry in entries} == {"bird"}


def test_a_second_writer_is_one_line_and_readers_go_on(run, model, pictures, tmp_path):
    index = tmp_path / "i"
    open_collection(index, model).add(pictures)
    with SqliteStore.alone(str(index)):
        refused = invoke("index", "add", index, pictures, "--model", run)
        assert (refused.exit_code, len(said(refused.stderr))) == (1, 1)
        assert "i is being written by another process: wait for it, or stop it; searching works meanwhile" in refused.stderr
        assert invoke("search", index, pictures / "class00" / "0.png").exit_code == 0
    assert invoke("index", "add", index, pictures, "--model", run).exit_code == 0


def test_a_full_disk_is_one_line_and_what_was_done_is_kept(run, tmp_path):
    """On Linux, a limit on the size of files is what a full disk is to a program that writes."""
    write_photos(tmp_path / "photos", 96)
    arguments = ["index", "add", tmp_path / "i", tmp_path / "photos", "--model", run]
    done = processes.command(*arguments, file_size_limit=60_000)
    assert done.returncode == 1, done.stderr
    lines = [line for line in done.stderr.splitlines() if "loading" not in line]
    assert [line.startswith("facetric index add: ") and "free some space" in line for line in lines] == [True]
    assert invoke(*arguments).exit_code == 0
    assert n_photos(tmp_path / "i") == 96


def test_a_damaged_file_is_one_line(run, model, pictures, tmp_path):
    index = tmp_path / "i"
    open_collection(index, model).add(pictures)
    broken = index / "collection.sqlite"
    broken.write_bytes(b"not what it was" * 1000)
    result = invoke("search", index, pictures / "class00" / "0.png", "--model", run)
    assert result.exit_code in (1, 2)
    assert ("damaged" in result.stderr, len(said(result.stderr))) == (True, 1), result.stderr


def test_where_nothing_is_as_similar_as_asked_for_a_photo_is_unknown(model, pictures, tmp_path):
    index = open_collection(tmp_path / "i", model)
    index.add(pictures / "class00")
    strange = tmp_path / "strange.png"
    photo(3).rotate(90, expand=True).save(strange)
    limit = index.search(strange)[0].hits[0].similarity + 1e-3
    (known,) = index.search(pictures / "class00" / "0.png", at_least=limit)
    assert (known.is_unknown, bool(known.hits)) == (False, True)
    (found,) = index.search(strange, at_least=limit)
    assert (found.is_unknown, found.hits) == (True, ())
    result = invoke("search", tmp_path / "i", strange, "--at-least", limit)
    assert "unknown: nothing in the index is similar enough" in result.stdout


def test_neighbors_vote_for_the_label_that_most_have(model, pictures, tmp_path):
    index = open_collection(tmp_path / "i", model)
    index.add(pictures, labels_from_folders=True)
    shutil.copy(pictures / "class00" / "0.png", tmp_path / "copy.png")
    (match,) = index.search(tmp_path / "copy.png", top=3, at_least=-1, classify=True)
    labels = [hit.entry.label for hit in match.hits]
    assert match.vote.label == max(labels, key=labels.count)
    assert match.vote.fraction == labels.count(match.vote.label) / 3


def test_a_label_that_is_more_likely_wrong_than_right_is_unknown(model, pictures, tmp_path):
    """Labels that have nothing to do with the pictures: no vote can be trusted, and the nearest photos are shown all the same."""
    index, query = open_collection(tmp_path / "i", model), pictures / "class00" / "0.png"
    for i, path in enumerate(sorted(pictures.rglob("*.png"))):
        index.add(path, label=f"label {i % 6}")
    (match,) = index.search(query, at_least=-1, classify=True)
    assert (match.is_unknown, match.vote.is_unknown, len(match.hits)) == (True, True, 10)
    assert match.vote.expected_precision < 0.5
    said = invoke("search", tmp_path / "i", query, "--classify", "--at-least", "-1")
    assert f"unknown, perhaps {match.vote.label} (" in said.stdout
    (record,) = json.loads(invoke("search", tmp_path / "i", query, "--classify", "--at-least", "-1", "--json").stdout)
    assert record["unknown"]
    refused = invoke("search", tmp_path / "i", query, "--classify", "--unknown-fraction", "1")
    assert (refused.exit_code, "at least 0 and below 1; got 1.0: try --unknown-fraction 0.5" in refused.stderr) == (2, True)


def test_a_broken_file_in_a_folder_is_left_out_and_named(model, pictures, tmp_path, caplog):
    index, folder = open_collection(tmp_path / "i", model), pictures / "class00"
    index.add(pictures)
    (folder / "a broken one.png").write_bytes(b"text")
    assert [Path(match.photo).name for match in index.search(folder)] == [f"{i}.png" for i in range(4)]
    assert "left out: " in caplog.text
    assert "a broken one.png" in caplog.text
    with pytest.raises(ValueError, match="a broken one"):
        index.search(folder / "a broken one.png")


def test_without_labels_there_is_no_vote(model, pictures, tmp_path):
    index = open_collection(tmp_path / "i", model)
    index.add(pictures)
    (match,) = index.search(pictures / "class00" / "0.png", classify=True)
    assert (match.vote, len(match.hits)) == (None, 10)


def test_the_page_holds_the_pictures_and_escapes_names(model, tmp_path):
    root = tmp_path / "photos"
    (root / "<b>owl").mkdir(parents=True)
    photo(0).save(root / "<b>owl" / "a&b.jpg")
    photo(1).save(root / "<b>owl" / "gone.jpg")
    open_collection(tmp_path / "i", model).add(root, labels_from_folders=True)
    (root / "<b>owl" / "gone.jpg").rename(tmp_path / "query.jpg")
    result = invoke("search", tmp_path / "i", tmp_path / "query.jpg", "--page", tmp_path / "found.html", "--classify")
    assert result.exit_code == 0, result.stderr
    text = (tmp_path / "found.html").read_text()
    assert text.count("data:image/jpeg;base64,") == 2
    assert "the file is not there" in text
    assert "&lt;b&gt;owl" in text
    assert "<b>" not in text
    assert "http" not in text


def test_on_a_phone_the_page_is_as_wide_as_the_screen_whatever_the_names(browser, tmp_path):
    hits = [Hit(Entry(str(tmp_path / f"{'n' * 60}.jpg"), b"c", "l" * 80), 0.9)]
    (tmp_path / "found.html").write_bytes(
        search_page([Match(str(tmp_path / f"{'q' * 80}.jpg"), tuple(hits), Vote("l" * 80, 1.0, 0.9))])
    )
    shown = browser.new_page(viewport={"width": 390, "height": 844})
    shown.goto((tmp_path / "found.html").as_uri())
    assert shown.evaluate("document.documentElement.scrollWidth") <= 390
    shown.close()


def test_the_same_commands_work_on_milvus(run, pictures, tmp_path):
    pytest.importorskip("milvus_lite")
    index, query = f"milvus://{tmp_path}/lite.db/birds", pictures / "class02" / "3.png"
    assert "there is no index" in invoke("search", index, query).stderr
    done = invoke("index", "add", index, pictures, "--model", run, "--labels-from-folders")
    assert done.exit_code == 0, done.stderr
    assert "48 photos (0 embedded now, 48 known)" in invoke("index", "add", index, pictures).stdout
    assert "48 photos" in invoke("index", "status", index).stdout
    found = invoke("search", index, query, "--json", "--classify", "--at-least", "-1")
    assert found.exit_code == 0, found.stderr
    open_collection(tmp_path / "i", facetric.load(run)).add(pictures, labels_from_folders=True)
    assert found.stdout == invoke("search", tmp_path / "i", query, "--json", "--classify", "--at-least", "-1").stdout
    query.unlink()
    assert "47 photos (0 embedded now, 47 known, 1 removed)" in invoke("index", "update", index, pictures).stdout
    assert "4 photos removed" in invoke("index", "remove", index, pictures / "class00").stdout
    assert "43 photos, 0 of them exact copies" in invoke("index", "status", index).stdout
    other = make_run(tmp_path, name="second", root=pictures, seed=3)
    refused = invoke("index", "add", index, pictures, "--model", other)
    assert f"with `facetric index add {index}_2 PHOTOS --model {other}`" in refused.stderr
    opened = open_collection(index, facetric.load(run))
    assert (opened.decisions().decisions, opened.thumbnail(opened.entries()[0].content)) == ((), None)
    with pytest.raises(ValueError, match="a collection on Milvus keeps no decisions: "):
        opened.decide({}, {})


@pytest.mark.parametrize("address", ["milvus://host:19530", "milvus://host:19530/a-b", "milvus:///birds"])
def test_an_address_that_is_none_is_refused(model, address):
    with pytest.raises(ValueError, match="an index on Milvus is milvus://host:19530/collection; got"):
        open_collection(address, model)


@pytest.mark.skipif(os.name != "posix", reason="such names cannot exist elsewhere")
def test_names_that_are_not_unicode_or_hold_control_characters_are_escaped(run, tmp_path):
    root = tmp_path / "photos" / "\x1b[31mred"
    root.mkdir(parents=True)
    photo(0).save(os.path.join(os.fsencode(root), b"caf\xe9.png").decode("utf-8", "surrogateescape"))
    assert invoke("index", "add", tmp_path / "i", tmp_path / "photos", "--model", run, "--labels-from-folders").exit_code == 0
    for arguments in (
        ["search", tmp_path / "i", root],
        ["search", tmp_path / "i", root, "--json"],
        ["index", "status", tmp_path / "i"],
    ):
        result = invoke(*arguments)
        assert result.exit_code == 0, result.output
        assert "\x1b" not in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search", "nowhere", "photos"], "there is no index nowhere: make it with `facetric index add nowhere PHOTOS`"),
        (["index", "status", "nowhere"], "there is no index nowhere"),
        (["index", "add", "photos", "photos"], "photos exists and is not an index of facetric: choose another name"),
        (["index", "add", "new", "empty"], "there are no photos in"),
        (
            ["index", "add", "new", "photos", "--label", "a", "--labels-from-folders"],
            "pass --label or --labels-from-folders, not both",
        ),
        (["search", "i", "photos", "--top", "0"], "top must be a whole number, at least 1; got 0: --top 10 shows ten photos"),
        (["search", "i", "photos", "--label", "heron"], "no photo has the label 'heron'; the index has owl"),
        (["search", "i", "photos", "--at-least", "80"], "similarities lie between -1 and 1; got 80.0: try --at-least 0.8"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(run, model, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    write_photos(tmp_path / "photos", 2)
    (tmp_path / "empty").mkdir()
    open_collection("i", model).add("photos", label="owl")
    result = invoke(*arguments)
    lines = [line for line in result.stderr.splitlines() if "loading" not in line]
    assert (result.exit_code, message in lines[0], len(lines)) == (2, True, 1), result.stderr
    assert not (tmp_path / "new").exists()


def test_top_means_top_and_a_similarity_that_is_asked_for_cuts(evaluated_run, tmp_path):
    index = open_collection(tmp_path / "i", facetric.load(evaluated_run))
    index.add(evaluated_run.parent / "secret-pictures", labels_from_folders=True)
    query = next((evaluated_run.parent / "secret-pictures" / "class03").iterdir())
    (match,) = index.search(query, top=500)
    assert len(match.hits) == len(index) == 48
    similarities = [hit.similarity for hit in match.hits]
    assert similarities == sorted(similarities, reverse=True)
    limit = (similarities[6] + similarities[7]) / 2
    (cut,) = index.search(query, top=500, at_least=limit, classify=True)
    assert cut.hits == cut.near == match.hits[:7]
    labels = [hit.entry.label for hit in cut.hits]
    assert (cut.vote.label, cut.vote.fraction) == (max(labels, key=labels.count), max(map(labels.count, labels)) / 7)
    assert len(invoke("search", index.address, query, "--top", 500).stdout.splitlines()) == 1 + 48
    assert len(invoke("search", index.address, query, "--top", 500, "--at-least", limit).stdout.splitlines()) == 1 + 7
    (record,) = json.loads(invoke("search", index.address, query, "--top", 500, "--json").stdout)
    assert [hit["similarity"] for hit in record["hits"]] == pytest.approx(similarities)


def test_what_is_searched_for_is_a_path_an_image_an_array_a_vector_or_a_list_of_these(model, pictures, tmp_path):
    index = open_collection(tmp_path / "i", model)
    assert len(index) == 0
    index.add(pictures)
    paths = sorted(pictures.rglob("*.png"))[:3]
    images = [Image.open(path).convert("RGB") for path in paths]
    vectors = model.encode(paths)
    expected = [match.hits for path in paths for match in index.search(path)]
    for many in (paths, images, [np.asarray(image) for image in images], [str(paths[0]), images[1], np.asarray(images[2])]):
        found = index.search(many)
        assert [[hit.entry for hit in match.hits] for match in found] == [[hit.entry for hit in hits] for hits in expected]
        for match, hits in zip(found, expected, strict=True):
            np.testing.assert_allclose([hit.similarity for hit in match.hits], [hit.similarity for hit in hits], atol=1e-5)
    for many in (vectors, vectors.astype(np.float64), list(vectors), [vectors[:1], vectors[1], vectors[2:]]):
        assert [match.hits for match in open_collection(tmp_path / "i").search(many)] == expected  # needs no model
    (one,) = index.search(vectors[0])
    assert (one.photo, one.hits) == ("#0", expected[0])
    assert index.search([]) == []
    assert [match.photo for match in index.search([paths[0], images[1]])] == [str(paths[0]), "#1"]
    assert search_page(index.search(images)).decode().count("the file is not there") == 0


@pytest.mark.parametrize(
    ("ask", "line"),
    [
        (lambda index: index.search(7), "images are a path of a photo or a folder, .*; got int: pass one of these"),
        (lambda index: index.search(None), "images are .*; got NoneType"),
        (lambda index: index.search(np.ones(5)), r"a vector to search for has 16 finite numbers; got shape \(5,\): pass what"),
        (lambda index: index.search(np.full(16, np.nan)), "has 16 finite numbers"),
        (lambda index: index.search(np.ones((9, 9, 3))), r"got shape \(9, 9, 3\): .* or an image as uint8"),
        (lambda index: index.search([np.ones(16), "a.png"]), r"an image is a uint8 array .*; got float64 of shape \(16,\)"),
        (lambda index: index.search("photos", top="5"), "top must be a whole number, at least 1; got '5': top=10 shows ten"),
        (lambda index: index.search("photos", top=2.5), "top must be a whole number, at least 1; got 2.5"),
        (lambda index: index.search("photos", at_least="high"), "between -1 and 1; got 'high': try at_least=0.8"),
        (lambda index: index.search("photos", unknown_fraction=None), "got None: try unknown_fraction=0.5"),
        (lambda index: index.add(7), "photos are the path of a folder or of a photo; got int: pass such a path"),
        (lambda index: index.update([]), "photos are the path of a folder or of a photo; got list: pass such a path"),
        (lambda index: index.remove(None), "photos are the path of a folder or of a photo; got NoneType: pass such a path"),
        (lambda index: index.add("photos", label="a", labels_from_folders=True), "pass label= or labels_from_folders=True, not"),
        (lambda index: open_collection(7), "a collection is a folder, or milvus://…; got int: pass its path"),
    ],
)
def test_a_wrong_type_is_one_line_in_the_words_of_python(model, tmp_path, monkeypatch, ask, line):
    monkeypatch.chdir(tmp_path)
    write_photos(tmp_path / "photos", 2)
    index = open_collection("i", model)
    index.add("photos")
    with pytest.raises(ValueError, match=line) as refused:
        ask(index)
    assert len(str(refused.value).splitlines()) == 1


def test_a_vote_without_any_label_is_not_silent(run, model, pictures, tmp_path, caplog):
    index = open_collection(tmp_path / "i", model)
    index.add(pictures / "class00")
    assert index.search(pictures / "class00" / "0.png", classify=True)[0].vote is None
    line = "there is no vote, as no photo of the index has a label: add them again with `facetric index add "
    assert caplog.text.count(line) == 1
    assert line in invoke("search", tmp_path / "i", pictures / "class00" / "0.png", "--classify").stderr
    index.add(pictures / "class00", label="owl")
    caplog.clear()
    assert index.search(pictures / "class00" / "0.png", classify=True)[0].vote.label == "owl"
    assert line not in caplog.text


@pytest.mark.parametrize("name", ["vectors.npy", "vectors.npz", "vectors.parquet", "vectors.csv"])
@pytest.mark.parametrize(
    "command", [["cluster", "--clusters=3", "-o", "new"], ["embed", "-o", "new.npz"], ["duplicates"], ["index add", "new"]]
)
def test_a_file_of_vectors_is_told_from_a_folder_of_photos(run, tmp_path, monkeypatch, command, name):
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(b"vectors")
    words, others = command[0].split(), command[1:]
    options = [*others[:1], name] if words[0] == "index" else [name, *others]
    done = invoke(*words, *options, "--model", run)
    assert done.exit_code == 2
    (line,) = said(done.stderr)
    assert f"{name} is a file of vectors, no folder of photos: pass one; vectors are grouped, scored and" in line
    assert "remove" not in line
    assert [path.name for path in tmp_path.iterdir()] == [name]
