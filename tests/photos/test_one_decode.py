"""A photo is decoded once and embedded once, whatever is asked about it, in whichever order; an output of cluster is an index."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from typer.testing import CliRunner

from facetric.cli.main import app
from facetric.embedder import Embedder
from facetric.images import decoding
from facetric.photos import Decisions, find_duplicates, ingest, open_collection
from photos.photo_files import photo, write_photos


def invoke(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.stderr
    return result


@pytest.fixture
def counted(monkeypatch):
    """How many files were decoded, and how many images embedded, since it was asked last."""
    counts = {"decoded": 0, "embedded": 0}
    decode, encode = decoding.decode_image, Embedder.encode

    def counting_decode(*arguments, **options):
        counts["decoded"] += 1
        return decode(*arguments, **options)

    def counting_encode(self, images, **options):
        counts["embedded"] += len(images)
        return encode(self, images, **options)

    for module in (decoding, ingest):
        monkeypatch.setattr(module, "decode_image", counting_decode)
    monkeypatch.setattr(Embedder, "encode", counting_encode)

    def since():
        found = tuple(counts.values())
        counts.update(dict.fromkeys(counts, 0))
        return found

    return since


def test_cluster_decodes_and_embeds_once_and_what_follows_does_not(run, tmp_path, counted):
    photos, album = tmp_path / "photos", tmp_path / "album"
    write_photos(photos, 12)
    cluster = ["cluster", photos, "--output", album, "--model", run, "--clusters", 3]
    invoke(*cluster)
    assert counted() == (12, 12)
    invoke(*cluster)
    assert counted() == (0, 0)
    invoke("index", "add", album, photos)
    assert counted() == (0, 0)
    assert "12 photos" in invoke("index", "status", album).stdout
    invoke("duplicates", photos, "--output", album, "--no-look-alikes")
    assert counted() == (0, 0)
    photo(99).save(photos / "new.jpg")
    invoke(*cluster)
    assert counted() == (1, 1)


def test_a_clustered_folder_is_searched_by_embedding_the_query_alone(run, tmp_path, counted):
    photos, album = tmp_path / "photos", tmp_path / "album"
    paths = write_photos(photos, 12)
    invoke("cluster", photos, "--output", album, "--model", run, "--clusters", 3)
    counted()
    (match,) = json.loads(invoke("search", album, photos / paths[4], "--json", "--at-least", -1).stdout)
    assert counted() == (1, 1)
    assert match["hits"][0]["path"] == str(photos / paths[4])
    assert match["hits"][0]["similarity"] == pytest.approx(1, abs=1e-5)


def test_duplicates_decode_once_and_then_never_again(model, tmp_path, counted):
    photos, album = tmp_path / "photos", tmp_path / "album"
    paths = write_photos(photos, 12)
    shutil.copy(photos / paths[0], photos / "copy.jpg")
    first = find_duplicates(photos, model, collection=album)
    assert counted() == (13, 12 + 13)  # the copies are altered photos, at most a hundred, to measure what is alike
    second = find_duplicates(photos, model, collection=album)
    assert counted() == (0, 0)
    assert (first.n_photos, first.n_copies, len(first.of_kind("exact"))) == (13, 1, 1)
    assert [group.kind for group in second.groups] == [group.kind for group in first.groups]
    assert second.similarity == first.similarity
    photo(99).save(photos / "new.jpg")
    find_duplicates(photos, model, collection=album)
    assert counted() == (1, 1)


def test_decisions_stay_in_the_output_and_are_found_without_an_option(run, tmp_path):
    photos, album, saved = tmp_path / "photos", tmp_path / "album", tmp_path / "saved.json"
    paths = write_photos(photos, 8)
    cluster = ["cluster", photos, "--output", album, "--model", run, "--clusters", 3]
    invoke(*cluster)
    content = next((album / "thumbnails").iterdir()).stem
    record = {"format": "facetric decisions 1", "photos": [{"content": content, "path": paths[0]}]}
    saved.write_text(json.dumps(record | {"decisions": [{"do": "reject", "photos": [0]}]}))
    assert "1 rejected" in invoke(*cluster, "--decisions", saved).stdout
    saved.unlink()
    assert "1 rejected" in invoke(*cluster).stdout
    assert [one.do for one in open_collection(album).decisions().decisions] == ["reject"]


def test_an_index_that_one_thread_opened_is_searched_by_others(model, tmp_path):
    paths = write_photos(tmp_path / "photos", 12)
    index = open_collection(tmp_path / "i", model)
    index.add(tmp_path / "photos")
    files = [tmp_path / "photos" / path for path in paths]
    assert len(index.entries()) == 12  # opened here
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda file: index.search(file, top=1, at_least=-1)[0].hits[0].entry.path, files * 3))
    assert found == [str(file) for file in files * 3]
    index.close()


def test_a_decisions_file_beside_an_album_is_taken_over_once_and_what_it_replaces_is_kept(run, tmp_path):
    photos, album = tmp_path / "photos", tmp_path / "album"
    write_photos(photos, 8)
    cluster = ["cluster", photos, "--output", album, "--model", run, "--clusters", 3]
    invoke(*cluster)
    contents = sorted(path.stem for path in (album / "thumbnails").iterdir())

    def decided(*rejected):
        listed = [{"content": content, "path": ""} for content in rejected]
        rows = [{"do": "reject", "photos": [place]} for place in range(len(rejected))]
        return {"format": "facetric decisions 1", "photos": listed, "decisions": rows}

    (album / "decisions.json").write_text(json.dumps(decided(*contents[:2])))  # as 0.2 kept them
    assert "2 rejected" in invoke(*cluster).stdout
    collection = open_collection(album)
    collection.decide({**decided(contents[2]), "removed": []}, {content: [] for content in contents})
    assert "3 rejected" in invoke(*cluster).stdout  # the file is not read again
    (album / "decisions.json").write_text(json.dumps(decided(contents[5])))  # another one, saved on the page
    assert "1 rejected" in invoke(*cluster).stdout
    assert len(Decisions.read(album / "decisions-before.json").decisions) == 3


def test_another_model_keeps_the_vectors_of_the_first(run, tmp_path, counted):
    photos, album = tmp_path / "photos", tmp_path / "album"
    write_photos(photos, 8)
    cluster = ["cluster", photos, "--output", album, "--clusters", 3]
    invoke(*cluster, "--model", run)
    invoke(*cluster)
    assert counted() == (16, 16)
    assert open_collection(album).model.run is None
    invoke(*cluster, "--model", run)
    assert counted() == (0, 0)
    assert open_collection(album).model.run == str(run)


@pytest.mark.parametrize("kind", ["album", "index"])
def test_what_0_2_wrote_is_refused_in_one_line(tmp_path, kind):
    """Files as `facetric cluster` and `facetric index add` of 0.2 leave them."""
    place = tmp_path / kind
    (place / "vectors").mkdir(parents=True)
    if kind == "album":
        (place / "clusters.csv").write_text("path,cluster,medoid,doubt\n")
        way_out = r"was written by facetric 0\.2 .*: run `facetric cluster PHOTOS --output "
    else:
        (place / "index.json").write_text('{"format": "facetric index 1"}')
        way_out = r"is an index of facetric 0\.2: make a new one with `facetric index add NEW PHOTOS --labels-from-folders`"
    for ask in (lambda: open_collection(place).status(), lambda: open_collection(place).remove(tmp_path)):
        with pytest.raises(ValueError, match=way_out) as refused:
            ask()
        assert len(str(refused.value).splitlines()) == 1
