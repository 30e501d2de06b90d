"""The map: nothing covers anything, everything is as near to its point as the free cells allow, odd inputs still give a map."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from facetric.images import open_image
from facetric.metrics import nearest
from facetric.report.figures import write_png
from facetric.report.map import cluster_medoids, draw_map, place_on_grid, tsne_positions, worst_queries
from facetric.report.sprites import Thumbnails
from report.report_runs import thumbnails_of


def clouds(n, rng):
    """Tight clumps, spread points and duplicates together."""
    clumps = rng.normal(size=(4, 2))[rng.integers(4, size=n)] + 0.02 * rng.normal(size=(n, 2))
    spread = rng.normal(size=(n, 2))
    points = np.where(rng.random((n, 1)) < 0.5, clumps, spread)
    points[: n // 5] = points[0]
    return points


def shifts(placed):
    """(n,) how far each point moved, in cells."""
    return np.hypot(*(placed.cells - placed.points).T)


@given(n=st.integers(1, 80), seed=st.integers(0, 10_000), fill=st.sampled_from([0.2, 0.4, 0.9, 1.0]))
def test_no_two_images_share_a_cell_and_no_free_cell_is_nearer(n, seed, fill):
    placed = place_on_grid(clouds(n, np.random.default_rng(seed)), fill=fill)
    taken = {tuple(cell) for cell in placed.cells.tolist()}
    assert len(taken) == n
    assert (placed.cells >= 0).all()
    assert (placed.cells < [placed.n_columns, placed.n_rows]).all()
    free = np.array(
        [(c, r) for c in range(placed.n_columns) for r in range(placed.n_rows) if (c, r) not in taken], dtype=float
    ).reshape(-1, 2)
    for point, shift in zip(placed.points, shifts(placed), strict=True):
        assert not (np.hypot(*(free - point).T) < shift - 1e-9).any()


def test_equal_points_fill_a_disc_around_their_place():
    placed = place_on_grid(np.zeros((200, 2)))
    assert shifts(placed).max() < np.sqrt(200 / np.pi) + 1.5


def test_the_map_keeps_left_and_right_up_and_down():
    positions = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0], [10.0, 10.0]])
    placed = place_on_grid(positions)
    left_low, right_low, left_high, right_high = placed.cells.tolist()
    assert left_low[0] < right_low[0]
    assert left_high[0] < right_high[0]
    assert left_high[1] < left_low[1]  # rows count downwards


@pytest.mark.parametrize("channels", [(), (3,)])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 40])
def test_a_map_of_any_size_shows_every_image_once(n, channels):
    rng = np.random.default_rng(n)
    pictures = np.broadcast_to((10 + 5 * np.arange(n)).reshape(n, 1, 1, *([1] * len(channels))), (n, 8, 8, *channels)).astype(
        np.uint8
    )
    positions = tsne_positions(rng.normal(size=(n, 6)))
    drawn, corners = draw_map(positions, thumbnails_of(pictures), thumbnail_size=12)
    placed = place_on_grid(positions)
    assert drawn.size == (placed.n_columns * 13 + 2 * 6, placed.n_rows * 13 + 2 * 6)
    pixels = np.asarray(drawn)
    for image_id, (left, top) in enumerate(corners.tolist()):
        tile = pixels[top : top + 12, left : left + 12]
        assert tile.shape == (12, 12, 3)
        assert (tile == 10 + 5 * image_id).all()  # uncovered to the last pixel
    assert (pixels != 255).any(axis=2).sum() == n * 12 * 12


def test_duplicates_and_a_single_class_give_a_finite_map():
    vectors = np.ones((30, 4), dtype=np.float32)
    positions = tsne_positions(vectors)
    assert np.isfinite(positions).all()
    _, corners = draw_map(positions, thumbnails_of(np.zeros((30, 8, 8), np.uint8)))
    assert len({tuple(corner) for corner in corners.tolist()}) == 30


def test_tsne_is_repeatable_and_keeps_separate_groups_apart():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 40)
    vectors = 8 * np.eye(4)[labels] + 0.3 * rng.normal(size=(160, 4))
    positions = tsne_positions(vectors, seed=3)
    np.testing.assert_array_equal(positions, tsne_positions(vectors, seed=3))
    found = nearest(positions, 5, metric="euclidean").rows
    assert (labels[found] == labels[:, None]).all()


def test_the_saved_file_opens_with_the_same_pixels(tmp_path):
    thumbnails = thumbnails_of(np.full((20, 8, 8), 9, np.uint8))
    drawn, _ = draw_map(np.random.default_rng(0).normal(size=(20, 2)), thumbnails, thumbnail_size=16)
    with Image.open(write_png(drawn, tmp_path / "new" / "map.png")) as opened:
        assert opened.size == drawn.size
        np.testing.assert_array_equal(np.asarray(opened), np.asarray(drawn))


def test_files_are_upright_and_a_broken_one_becomes_a_gray_tile(tmp_path):
    picture = Image.new("RGB", (40, 20), "red")
    picture.paste("blue", (0, 0, 20, 20))
    turned = Image.Exif()
    turned[0x0112] = 6  # turn by 90° to the right: the left half comes to the top
    picture.save(tmp_path / "a.jpg", exif=turned, quality=95)
    (tmp_path / "b.jpg").write_bytes(b"not a picture")
    names = ["a.jpg", "b.jpg", "missing.png"]
    thumbnails = Thumbnails(lambda image_id, size: open_image(tmp_path / names[image_id], at_least=size))
    red, _, blue = thumbnails.tile(0, 16).getpixel((8, 2))
    assert blue > 200 > red
    tiles = dict(thumbnails.tiles([0, 1, 2], 16))
    assert {tile.size for tile in tiles.values()} == {(16, 16)}
    assert thumbnails.missing == {1, 2}


def test_the_progress_of_the_map_reaches_its_end():
    calls = []
    tsne_positions(np.random.default_rng(0).normal(size=(20, 3)), progress=lambda *call: calls.append(call))
    assert [done for _, done, _ in calls] == sorted(done for _, done, _ in calls)
    assert calls[-1] == ("Map", 750, 750)


def test_the_worst_queries_are_those_that_find_least():
    labels = np.array([0, 0, 0, 1, 1, 1, 2])
    neighbors = np.array([[1, 2], [0, 3], [3, 4], [4, 5], [0, 3], [1, 2], [0, 1]])
    assert worst_queries(neighbors, labels).tolist() == [2, 5, 4, 1]  # 6 is alone in its class


def test_the_medoid_has_the_least_sum_of_distances():
    rng = np.random.default_rng(2)
    vectors, assignment = rng.normal(size=(60, 3)), rng.integers(5, size=60)
    for cluster, medoid in enumerate(cluster_medoids(vectors, assignment)):
        members = np.flatnonzero(assignment == cluster)
        sums = [sum(np.linalg.norm(vectors[i] - vectors[j]) for j in members) for i in members]
        assert medoid == members[int(np.argmin(sums))]
