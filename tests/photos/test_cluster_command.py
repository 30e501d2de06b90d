"""`facetric cluster`: groups in a table, on a page and in folders, whatever happens in between."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

import facetric
from evaluation.run_folders import make_pictures
from facetric.cli.main import app
from facetric.images import content_hash
from facetric.images.readers.own import read_csv
from facetric.metrics import clustering_scores
from facetric.photos import PhotoGroups, open_collection
from photos.photo_files import photo


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def run(evaluated_run):
    return evaluated_run


@pytest.fixture
def photos(tmp_path):
    """48 photos of 12 kinds in one folder, by kind only for the test."""
    make_pictures(tmp_path / "kinds")
    (tmp_path / "photos").mkdir()
    for i, file in enumerate(sorted((tmp_path / "kinds").glob("*/*"))):
        file.rename(tmp_path / "photos" / f"{i:02}.png")
    return tmp_path / "photos"


def table(output):
    with (output / "clusters.csv").open(newline="") as file:
        return {Path(row["path"]).name: row for row in csv.DictReader(file)}


def decisions(photos, *rows):
    """A file as the page saves it; rows are (do, names of photos, name)."""
    names = sorted({name for _, own, *_ in rows for name in own})
    record = {
        "format": "facetric decisions 1",
        "photos": [{"content": content_hash((photos / name).read_bytes()).hex(), "path": name} for name in names],
        "decisions": [{"do": do, "photos": [names.index(x) for x in own], "name": "".join(name)} for do, own, *name in rows],
    }
    path = photos.parent / "decisions.json"
    path.write_text(json.dumps(record))
    return path


def test_every_photo_is_in_the_table_and_kinds_are_groups(run, photos, tmp_path):
    result = invoke("cluster", photos, "--model", run, "--output", tmp_path / "groups")
    assert result.exit_code == 0, result.stderr
    assert "48 photos: " in result.stdout
    assert "which photos belong together was learned from " in result.stdout
    rows = table(tmp_path / "groups")
    assert list(rows) == [f"{i:02}.png" for i in range(48)]
    assert clustering_scores([i // 4 for i in range(48)], [int(row["cluster"]) for row in rows.values()]).pairwise_f1 > 0.5
    for row in rows.values():
        assert (tmp_path / "groups" / row["path"]).is_file()
        assert rows[Path(row["medoid"]).name]["cluster"] == row["cluster"]
        assert 0 <= float(row["ambiguity"]) <= 1
    assert (tmp_path / "groups" / "clusters.html").is_file()
    assert len(list((tmp_path / "groups" / "thumbnails").iterdir())) == 48


def test_a_number_of_groups_is_kept_to_and_finer_means_more(run, photos, tmp_path):
    assert invoke("cluster", photos, "--model", run, "--clusters", 5, "--output", tmp_path / "a").exit_code == 0
    assert {row["cluster"] for row in table(tmp_path / "a").values()} == {"1", "2", "3", "4", "5"}
    n_clusters = []
    for options in (["--finer"] * 6, [], ["--coarser"] * 6):
        assert invoke("cluster", photos, "--model", run, *options, "--output", tmp_path / "a").exit_code == 0
        n_clusters.append(len({row["cluster"] for row in table(tmp_path / "a").values()}))
    assert n_clusters[0] > n_clusters[1] > n_clusters[2]
    wrong = invoke("cluster", photos, "--model", run, "--clusters", 5, "--finer", "--output", tmp_path / "a")
    assert wrong.exit_code == 2
    assert "pass one of --clusters, --finer and --coarser" in wrong.stderr


def test_decisions_are_kept_to_also_with_new_photos_new_names_and_another_model(run, photos, tmp_path):
    made = decisions(
        photos,
        ("same", ["00.png", "20.png"]),
        ("different", ["04.png", "05.png"]),
        ("name", ["00.png"], "robin"),
        ("reject", ["30.png"]),
    )

    def check(output, names):
        rows = table(output)
        one, two = rows[names["00.png"]], rows[names["20.png"]]
        assert one["cluster"] == two["cluster"] != ""
        assert one["name"] == two["name"] == "robin"
        assert rows[names["04.png"]]["cluster"] != rows[names["05.png"]]["cluster"]
        assert rows[names["30.png"]]["cluster"] == ""

    names = {f"{i:02}.png": f"{i:02}.png" for i in range(48)}
    arguments = ["--output", tmp_path / "groups", "--decisions", made]
    result = invoke("cluster", photos, "--model", run, *arguments)
    assert result.exit_code == 0, result.stderr
    assert "1 rejected" in result.stdout
    check(tmp_path / "groups", names)
    for name in ("20.png", "04.png"):
        (photos / "moved").mkdir(exist_ok=True)
        (photos / name).rename(photos / "moved" / f"new {name}")
        names[name] = f"new {name}"
    Image.new("RGB", (36, 36), (9, 200, 30)).save(photos / "green.png")
    assert "(1 embedded now)" in invoke("cluster", photos, "--model", run, *arguments).stdout
    check(tmp_path / "groups", names)
    assert invoke("cluster", photos, *arguments).exit_code == 0  # the packaged network
    check(tmp_path / "groups", names)


def test_names_written_into_the_table_are_kept_to_and_never_overwritten(run, photos, tmp_path):
    output = tmp_path / "groups"
    arguments = ["cluster", photos, "--model", run, "--output", output]
    assert invoke(*arguments).exit_code == 0
    file = output / "clusters.csv"
    names = {"00.png": "robin", "20.png": "robin", "04.png": "wren", "05.png": "owl"}  # two merged, two split
    header, *lines = file.read_text().splitlines()
    lines = [f"{line},{names.get(Path(line.split(',')[0]).name, '')}" for line in lines]
    lines[30] = f"{lines[30].split(',')[0]},,,,"  # rejected
    edited = "\ufeff" + "\r\n".join([f"{header},name", *lines]) + "\r\n"  # as a spreadsheet saves it
    file.write_bytes(edited.encode())
    refused = invoke(*arguments)
    assert refused.exit_code == 2
    assert "clusters.csv was changed since it was written: keep to it with `facetric cluster … --decisions " in refused.stderr
    assert file.read_bytes() == edited.encode()

    def check():
        rows = table(output)
        assert rows["00.png"]["cluster"] == rows["20.png"]["cluster"]
        assert [rows[name]["name"] for name in names] == list(names.values())
        assert (rows["30.png"]["cluster"], rows["30.png"]["name"]) == ("", "")

    for new in ("a.png", "b.png"):  # the table that it wrote itself goes on
        result = invoke(*arguments, "--decisions", file)
        assert result.exit_code == 0, result.stderr
        check()
        Image.new("RGB", (36, 36), (9, 200, ord(new[0]))).save(photos / new)
    found = invoke(*arguments)  # the output keeps what was decided
    assert found.exit_code == 0, found.stderr
    check()
    (output / "collection.sqlite").unlink()
    forgotten = invoke(*arguments)
    assert forgotten.exit_code == 2
    assert (
        "clusters.csv has names, and no decisions are given: pass decisions.json, or keep to it with `facetric cluster … --dec"
        in forgotten.stderr
    )
    check()
    both = invoke(*arguments, "--decisions", file, "--decisions", decisions(photos, ("different", ["08.png", "09.png"])))
    assert both.exit_code == 0, both.stderr
    check()
    assert table(output)["08.png"]["cluster"] != table(output)["09.png"]["cluster"]
    shutil.copy(file, tmp_path / "elsewhere.csv")
    (tmp_path / "groups" / "clusters.csv").unlink()
    moved = invoke(*arguments, "--decisions", tmp_path / "elsewhere.csv")
    assert moved.exit_code == 2
    assert "none is where its path leads: paths start from the folder of the table" in moved.stderr


def test_killed_before_the_table_is_there_the_old_one_is_not_taken_for_edited(run, photos, tmp_path, monkeypatch):
    arguments = ["cluster", photos, "--model", run, "--output", tmp_path / "groups"]
    assert invoke(*arguments).exit_code == 0
    store = tmp_path / "groups" / "collection.sqlite"

    def killed(*_):
        raise RuntimeError("killed")

    for known in (True, False):
        if not known:
            store.unlink()  # nothing is known of the table
        with monkeypatch.context() as patched:
            patched.setattr(PhotoGroups, "save_table", killed)
            for options in (["--coarser"], ["--finer"]):
                assert "killed" in invoke(*arguments, *options).stderr
        result = invoke(*arguments)
        assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["empty"], "there are no photos in empty: pass a folder that holds some, nested or not"),
        (["texts"], "there are no photos in texts, only 2 files of other kinds: pass a folder that holds some"),
        (["nowhere"], "nowhere does not exist: pass a photo, or a folder of photos"),
        (["photos", "--copy-to", "photos/sorted"], "photos/sorted lies in the folder of photos"),
        (["photos", "--link-to", "texts/a.txt"], "texts/a.txt is a file: pass a folder (--link-to)"),
        (["photos", "--decisions", "texts/a.csv"], "texts/a.csv must have the columns path, cluster and name"),
        (["photos", "--decisions", "no.csv"], "no.csv does not exist: pass clusters.csv, or leave it out"),
    ],
)
def test_what_cannot_work_is_one_line_before_anything_is_embedded(run, photos, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "texts").mkdir()
    for name in ("a.txt", "a.csv"):
        (tmp_path / "texts" / name).write_text("words\n")
    result = invoke("cluster", *arguments, "--model", run, "--output", "groups")
    lines = [line for line in result.stderr.splitlines() if "loading" not in line]
    assert (result.exit_code, message in lines[0], len(lines)) == (2, True, 1), result.stderr
    assert not (tmp_path / "groups").exists()


def test_more_groups_than_photos_are_refused_with_the_option(run, photos, tmp_path):
    result = invoke("cluster", photos, "--model", run, "--clusters", 500, "--output", tmp_path / "groups")
    assert result.exit_code == 2
    assert "must be an integer between 1 and the number of points (48): change it (--clusters)" in result.stderr


def test_contradictory_decisions_are_one_line(run, photos, tmp_path):
    made = decisions(photos, ("same", ["00.png", "01.png"]), ("different", ["01.png", "00.png"]))
    result = invoke("cluster", photos, "--model", run, "--output", tmp_path / "groups", "--decisions", made)
    assert result.exit_code == 2
    (line,) = (line for line in result.stderr.splitlines() if "loading" not in line)
    assert "01.png and 00.png are different, and also the same" in line


def test_named_groups_are_classes_to_train_on_and_the_others_are_left_out(run, photos, tmp_path):
    invoke("cluster", photos, "--model", run, "--output", tmp_path / "groups")
    with pytest.raises(ValueError, match="has no names to train on"):
        read_csv(tmp_path / "groups" / "clusters.csv")
    made = decisions(photos, ("name", ["00.png"], "robin"), ("name", ["40.png"], "wren"))
    invoke("cluster", photos, "--model", run, "--output", tmp_path / "groups", "--decisions", made)
    found = read_csv(tmp_path / "groups" / "clusters.csv", test_fraction=0.5)
    assert set(found.class_names) == {"robin", "wren"}
    assert 2 <= len(found.labels) < 48


def test_folders_hold_every_photo_once_and_nothing_is_lost_when_groups_change(run, photos, tmp_path):
    before = {path.name: path.read_bytes() for path in photos.iterdir()}
    target = tmp_path / "sorted"
    (target / "robin").mkdir(parents=True)
    (target / "robin" / "00.png").write_text("mine")
    common = ["cluster", photos, "--model", run, "--output", tmp_path / "groups", "--copy-to", target]
    assert invoke(*common).exit_code == 0
    made = decisions(photos, ("name", ["00.png"], "robin"), ("different", ["04.png", "05.png"]), ("reject", ["30.png"]))
    (photos / "47.png").unlink()  # the copy is the only one left
    assert invoke(*common, "--decisions", made).exit_code == 0
    again = sorted(str(path.relative_to(target)) for path in target.rglob("*"))
    assert invoke(*common, "--decisions", made).exit_code == 0
    assert sorted(str(path.relative_to(target)) for path in target.rglob("*")) == again
    assert (target / "robin" / "00.png").read_text() == "mine"
    assert (target / "robin" / "00 (2).png").read_bytes() == before["00.png"]
    found = [path.read_bytes() for path in target.rglob("*.png") if path.read_bytes() != b"mine"]
    assert sorted(found) == sorted(before.values())  # also the rejected one and the deleted one, in their old places
    assert {path.name for path in photos.iterdir()} == before.keys() - {"47.png"}


def test_links_lead_to_the_originals(run, photos, tmp_path):
    common = ["cluster", photos, "--model", run, "--output", tmp_path / "groups"]
    assert invoke(*common, "--link-to", tmp_path / "links").exit_code == 0
    links = list((tmp_path / "links").rglob("*.png"))
    assert {path.resolve() for path in links} == {path.resolve() for path in photos.iterdir()}
    wrong = invoke(*common, "--link-to", photos / "links")
    assert wrong.exit_code == 2
    assert "choose a place outside (--link-to)" in wrong.stderr


@pytest.mark.parametrize("name", ["clusters.csv", "clusters.html"])
def test_a_file_that_it_did_not_write_is_not_touched(run, photos, tmp_path, name):
    (tmp_path / "groups").mkdir()
    (tmp_path / "groups" / name).write_text("mine")
    result = invoke("cluster", photos, "--model", run, "--output", tmp_path / "groups")
    assert result.exit_code == 2
    assert f"{name} exists and was not written by `facetric cluster`" in result.stderr
    assert (tmp_path / "groups" / name).read_text() == "mine"


def test_an_output_among_the_photos_is_not_clustered(run, photos):
    for _ in range(2):
        result = invoke("cluster", photos, "--model", run, "--output", photos / "groups")
        assert "48 photos: " in result.stdout


def test_names_that_were_all_taken_back_are_in_nobodys_way(run, photos, tmp_path):
    arguments = ["cluster", photos, "--model", run, "--output", tmp_path / "groups"]
    made = decisions(photos, ("name", ["00.png"], "robin"))
    assert invoke(*arguments, "--decisions", made).exit_code == 0
    record = json.loads(made.read_text())
    paths = {photo["content"]: [photo["path"]] for photo in record["photos"]}
    open_collection(tmp_path / "groups").decide(record | {"decisions": [], "removed": record["decisions"]}, paths)
    again = invoke(*arguments)
    assert again.exit_code == 0, again.stderr
    assert "name" not in table(tmp_path / "groups")["00.png"]


def test_copies_are_in_one_group_and_marked_on_the_page(run, photos, tmp_path):
    shutil.copy(photos / "00.png", photos / "00 again.png")
    photo(7, (320, 240)).save(photos / "large.jpg", quality=90)
    photo(7, (320, 240)).resize((160, 120)).save(photos / "small.jpg", quality=60)
    invoke("cluster", photos, "--model", run, "--output", tmp_path / "groups")
    rows = table(tmp_path / "groups")
    assert rows["00.png"]["cluster"] == rows["00 again.png"]["cluster"]
    page = (tmp_path / "groups" / "clusters.html").read_text()
    about = json.loads(page.split('id="data-about">')[1].split("</script>")[0])
    assert ["00 again.png", "00.png"] in about["paths"]
    assert about["copies"][about["paths"].index(["small.jpg"])] == about["paths"].index(["large.jpg"])


def test_from_python_the_same_groups_without_a_page(run, photos, tmp_path):
    invoke("cluster", photos, "--model", run, "--output", tmp_path / "groups")
    collection = open_collection(tmp_path / "index", facetric.load(run))
    collection.add(photos)
    found = collection.cluster()
    rows = table(tmp_path / "groups")
    assert [str(cluster + 1) for cluster in found.clusters] == [row["cluster"] for row in rows.values()]
    assert found.n_groups + found.n_alone == len(found.medoids)
    assert found.members(0)[0] == found.photos[found.medoids[0]]
    assert sum(len(found.members(cluster)) for cluster in range(len(found.medoids))) == 48
    assert sorted(path.name for path in tmp_path.iterdir()) == ["groups", "index", "kinds", "photos"]
    assert not (tmp_path / "index" / "clusters.html").exists()


@pytest.mark.slow
def test_killed_again_and_again_it_ends_as_if_it_had_never_been(run, photos, tmp_path):
    command = [
        sys.executable,
        "-m",
        "facetric",
        "cluster",
        str(photos),
        "--model",
        str(run),
        "--output",
        str(tmp_path / "groups"),
    ]
    command += ["--copy-to", str(tmp_path / "sorted")]
    assert invoke(*command[3:-4], "--output", tmp_path / "whole", "--copy-to", tmp_path / "once").exit_code == 0
    started = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    whole = time.monotonic() - started
    shutil.rmtree(tmp_path / "groups")
    shutil.rmtree(tmp_path / "sorted")
    for part in (0.5, 0.65, 0.8, 0.9, 0.97):
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(part * whole)
        child.send_signal(signal.SIGKILL)
        child.wait()
    subprocess.run(command, check=True, capture_output=True)
    assert (tmp_path / "groups" / "clusters.csv").read_bytes() == (tmp_path / "whole" / "clusters.csv").read_bytes()
    for one, two in (("sorted", "once"), ("groups/thumbnails", "whole/thumbnails")):
        files = [
            {p.relative_to(tmp_path / x): p.read_bytes() for p in (tmp_path / x).rglob("*") if p.is_file()} for x in (one, two)
        ]
        assert files[0] == files[1]
    assert not [name for name in os.listdir(tmp_path / "groups") if name.endswith(".part")]


def test_one_photo_is_one_photo_and_expects_nothing(run, photos, tmp_path):
    (tmp_path / "one").mkdir()
    shutil.copy(photos / "00.png", tmp_path / "one")
    done = invoke("cluster", tmp_path / "one", "--model", run, "--output", tmp_path / "groups")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("1 photo: 0 groups, 1 alone (1 embedded now)\nmodel: ")
    assert "%" not in done.stdout
    shutil.copy(photos / "00.png", tmp_path / "one" / "copy.png")
    assert (
        "2 photos: 1 group, 0 alone"
        in invoke("cluster", tmp_path / "one", "--model", run, "--output", tmp_path / "groups").stdout
    )
    assert "<title>one in 1 group</title>" in (tmp_path / "groups" / "clusters.html").read_text()


def test_names_given_to_earlier_photos_teach_which_of_others_belong_together(run, photos, tmp_path):
    new, album, output = tmp_path / "new", tmp_path / "album", tmp_path / "groups"
    new.mkdir()
    for i in range(24, 48):
        (photos / f"{i:02}.png").rename(new / f"{i:02}.png")
    named = decisions(photos, *(("name", [f"{4 * k + j:02}.png" for j in range(4)], f"kind {k}") for k in range(6)))
    assert invoke("cluster", photos, "--model", run, "--output", album).exit_code == 0
    refused = invoke("cluster", new, "--model", run, "--output", output, "--decisions", album)
    assert (refused.exit_code, "teach what belongs together; " in refused.stderr, "has 0: name groups" in refused.stderr) == (
        2, True, True
    )  # fmt: skip
    assert not output.exists()
    assert invoke("cluster", photos, "--model", run, "--output", album, "--decisions", named).exit_code == 0
    result = invoke("cluster", new, "--model", run, "--output", output, "--decisions", album)
    assert result.exit_code == 0, result.stderr
    assert "and from 6 names that you gave" in result.stdout
    collection = open_collection(album, facetric.load(run))
    found = collection.named()
    collection.close()
    assert sorted(found) == [f"kind {k}" for k in range(6)]
    assert {len(vectors) for vectors in found.values()} == {4}
    assert not any(row.get("name") for row in table(output).values())  # they are names of other photos
