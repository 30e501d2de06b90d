"""`--same-within` and `--different-within`: what a table says about photos becomes links."""

import csv
import shutil

import pytest
from typer.testing import CliRunner

from evaluation.run_folders import make_pictures
from facetric.cli.main import app
from facetric.photos import open_collection, read_links


@pytest.fixture
def photos(tmp_path):
    """8 photos of 2 kinds, and sightings.csv beside them: a burst over both kinds, one picture that was cut in two."""
    make_pictures(tmp_path / "kinds", n_classes=2)
    (tmp_path / "photos").mkdir()
    for i, file in enumerate(sorted((tmp_path / "kinds").glob("*/*"))[:8]):
        shutil.copy(file, tmp_path / "photos" / f"{i}.png")
    write(tmp_path / "sightings.csv", [("0.png", "a", ""), ("7.png", "a", ""), ("1.png", "", "x"), ("2.png", "", "x")])
    return tmp_path / "photos"


def write(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("path", "burst", "frame"), *((f"photos/{name}", *rest) for name, *rest in rows)])


def test_a_burst_is_one_group_and_two_crops_of_one_picture_are_two(photos):
    options = ["--same-within", "burst", "--different-within", "frame"]
    command = ["cluster", str(photos), "--output", str(photos.parent / "album"), "--table", str(photos.parent / "sightings.csv")]
    result = CliRunner().invoke(app, [*command, *options])
    assert result.exit_code == 0, result.output
    with (photos.parent / "album" / "clusters.csv").open(newline="") as file:
        cluster = {row["path"].rsplit("/", 1)[-1]: row["cluster"] for row in csv.DictReader(file)}
    assert cluster["0.png"] == cluster["7.png"]
    assert cluster["1.png"] != cluster["2.png"]
    kept = open_collection(photos.parent / "album").decisions()
    assert sorted(decision.do for decision in kept.decisions) == ["different", "same"]
    again = CliRunner().invoke(app, [*command, *options])
    assert again.exit_code == 0, again.output
    assert open_collection(photos.parent / "album").decisions() == kept  # said twice, kept once


def test_all_pairs_of_one_picture_are_different(photos):
    write(photos.parent / "sightings.csv", [(f"{i}.png", "", "x") for i in range(4)])
    found = read_links(photos.parent / "sightings.csv", photos, different_within="frame")
    assert len({frozenset(decision.photos) for decision in found.decisions}) == 6


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--same-within", "brust"], "no column 'brust'; its columns are path, burst, frame"), ([], "pass --same-within")],
)
def test_a_table_that_says_nothing_is_one_line(photos, options, message):
    command = ["cluster", str(photos), "--output", str(photos.parent / "album"), "--table", str(photos.parent / "sightings.csv")]
    result = CliRunner().invoke(app, [*command, *options])
    assert result.exit_code == 2
    assert message in result.output
    assert not (photos.parent / "album").exists()


def test_columns_without_a_table_are_one_line(photos):
    result = CliRunner().invoke(app, ["cluster", str(photos), "--output", str(photos.parent / "album"), "--same-within", "burst"])
    assert result.exit_code == 2
    assert "pass --table FILE.csv" in result.output


def test_a_table_whose_photos_are_elsewhere_is_one_line(photos):
    (photos.parent / "elsewhere").mkdir()
    table = shutil.move(photos.parent / "sightings.csv", photos.parent / "elsewhere")
    with pytest.raises(ValueError, match="none is where its path leads"):
        read_links(table, photos, same_within="burst")
