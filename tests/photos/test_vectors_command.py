"""`--vectors FILE`: what was embedded elsewhere is grouped, searched, corrected, scored and shown, with photos or by name."""

import csv
import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

import facetric
from facetric.cli.main import app
from facetric.photos import Decisions, cluster_folder, embed_folder, open_collection
from photos.photo_files import write_photos


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def done(*arguments):
    result = invoke(*arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def refused(*arguments):
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    return result.stderr


def texts(n_classes=12, n_each=8, seed=0):
    """Vectors with a name and a label each."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(n_classes), n_each)
    vectors = rng.normal(size=(n_classes, 24))[labels] + 0.3 * rng.normal(size=(len(labels), 24))
    names = [f"and/or, what is it? {row}" for row in range(len(labels))]
    return vectors.astype(np.float32), names, labels


@pytest.fixture
def file(tmp_path):
    vectors, names, labels = texts()
    np.savez(tmp_path / "texts.npz", vectors=vectors, text=names, label=labels)
    return tmp_path / "texts.npz"


def about(page):
    """What the scripts of a page read."""
    return json.loads(re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page.read_text(), re.DOTALL)[1])


def rows_of(table):
    with table.open(newline="") as opened:
        return list(csv.DictReader(opened))


def test_names_are_grouped_on_a_page_and_in_a_table(file, tmp_path):
    said = done("cluster", "--vectors", file, "--output", tmp_path / "album")
    assert "96 vectors: 12 groups, 0 alone (96 read now)" in said
    assert "model: texts.npz; which photos belong together was learned from other kinds of photos" in said
    rows = rows_of(tmp_path / "album" / "clusters.csv")
    _, names, labels = texts()
    assert {row["path"] for row in rows} == set(names)
    clusters = {row["path"]: row["cluster"] for row in rows}
    assert len({(label, clusters[name]) for name, label in zip(names, labels, strict=True)}) == 12
    shown = about(tmp_path / "album" / "clusters.html")
    assert (shown["thumbnails"], shown["noun"]) == ("", "vector")
    assert {path for (path,) in shown["paths"]} == set(names)


def test_the_groups_are_those_of_the_estimator(file, tmp_path):
    vectors, names, _ = texts()
    groups = cluster_folder(None, None, tmp_path / "album", vectors=facetric.embedder.read_vectors(file))
    expected = facetric.PairLinkage().fit_predict(vectors)
    own = dict(zip(map(str, groups.photos), groups.clusters, strict=True))
    both = {(own[name], label) for name, label in zip(names, expected, strict=True)}
    assert len(both) == len(set(expected)) == len(set(own.values()))


def test_vectors_of_photos_give_the_groups_of_the_photos(tmp_path):
    root, model = tmp_path / "photos", facetric.load()
    write_photos(root, 30)
    for suffix in ("npz", "parquet"):
        embed_folder(root, model, tmp_path / f"v.{suffix}")
    expected = cluster_folder(root, model, tmp_path / "from photos")
    done("cluster", root, "--vectors", tmp_path / "v.npz", "--output", tmp_path / "with")
    done("cluster", "--vectors", tmp_path / "v.parquet", "--output", tmp_path / "without")
    pictures, names = (rows_of(tmp_path / place / "clusters.csv") for place in ("with", "without"))
    assert [row["cluster"] for row in pictures] == [row["cluster"] for row in names] == [str(x + 1) for x in expected.clusters]
    assert [row["path"] for row in names] == [str(photo) for photo in expected.photos]
    assert (tmp_path / "with" / "clusters.html").read_text().count("thumbnails") > 0
    shown, direct = ({x.name: x.read_bytes() for x in (tmp_path / y / "thumbnails").iterdir()} for y in ("with", "from photos"))
    assert shown.keys() == direct.keys()
    (match,) = open_collection(tmp_path / "with", model).search(root / "00" / "deep" / "003.jpg", top=1)
    assert match.hits[0].entry.path.endswith("003.jpg")  # it knows whose vectors they are
    assert "30 vectors" in done("index", "add", tmp_path / "index", root, "--vectors", tmp_path / "v.npz")
    assert "0 new" not in done("index", "status", tmp_path / "index")


def test_photos_are_matched_by_path_and_what_is_left_over_is_said(tmp_path):
    paths = write_photos(tmp_path / "photos", 12)
    rows = np.random.default_rng(0).normal(size=(12, 6))
    np.savez(tmp_path / "v.npz", embeddings=rows, path=[*paths[1:], "gone.jpg"])
    result = invoke("cluster", tmp_path / "photos", "--vectors", tmp_path / "v.npz", "--output", tmp_path / "album")
    assert result.exit_code == 0, result.stderr
    assert "11 photos: " in result.stdout
    assert f"{paths[0]} has no vector in the file" in result.stderr
    assert "1 vector left out: there is no photo of them in" in result.stderr
    np.savez(tmp_path / "w.npz", embeddings=rows, path=[f"{row}.jpg" for row in range(12)])
    said = refused("cluster", tmp_path / "photos", "--vectors", tmp_path / "w.npz", "--output", tmp_path / "other")
    assert f"none of 12 photos in {tmp_path / 'photos'} has a vector" in said


def test_new_vectors_take_the_place_of_old_ones_and_decisions_stay(file, tmp_path):
    album = tmp_path / "album"
    done("cluster", "--vectors", file, "--output", album)
    table = album / "clusters.csv"
    lines = [{**row, "name": "mine" if row["path"].endswith(("? 0", "? 95")) else ""} for row in rows_of(table)]
    with table.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, lines[0])
        writer.writeheader()
        writer.writerows(lines)
    assert "was changed since it was written" in refused("cluster", "--vectors", file, "--output", album)
    done("cluster", "--vectors", file, "--output", album, "--decisions", table)
    vectors, names, _ = texts(seed=1)
    np.savez(file, vectors=vectors[:, :20], text=names)  # another model
    done("cluster", "--vectors", file, "--output", album)
    groups = {row["path"]: (row["cluster"], row["name"]) for row in rows_of(table)}
    assert len(groups) == 96
    assert groups[names[0]] == groups[names[95]]
    assert groups[names[0]][1] == "mine"


def test_an_index_grows_and_is_searched_by_name_and_by_vectors(file, tmp_path):
    vectors, names, labels = texts()
    index = tmp_path / "index"
    assert "96 vectors (96 read now)" in done("index", "add", index, "--vectors", file)
    np.savez(tmp_path / "more.npz", vectors=vectors[:1] + 0.01, text=["one more"], label=["0"])
    done("index", "add", index, "--vectors", tmp_path / "more.npz")
    status = done("index", "status", index)
    assert "97 photos" in status
    assert "vectors made elsewhere" in status
    said = done("search", index, names[0], "--top", "2", "--page", tmp_path / "found.html")
    assert re.search(rf"1\.000  {re.escape(names[0])}  \[0\]\n .*one more", said)
    assert "what is it? 0" in (tmp_path / "found.html").read_text()
    np.save(tmp_path / "query.npy", vectors[50])
    assert "of shape (24,)" in refused("search", index, tmp_path / "query.npy")
    np.save(tmp_path / "query.npy", vectors[50:52])
    said = done("search", index, tmp_path / "query.npy", "--top", "1", "--classify")
    assert names[50] in said
    assert names[51] in said
    assert f"{labels[50]} (right" in said
    assert "holds no vector called 'nobody'" in refused("search", index, "nobody")
    np.save(tmp_path / "query.npy", vectors[:, :5])
    assert "a vector to search for has 24 finite numbers" in refused("search", index, tmp_path / "query.npy")
    assert "vectors of 24 numbers; these have 5" in refused("index", "add", index, "--vectors", tmp_path / "query.npy")


def test_vectors_of_a_named_model_that_is_not_here_are_never_called_those_of_the_packaged_network(model, tmp_path):
    paths = write_photos(tmp_path / "photos", 12)
    for maker in (model, facetric.load()):
        index, file = tmp_path / maker.fingerprint, tmp_path / f"{maker.fingerprint}.npz"
        embed_folder(tmp_path / "photos", maker, file)
        done("index", "add", index, "--vectors", file)
        assert "model: vectors made elsewhere" in done("index", "status", index)
    index = tmp_path / model.fingerprint
    assert f"1.000  {paths[0]}" in done("search", index, paths[0])
    assert "holds no vector called" in (said := refused("search", index, tmp_path / "photos" / paths[0]))
    assert "or the model (--model)" in said
    assert f"1.000  {paths[0]}" in done("search", tmp_path / facetric.load().fingerprint, tmp_path / "photos" / paths[0])


def test_the_page_of_vectors_does_not_replace_a_file_of_others_that_has_its_name(file, tmp_path):
    page = tmp_path / "texts.html"
    page.write_text("mine")
    assert "was not written by `facetric report`: say where the page goes (--output)" in refused("report", "--vectors", file)
    assert page.read_text() == "mine"
    page.unlink()
    done("report", "--vectors", file)
    done("report", "--vectors", file)


@pytest.mark.parametrize(("rows", "said"), [([5], "row 5 of {} holds zeros only: make"), ([5, 7], "only (and 1 more): make")])
def test_rows_that_have_no_direction_are_counted(rows, said, tmp_path):
    vectors, *_ = texts()
    vectors[rows] = 0
    np.save(tmp_path / "v.npy", vectors)
    assert said.format(tmp_path / "v.npy") in refused("cluster", "--vectors", tmp_path / "v.npy", "--output", tmp_path / "album")


def test_a_wrong_name_of_timm_is_answered_in_the_words_of_the_option():
    said = refused("export", "timm:resnet1800", "model.onnx")
    assert "got 'resnet1800': did you mean resnet18" in said
    assert "--set" not in said


def test_from_python_arrays_become_a_collection(tmp_path):
    vectors, names, labels = texts()
    index = open_collection(tmp_path / "index")
    assert index.add_vectors(vectors, names=names, labels=labels).n_new == 96
    assert len(index) == 96
    assert index.cluster().n_groups == 12
    (match,) = index.search(vectors[3], top=8, classify=True)
    assert {hit.entry.label for hit in match.hits} == {"0"}
    assert match.vote.label == "0"
    with pytest.raises(ValueError, match="is not here to embed images with, only vectors of it are"):
        index.search(np.zeros((8, 8, 3), dtype=np.uint8))
    moved = np.roll(vectors, 1, axis=0)
    index.add_vectors(moved, names=names)
    (match,) = index.search(vectors[3], top=1)
    assert match.hits[0].entry.path.endswith(names[4])


def test_names_that_are_no_paths_stay_apart_and_recognizable(tmp_path):
    names = ["https://a.org/x", "/abs/olute", "a/../b", "", ".", "two\nlines", "x" * 5000, "Ü", "a/b"]
    open_collection(tmp_path / "index").add_vectors(np.eye(9), names=names)
    index = open_collection(tmp_path / "index")
    assert len(index) == 9
    assert index.status().missing == ()
    assert index.search("https:∕∕a.org∕x", top=1)[0].hits[0].similarity == 1
    done("cluster", "--vectors", saved(tmp_path, np.eye(9), names), "--output", tmp_path / "album")
    assert {path for (path,) in about(tmp_path / "album" / "clusters.html")["paths"]} >= {"two\nlines", "a/b", "https:∕∕a.org∕x"}


def saved(folder, vectors, names):
    np.savez(folder / "v.npz", vectors=vectors, name=names)
    return folder / "v.npz"


def test_the_model_that_made_vectors_may_be_named_and_no_other(run, model, tmp_path):
    write_photos(tmp_path / "photos", 12)
    embed_folder(tmp_path / "photos", model, tmp_path / "v.npz")
    options = ("--vectors", tmp_path / "v.npz", "--output", tmp_path / "album")
    assert "which photos belong together was learned from" in done("cluster", *options, "--model", run)
    embed_folder(tmp_path / "photos", facetric.load(), tmp_path / "v.npz", overwrite=True)
    assert "these vectors are of another model" in refused("cluster", *options, "--model", run)
    said = refused("cluster", "--vectors", saved(tmp_path, np.eye(4), list("abcd")), "--output", tmp_path / "b", "--model", run)
    assert "of a model that they do not name" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("cluster", "--output", "{}/album"), "pass a folder of photos, or --vectors FILE"),
        (("cluster", "--vectors", "{}/twice.npz", "--output", "{}/album"), "rows 0 and 1 are both called 'a'"),
        (("cluster", "--vectors", "{}/texts.npz", "--output", "{}/album", "--copy-to", "{}/x"), "names without photos cannot"),
        (("cluster", "{}", "--output", "{}/album", "--labels", "kind"), "--names and --labels name columns of a file"),
        (("index", "add", "{}/index"), "pass a folder of photos, or --vectors FILE"),
        (("index", "add", "{}/index", "--vectors", "{}/texts.npz", "--label", "x"), "leave --label and"),
        (("evaluate",), "pass a run folder, or --vectors FILE"),
        (("evaluate", "{}/run", "--vectors", "{}/texts.npz"), "not both"),
        (("evaluate", "--vectors", "{}/plain.npy"), r"without labels there is nothing to score against.*--labels"),
        (("evaluate", "--vectors", "{}/texts.npz", "--split", "train"), "vectors have no split"),
        (("report", "--vectors", "{}/plain.npy"), "without labels there is nothing to score"),
    ],
)
def test_what_cannot_be_is_one_line_and_leaves_nothing(file, tmp_path, arguments, said):
    np.savez(tmp_path / "twice.npz", vectors=np.eye(3), name=["a", "a", "b"])
    np.save(tmp_path / "plain.npy", np.eye(5))
    before = sorted(tmp_path.iterdir())
    assert re.search(said, refused(*(argument.format(tmp_path) for argument in arguments)))
    assert sorted(tmp_path.iterdir()) == before


def test_a_labeled_file_has_the_scores_of_evaluate(file):
    vectors, _, labels = texts()
    told = json.loads(done("evaluate", "--vectors", file, "--json"))
    direct = facetric.evaluate(vectors, labels)
    assert told["recall_at_k"]["1"] == direct.recall_at_k[1]
    assert (told["nmi"], told["map_at_r"]) == (direct.nmi, direct.map_at_r)
    assert told["baselines"]["random order"]["recall_at_k"]["1"] < 0.3
    table = done("evaluate", "--vectors", file)
    assert re.search(r"these vectors +100\.00", table)
    assert "random order" not in done("evaluate", "--vectors", file, "--no-baselines")


def test_the_report_of_a_file_has_its_scores_and_map(file, tmp_path):
    said = done("report", "--vectors", file)
    assert str(tmp_path / "texts.html") in said
    text = (tmp_path / "texts.html").read_text()
    assert "96 vectors of 12 classes" in text
    assert "and/or, what is it? 7" in text


def test_decisions_about_names_are_read_from_a_table_without_files(tmp_path):
    (tmp_path / "clusters.csv").write_text("path,cluster,medoid,name\na text,1,a text,mine\nother,,,\n")
    found = Decisions.read_all([tmp_path / "clusters.csv"], None)
    assert [(one.do, one.photos[0].path) for one in found.decisions] == [("name", "a text"), ("reject", "other")]
