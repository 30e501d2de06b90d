"""`embed`: views, resuming, several processes, and what it refuses."""

import numpy as np
import pytest
import torch
from PIL import Image

from facetric.embedder import Embeddings, build_network, embed
from facetric.embedder import embedding as embedding_module
from facetric.embedder.embedding import VIEWS, EvalCrops
from facetric.images import CenterCrop, Preprocessing


@pytest.fixture(scope="module")
def embedder():
    return build_network("glyphnet", dim=8, weights="none", seed=1)


@pytest.fixture(scope="module")
def pictures():
    return np.random.default_rng(0).integers(0, 256, size=(50, 36, 36), dtype=np.uint8)


def center_crops(embedder, pictures):
    spec = embedder.input_spec
    transform = CenterCrop(Preprocessing(size=36, crop=spec.size, mean=spec.mean, std=spec.std, channels=1))
    with torch.no_grad():
        return embedder.eval()(torch.from_numpy(transform(pictures))).numpy()


def test_one_view_is_the_center_crop_in_eval_mode(embedder, pictures):
    embedder.train()
    found = embed(embedder, pictures, labels=np.arange(50) % 5)
    assert embedder.training
    np.testing.assert_allclose(found.vectors, center_crops(embedder, pictures), atol=1e-5)
    assert found.source["views"] == "center crop"
    assert found.images[7] == "#7"


def test_flipped_pictures_have_the_same_mean_of_a_view_and_its_flip(embedder, pictures):
    both = embed(embedder, pictures, views=2).vectors
    np.testing.assert_allclose(both, embed(embedder, pictures[:, :, ::-1].copy(), views=2).vectors, atol=1e-5)
    expected = center_crops(embedder, pictures) + center_crops(embedder, pictures[:, :, ::-1].copy())
    np.testing.assert_allclose(both, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-5)


def test_ten_views_are_center_and_corners_with_their_flips():
    picture = np.arange(36, dtype=np.uint8).reshape(1, 6, 6)
    form = Preprocessing(size=6, crop=2, mean=(0.0,), std=(1 / 255,), channels=1)
    views = EvalCrops(form, 10)(picture).round().astype(int)[:, 0, 0].tolist()  # the first row of every view
    rows = [[14, 15], [0, 1], [4, 5], [24, 25], [28, 29]]
    assert views == rows + [row[::-1] for row in rows]


def test_files_are_stretched_and_cropped(tmp_path, embedder):
    rng = np.random.default_rng(0)
    paths = [tmp_path / f"{i}.png" for i in range(3)]
    for path in paths:
        Image.fromarray(rng.integers(0, 256, (40, 30), dtype=np.uint8)).save(path)
    found = embed(embedder, paths, labels=[0, 1, 1], size=36)
    assert found.images.tolist() == [str(path) for path in paths]
    assert found.vectors.shape == (3, 8)


def test_a_killed_embedding_goes_on_and_gives_the_same_vectors(tmp_path, embedder, pictures, monkeypatch):
    expected = embed(embedder, pictures, block_size=8).vectors
    n_made = 0
    whole_block = embedding_module._block

    def killed_after_three(*arguments):
        nonlocal n_made
        if n_made == 3:
            raise KeyboardInterrupt
        n_made += 1
        return whole_block(*arguments)

    monkeypatch.setattr(embedding_module, "_block", killed_after_three)
    with pytest.raises(KeyboardInterrupt):
        embed(embedder, pictures, block_size=8, folder=tmp_path)
    n_made = -10
    again = embed(embedder, pictures, block_size=8, folder=tmp_path).vectors
    assert n_made == -10 + 7 - 3  # 7 blocks in all
    np.testing.assert_array_equal(again, expected)


