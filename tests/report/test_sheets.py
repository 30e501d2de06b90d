"""The sheets: who is chosen, and that right and wrong can be told apart with and without color."""

import numpy as np
import pytest

from facetric.report.image_thumbnails import Thumbnails
from facetric.report.nearest_images import nearest_neighbors
from facetric.report.run_pictures import draw_run
from facetric.report.selection import cluster_medoids, confused_pairs, worst_queries
from facetric.report.sheets import Row, Tile, cluster_rows, confusion_rows, draw_sheet, retrieval_rows
from facetric.report.style import RIGHT, WRONG

NAMES = ["ant <b>", 'bee "x"', "cat 🐈", "dog"]


@pytest.fixture
def embedded():
    """Four classes, the last two on top of each other."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 6)
    centers = np.array([[0.0, 0], [9, 0], [0, 9], [0, 9]])
    return (centers[labels] + 0.2 * rng.normal(size=(24, 2))).astype(np.float32), labels


def test_the_worst_queries_are_those_that_find_least():
    labels = np.array([0, 0, 0, 1, 1, 1, 2])
    neighbors = np.array([[1, 2], [0, 3], [3, 4], [4, 5], [0, 3], [1, 2], [0, 1]])
    assert worst_queries(neighbors, labels, n_queries=9, one_per_class=False).tolist() == [2, 5, 4, 1]  # 6 is alone in its class
    assert worst_queries(neighbors, labels, n_queries=9).tolist() == [2, 5]


def test_the_most_confused_pair_is_counted_by_hand(embedded):
    vectors, labels = embedded
    found = nearest_neighbors(vectors, 3)
    (pair,) = confused_pairs(found.image_ids, found.distances, labels, n_pairs=5)
    expected = sum(labels[i] != labels[found.image_ids[i, 0]] for i in range(24))
    assert (pair.first, pair.second, pair.n_confusions, pair.n_queries) == (2, 3, expected, 12)
    for query, wrong in pair.examples:
        assert {labels[query], labels[wrong]} == {2, 3}
        assert found.image_ids[query, 0] == wrong


def test_the_medoid_has_the_least_sum_of_distances():
    rng = np.random.default_rng(2)
    vectors, assignment = rng.normal(size=(60, 3)), rng.integers(5, size=60)
    for cluster, medoid in cluster_medoids(vectors, assignment).items():
        members = np.flatnonzero(assignment == cluster)
        sums = [sum(np.linalg.norm(vectors[i] - vectors[j]) for j in members) for i in members]
        assert medoid == members[int(np.argmin(sums))]


def test_rows_mark_every_tile_by_its_class(embedded):
    vectors, labels = embedded
    found = nearest_neighbors(vectors, 8)
    for row in retrieval_rows(np.arange(24), found.image_ids, labels, NAMES):
        query, *others = row.tiles
        assert [tile.right for tile in others] == [labels[tile.image_id] == labels[query.image_id] for tile in others]
        assert all((tile.caption == "") == tile.right for tile in others)
    clusters = cluster_rows(vectors, labels, labels, NAMES)
    assert all(tile.right for row in clusters for tile in row.tiles)
    assert {len(row.tiles) for row in clusters} == {6}


def test_right_and_wrong_differ_in_color_and_in_shape():
    thumbnails = Thumbnails(np.zeros((2, 8, 8), np.uint8))
    marks = {}
    for right, color in ((True, RIGHT), (False, WRONG)):
        pixels = np.asarray(draw_sheet([Row("", (Tile(0, right=right),))], thumbnails, title="t", tile_size=60))
        framed = (pixels == color).all(axis=2)
        assert framed.sum() > 4 * 2 * 50
        rows, columns = np.nonzero(framed)
        top, right_edge = rows.min(), columns.max()
        marks[right] = (pixels[top : top + 12, right_edge - 11 : right_edge + 1] == 255).all(axis=2)
        assert marks[right].any()
    assert (marks[True] != marks[False]).any()


def test_a_sheet_without_rows_still_opens_and_long_names_do_not_run_into_their_neighbors():
    thumbnails = Thumbnails(np.zeros((2, 8, 8), np.uint8))
    assert draw_sheet([], thumbnails, title="Worst queries").height > 60
    narrow = draw_sheet([Row("r", (Tile(0, "i" * 500, False), Tile(1, "", True)))], thumbnails, title="t")
    short = draw_sheet([Row("r", (Tile(0, "i", False), Tile(1, "", True)))], thumbnails, title="t")
    assert narrow.size == short.size
    with pytest.raises(ValueError, match="72 is typical"):
        draw_sheet([], thumbnails, title="t", tile_size=8)


@pytest.mark.parametrize(("n", "n_classes"), [(1, 1), (2, 1), (5, 5), (24, 4)])
def test_a_run_of_any_size_gets_the_pictures_it_can_have(tmp_path, n, n_classes):
    rng = np.random.default_rng(n)
    vectors, labels = rng.normal(size=(n, 3)).astype(np.float32), np.arange(n) % n_classes
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    made = draw_run(tmp_path, vectors, labels, [*NAMES, "e"], Thumbnails(rng.integers(0, 255, (n, 8, 8), dtype=np.uint8)))
    assert {"curves.png", "tsne_map.png"} <= {path.name for path in made}
    assert all(path.stat().st_size > 0 for path in made)


def test_confusions_of_a_perfect_embedding_are_none(embedded):
    vectors, labels = embedded
    keep = labels < 2
    found = nearest_neighbors(vectors[keep], 3)
    assert confusion_rows(found.image_ids, found.distances, labels[keep], NAMES) == []
