"""Batches of tensors: the same from memory, cache and files, and the same whatever the threads, ranks and interruptions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from facetric.images import Arrays, CenterCrop, Files, ImageError, Preprocessing, RandomCrop
from facetric.images.sources import prepare
from facetric.losses.sampler import ClassBalancedBatches
from facetric.training.feed import Feed, TrainingBatch

FORMAT = Preprocessing(size=20, crop=13)
LABELS = np.repeat(np.arange(10), 4)
PIXELS = np.random.default_rng(0).integers(0, 256, (40, 20, 20, 3), dtype=np.uint8)


def loader(images: object = Arrays(PIXELS), *, n_threads: int = 2, transform: object = None, **options: int) -> Feed:
    batches = ClassBalancedBatches(LABELS, **{"batch_size": 12, "n_batches": 5, **options})  # type: ignore[arg-type]
    return Feed(images, LABELS, batches, transform or RandomCrop(FORMAT), n_threads=n_threads)  # type: ignore[arg-type]


def same(first: list[TrainingBatch], second: list[TrainingBatch]) -> bool:
    return len(first) == len(second) and all(
        torch.equal(a.inputs, b.inputs) and torch.equal(a.labels, b.labels) and np.array_equal(a.image_ids, b.image_ids)
        for a, b in zip(first, second, strict=True)
    )


def test_a_batch_is_what_the_sampler_asked_for() -> None:
    for batch, image_ids in zip(loader(transform=CenterCrop(FORMAT)), ClassBalancedBatches(LABELS, batch_size=12), strict=False):
        assert batch.image_ids.tolist() == image_ids
        assert batch.labels.tolist() == LABELS[image_ids].tolist()
        assert np.array_equal(batch.inputs.numpy(), CenterCrop(FORMAT)(PIXELS[image_ids]))


def test_memory_cache_and_files_give_the_same_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / f"{number}.png" for number in range(40)]
    for path, pixels in zip(paths, PIXELS, strict=True):
        Image.fromarray(pixels).save(path)
    monkeypatch.setenv("FACETRIC_CACHE", str(tmp_path / "cache"))
    prepared = prepare(Files(paths), size=20)
    backwards = prepared.take(np.arange(40)[::-1]).take(np.arange(40)[::-1])
    batches = [list(loader(images)) for images in (Arrays(PIXELS), prepared, backwards, Files(paths))]
    assert all(same(batches[0], other) for other in batches[1:])


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_threads_do_not_change_batches(n_threads: int) -> None:
    assert same(list(loader(n_threads=n_threads)), list(loader()))


@pytest.mark.parametrize("stop", [0, 1, 3, 5, 7])
def test_resumed_equals_uninterrupted_although_batches_are_made_ahead(stop: int) -> None:
    whole = loader()
    uninterrupted = [*whole, *whole]
    first, begun = loader(), []
    while len(begun) < stop:
        for batch in first:
            begun.append(batch)
            if len(begun) == stop:
                break
    second = loader()
    second.load_state_dict(first.state_dict())
    rest = list(second)
    assert same(begun + rest, uninterrupted[: stop + len(rest)])
    assert same(rest, list(first))  # an abandoned pass goes on where it was left, too
    assert second.position == stop + len(rest)


def test_ranks_together_make_the_single_process_batch_augmentation_included() -> None:
    ranks = [list(loader(rank=rank, world_size=3)) for rank in range(3)]
    for batch, shares in zip(loader(), zip(*ranks, strict=True), strict=True):
        assert torch.equal(torch.cat([share.inputs for share in shares]), batch.inputs)
        assert torch.cat([share.labels for share in shares]).tolist() == batch.labels.tolist()


def test_an_image_looks_different_each_time() -> None:
    whole = loader()
    batches = [*whole, *whole]
    views = {batch.inputs[row].numpy().tobytes() for batch in batches for row in np.flatnonzero(batch.image_ids == 0)}
    assert len(views) == sum(int((batch.image_ids == 0).sum()) for batch in batches) > 1


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "no owl.jpg").write_text("text")
    with pytest.raises(ImageError, match="no owl"):
        Files([tmp_path / "no owl.jpg"]).inputs(np.array([0]), CenterCrop(FORMAT))


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(ValueError, match="n_threads"):
        next(iter(loader(n_threads=0)))