@pytest.mark.parametrize("damage", ["flip a bit", "truncate", "empty"])
def test_a_damaged_block_is_made_again(tmp_path, embedder, pictures, damage):
    expected = embed(embedder, pictures, block_size=8, folder=tmp_path).vectors
    for block in sorted(tmp_path.rglob("*.npy"))[2:4]:
        content = bytearray(block.read_bytes())
        content[len(content) // 2] ^= 1
        block.write_bytes({"flip a bit": content, "truncate": content[:-40], "empty": b""}[damage])
    np.testing.assert_array_equal(embed(embedder, pictures, block_size=8, folder=tmp_path).vectors, expected)


def test_blocks_of_another_model_or_view_are_not_used(tmp_path, embedder, pictures):
    first = embed(embedder, pictures, folder=tmp_path).vectors
    other = embed(build_network("glyphnet", dim=8, weights="none", seed=2), pictures, folder=tmp_path).vectors
    flipped = embed(embedder, pictures, folder=tmp_path, views=2).vectors
    changed = embed(embedder, 255 - pictures, folder=tmp_path).vectors
    assert not any(np.allclose(first, vectors) for vectors in (other, flipped, changed))
    np.testing.assert_array_equal(first, embed(embedder, pictures, folder=tmp_path).vectors)
    embedding_module.remove_blocks(tmp_path)
    assert not tmp_path.exists()


def test_fractions_of_processes_are_disjoint_and_rank_zero_has_all(tmp_path, embedder, pictures):
    labels = np.arange(50)
    shares = [embed(embedder, pictures, labels=labels, block_size=8, folder=tmp_path, rank=rank, world_size=3) for rank in (2, 1)]
    merged = embed(embedder, pictures, labels=labels, block_size=8, folder=tmp_path, rank=0, world_size=3)
    np.testing.assert_array_equal(merged.vectors, embed(embedder, pictures, block_size=8).vectors)
    np.testing.assert_array_equal(np.concatenate([shares[1].vectors, shares[0].vectors]), merged.vectors[16:])
    assert np.concatenate([shares[1].labels, shares[0].labels]).tolist() == list(range(16, 50))


def test_a_process_that_never_comes_is_missed(tmp_path, embedder, pictures):
    with pytest.raises(TimeoutError, match=r"4 of 7 blocks did not arrive.*run the command again"):
        embed(embedder, pictures, block_size=8, folder=tmp_path, rank=0, world_size=2, patience=0.3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"views": 3}, "views must be one of 1"),
        ({"labels": [1, 2]}, "got 2 for 50"),
        ({"rank": 2, "world_size": 2}, r"rank \(2\)"),
        ({"rank": 0, "world_size": 2}, "pass folder"),
        ({"batch_size": 0}, "at least 1"),
    ],
)
def test_bad_options_are_refused_with_the_rule_and_the_value(embedder, pictures, options, message):
    with pytest.raises(ValueError, match=message):
        embed(embedder, pictures, **options)


def test_no_images_and_small_images_are_refused(embedder, pictures):
    with pytest.raises(ValueError, match="no images"):
        embed(embedder, pictures[:0])
    with pytest.raises(ValueError, match="smaller than the backbone's crop"):
        embed(embedder, pictures[:, :20, :20])


def test_every_number_of_views_has_a_name():
    assert all(EvalCrops(Preprocessing(), n).name == name for n, name in VIEWS.items())


def test_embeddings_survive_their_file_and_a_wrong_file_is_refused(tmp_path):
    kept = Embeddings(np.ones((2, 3), dtype=np.float32), np.array([2**53 + 1, 4]), np.array(["a", "ü"]), {"views": "center crop"})
    kept.save(tmp_path / "embeddings.npz")
    found = Embeddings.load(tmp_path / "embeddings.npz")
    np.testing.assert_array_equal(found.vectors, kept.vectors)
    assert (found.labels.tolist(), found.images.tolist(), found.source) == (kept.labels.tolist(), ["a", "ü"], kept.source)
    (tmp_path / "embeddings.npz").write_text("no zip")
    with pytest.raises(ValueError, match="holds no embeddings"):
        Embeddings.load(tmp_path / "embeddings.npz")
    with pytest.raises(ValueError, match="equal length"):
        Embeddings(np.ones((2, 3), dtype=np.float32), np.array([1]), np.array(["a", "b"]))
