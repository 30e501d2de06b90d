"""The loop through the network: what it gives, threads, devices; and the file of vectors."""

import threading
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image

from facetric.embedder import Vectors, build_network, encode
from facetric.embedder.encode import outputs_in_order, usable_device
from facetric.images import Arrays, Files


def threads_of_a_new_thread() -> int:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return found[0]


@pytest.fixture
def four_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def test_embedding_in_several_threads_at_once_leaves_torch_its_threads(four_threads) -> None:
    images = Arrays(np.zeros((64, 32, 32), dtype=np.uint8))
    network = build_network("glyphnet", weights="none").eval().for_inference()

    def work() -> None:
        for _ in range(4):
            encode(network, images)

    at_once = [threading.Thread(target=work) for _ in range(3)]
    for thread in at_once:
        thread.start()
    for thread in at_once:
        thread.join()
    assert torch.get_num_threads() == threads_of_a_new_thread() == 4


def test_a_thread_of_the_pool_runs_the_network_alone(four_threads) -> None:
    network = build_network("glyphnet", weights="none").eval().for_inference()
    encode(network, Arrays(np.zeros((1, 32, 32), dtype=np.uint8)))  # fuses it
    seen: list[int] = []
    network.backbone.stem.register_forward_hook(lambda *_: seen.append(torch.get_num_threads()))
    encode(network, Arrays(np.zeros((24, 32, 32), dtype=np.uint8)))
    assert seen == [1, 1, 1]


@pytest.fixture(scope="module")
def network():
    return build_network("glyphnet", dim=8, weights="none", seed=1)


@pytest.fixture(scope="module")
def images():
    return Arrays(np.random.default_rng(0).integers(0, 256, size=(50, 36, 36), dtype=np.uint8))


def test_an_image_is_its_center_crop_in_eval_mode(network, images):
    network.train()
    found = encode(network, images)
    assert network.training
    with torch.no_grad():
        expected = network.eval()(torch.from_numpy(network.crop(images.pixels))).numpy()
        features = network.features(torch.from_numpy(network.crop(images.pixels))).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(encode(network, images, what="features", batch_size=7), features, rtol=1e-4, atol=1e-4)


def test_progress_counts_the_images(network, images):
    told = []
    encode(network, images, batch_size=20, step="Vectors", progress=lambda *step: told.append(step))
    assert told == [("Vectors", 20, 50), ("Vectors", 40, 50), ("Vectors", 50, 50)]


def test_files_are_stretched_and_cropped(tmp_path):
    rng = np.random.default_rng(0)
    paths = [tmp_path / f"{i}.png" for i in range(3)]
    for path in paths:
        Image.fromarray(rng.integers(0, 256, (40, 30), dtype=np.uint8)).save(path)
    network = build_network("glyphnet", dim=8, weights="none", size=36)
    stretched = np.stack([network.preprocessing.pixels(Image.open(path)) for path in paths])
    np.testing.assert_array_equal(encode(network, Files(paths)), encode(network, Arrays(stretched)))


def test_nothing_is_nothing_and_small_images_are_refused(network, images):
    assert encode(network, images.take([])).shape == (0, 8)
    assert encode(network, images.take([]), what="features").shape == (0, network.n_features)
    with pytest.raises(ValueError, match=r"images of 20×20 are smaller than the crop \(32\)"):
        encode(network, Arrays(images.pixels[:, :20, :20]))
    with pytest.raises(ValueError, match="batch_size must be at least 1; got 0"):
        encode(network, images, batch_size=0)


def test_vectors_survive_their_file_and_a_wrong_file_is_refused(tmp_path):
    kept = Vectors(np.ones((2, 3), dtype=np.float32), ("a", "ü"), np.array([2**53 + 1, 4]), source={"views": "center crop"})
    kept.save(tmp_path / "embeddings.npz")
    found = Vectors.load(tmp_path / "embeddings.npz")
    np.testing.assert_array_equal(found.vectors, kept.vectors)
    assert (found.labels.tolist(), found.names, found.source) == (kept.labels.tolist(), ("a", "ü"), kept.source)
    (tmp_path / "embeddings.npz").write_text("no zip")
    with pytest.raises(ValueError, match="holds no vectors"):
        Vectors.load(tmp_path / "embeddings.npz")
    with pytest.raises(ValueError, match="equal length"):
        Vectors(np.ones((2, 3), dtype=np.float32), ("a", "b"), np.array([1]))


@pytest.mark.parametrize(("cuda", "mps", "expected"), [(True, True, "cuda:0"), (False, True, "mps"), (False, False, "cpu")])
def test_auto_is_a_gpu_where_there_is_one(monkeypatch, cuda: bool, mps: bool, expected: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert usable_device("auto") == expected


def test_vectors_do_not_depend_on_the_number_of_threads(network) -> None:
    images = Arrays(np.random.default_rng(0).integers(0, 256, (50, 32, 32), dtype=np.uint8))
    found, n_threads = [], torch.get_num_threads()
    try:
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            found.append(encode(network, images))
            assert torch.get_num_threads() == n
    finally:
        torch.set_num_threads(n_threads)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_outputs_come_in_order_and_an_error_in_a_task_comes_through(network) -> None:

    def made(i: int) -> torch.Tensor:
        if i == 7:
            raise ValueError("picture 7 is broken")
        return torch.full((1,), float(i))

    outputs = outputs_in_order(network, [partial(made, i) for i in range(7)], lambda batch: batch + 1)
    assert [float(output) for output in outputs] == [1, 2, 3, 4, 5, 6, 7]
    n_threads = torch.get_num_threads()
    with pytest.raises(ValueError, match="picture 7"):
        list(outputs_in_order(network, [partial(made, i) for i in range(9)], lambda batch: batch))
    assert torch.get_num_threads() == n_threads
