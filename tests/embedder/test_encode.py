"""The loop through the network: threads, padding, devices."""

import threading

import numpy as np
import pytest
import torch

from facetric.embedder import build_network, embed, encoder
from facetric.embedder.encode import usable_device


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
    images = np.zeros((64, 32, 32), dtype=np.uint8)
    network = build_network("glyphnet", weights="none").for_inference()

    def work() -> None:
        for _ in range(4):
            embed(network, images)

    at_once = [threading.Thread(target=work) for _ in range(3)]
    for thread in at_once:
        thread.start()
    for thread in at_once:
        thread.join()
    assert torch.get_num_threads() == threads_of_a_new_thread() == 4


def test_a_thread_of_the_pool_runs_the_network_alone(four_threads) -> None:
    network = build_network("glyphnet", weights="none").for_inference()
    seen: list[int] = []
    network.backbone.stem.register_forward_hook(lambda *_: seen.append(torch.get_num_threads()))
    embed(network, np.zeros((24, 32, 32), dtype=np.uint8))
    assert seen == [1, 1, 1]


def test_32_photos_are_not_padded_to_the_batch_of_a_gpu(monkeypatch) -> None:
    monkeypatch.setattr(encoder, "batch_size_for", lambda network: 256)
    network = build_network("glyphnet", weights="none").eval().for_inference()
    sizes: list[int] = []
    monkeypatch.setattr(network, "forward", lambda images: sizes.append(len(images)) or torch.zeros(len(images), network.dim))
    pixels = [np.zeros((32, 32, 1), dtype=np.uint8)] * 32
    assert encoder.picture_vectors(network, pixels, padded=True).shape == (32, network.dim)
    assert sum(sizes) == 32


def test_a_rank_without_blocks_gives_features_of_their_own_width(tmp_path) -> None:
    network = build_network("glyphnet", weights="none", dim=8)
    images = np.zeros((4, 32, 32), dtype=np.uint8)
    idle = embed(network, images, features=True, folder=tmp_path, rank=1, world_size=5, block_size=2048)
    assert idle.vectors.shape == (0, network.n_features)


@pytest.mark.parametrize(("cuda", "mps", "expected"), [(True, True, "cuda:0"), (False, True, "mps"), (False, False, "cpu")])
def test_auto_is_a_gpu_where_there_is_one(monkeypatch, cuda: bool, mps: bool, expected: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert usable_device("auto") == expected
