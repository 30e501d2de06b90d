"""Decisions about photos: kept by content, then by path; joined through photos that are gone; contradictions in one line."""

import json

import pytest

from facetric.files import checksummed
from facetric.photos.decisions import DecidedPhoto, Decision, Decisions

START = '{"format": "facetric decisions 1", "photos": [{"content": "a", "path": "a"}]'


def photos(names):
    return tuple(DecidedPhoto(content=name * 4, path=f"{name}.jpg") for name in names)


def decide(*rows):
    return Decisions(tuple(Decision(do, photos(names), *name) for do, names, *name in rows))


def constraints(found, names="abcdef"):
    return found.constraints([name * 4 for name in names], {f"{name}.jpg": name * 4 for name in names})


def test_same_and_different_become_links_between_points():
    found = constraints(decide(("same", "abc"), ("different", "ad")))
    assert found.must_link == ((0, 1), (0, 2))
    assert found.cannot_link == ((0, 3),)


def test_a_photo_that_is_gone_still_joins_the_others():
    found = constraints(decide(("same", "ax"), ("same", "xb"), ("different", "xc")))
    assert found.must_link == ((0, 1),)
    assert found.cannot_link == ((0, 2),)


def test_a_photo_of_other_content_is_found_by_its_path():
    found = decide(("same", "ab")).constraints(["new", "bbbb"], {"a.jpg": "new", "b.jpg": "bbbb"})
    assert found.must_link == ((0, 1),)


def test_a_renamed_photo_is_found_by_its_content():
    found = decide(("same", "ab")).constraints(["aaaa", "bbbb", "cccc"], {"x.jpg": "aaaa", "y.jpg": "bbbb", "a.jpg": "cccc"})
    assert found.must_link == ((0, 1),)


def test_photos_of_one_name_are_joined_and_those_of_two_names_are_not():
    found = constraints(decide(("name", "a", "robin"), ("name", "b", "robin"), ("name", "c", "wren")))
    assert found.must_link == ((0, 1),)
    assert found.cannot_link == ((0, 2),)
    assert found.names == {0: "robin", 2: "wren"}


def test_the_last_name_wins_and_an_empty_one_takes_it_away():
    found = constraints(decide(("name", "ab", "robin"), ("name", "a", "wren"), ("name", "b", "")))
    assert found.names == {0: "wren"}
    assert not found.must_link


def test_rejected_photos_have_no_links():
    found = constraints(decide(("same", "abc"), ("reject", "b"), ("different", "bd")))
    assert found.rejected == {1}
    assert found.must_link == ((0, 2),)
    assert found.cannot_link == ((0, 3),)  # through what it is the same as


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((("same", "ab"), ("same", "bc"), ("different", "ac")), "a.jpg and c.jpg are different, and also the same"),
        ((("name", "a", "robin"), ("name", "b", "wren"), ("same", "ab")), "a.jpg is named 'robin' and b.jpg 'wren'"),
        ((("name", "ab", "robin"), ("different", "ab")), "a.jpg and b.jpg are different, and also the same"),
        ((("same", "ax"), ("same", "xb"), ("different", "ab")), "a.jpg and b.jpg are different"),
    ],
)
def test_contradictions_are_one_line_that_names_the_photos(rows, message):
    with pytest.raises(ValueError, match="decisions contradict each other") as caught:
        constraints(decide(*rows))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_holds_every_photo_once_and_reads_back(tmp_path):
    found = decide(("same", "abc"), ("different", "ad"), ("name", "a", "robin"), ("reject", "e"))
    (tmp_path / "decisions.json").write_text(json.dumps(found.as_dict()))
    assert len(found.as_dict()["photos"]) == 5
    assert Decisions.read(tmp_path / "decisions.json") == found


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "null",
        '{"format": "facetric decisions 9"}',
        START + "}",
        START + ', "decisions": [{"do": "same", "photos": [0, 1]}]}',
        START + ', "decisions": [{"do": "eat", "photos": []}]}',
        START + ', "decisions": [{"do": "same", "photos": [0, 0]}]}',
        START + ', "decisions": [{"do": "reject", "photos": [-1]}]}',
    ],
)
def test_another_file_is_refused_in_one_line_with_the_option(tmp_path, text):
    (tmp_path / "decisions.json").write_text(text)
    with pytest.raises(ValueError, match=r"decisions\.json .*save it on the page again") as caught:
        Decisions.read(tmp_path / "decisions.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("record", [None, [], "facetric decisions 1", {}])
def test_what_is_no_record_of_decisions_is_refused_in_one_line(record):
    with pytest.raises(ValueError, match='must be a JSON object with "format": "facetric decisions 1"; got'):
        Decisions.from_dict(record)


@pytest.mark.parametrize(("do", "names"), [("same", "a"), ("different", "abc"), ("name", ""), ("eat", "ab")])
def test_a_decision_that_means_nothing_cannot_be_made(do, names):
    with pytest.raises(ValueError, match=r"has (a|the unknown) decision '"):
        Decision(do, photos(names))


def test_a_flipped_bit_in_the_file_of_a_service_is_noticed(tmp_path):
    file = tmp_path / "decisions.json"
    name = Decision("name", (DecidedPhoto("0" * 64, "a.jpg"),), "owl")
    file.write_bytes(checksummed(Decisions((name,)).as_dict()))
    assert Decisions.read(file).decisions == (name,)
    file.write_bytes(file.read_bytes().replace(b"owl", b"own"))
    with pytest.raises(ValueError, match=r'is damaged .its checksum is wrong.: restore it, or remove its "sha256" if the change'):
        Decisions.read(file)
