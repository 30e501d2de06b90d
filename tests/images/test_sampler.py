"""The laws of batches, over thousands of them."""

from __future__ import annotations

import itertools
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from facetric.losses.sampler import ClassBalancedBatches

class_sizes = st.lists(st.integers(1, 9), min_size=3, max_size=30)


def shuffled_labels(sizes: list[int], seed: int) -> np.ndarray:
    labels = np.repeat(7 * np.arange(len(sizes)) - 20, sizes)  # any integers
    return np.random.default_rng(seed).permutation(labels)


@st.composite
def ratio_samplers(draw: st.DrawFn) -> tuple[np.ndarray, ClassBalancedBatches]:
    sizes = draw(class_sizes)
    n_classes = draw(st.integers(2, len(sizes)))
    most = sum(sorted(sizes)[-n_classes:])
    batch_size = draw(st.integers(n_classes, most))
    if batch_size == n_classes:
        batch_size += 1
        sizes[:] = [size + 1 for size in sizes]
    seed = draw(st.integers(0, 2**32))
    labels = shuffled_labels(sizes, seed)
    sampler = ClassBalancedBatches(labels, batch_size=batch_size, class_ratio=n_classes / batch_size, seed=seed, n_batches=25)
    return labels, sampler


@given(ratio_samplers())
def test_a_batch_has_m_images_of_c_classes_and_no_image_twice(case: tuple[np.ndarray, ClassBalancedBatches]) -> None:
    labels, sampler = case
    batches = list(sampler)
    assert len(batches) == len(sampler) == 25
    for batch in batches:
        assert len(batch) == len(set(batch)) == sampler.batch_size
        assert all(isinstance(image, int) and 0 <= image < len(labels) for image in batch)
        assert len(set(labels[batch].tolist())) == sampler.classes_per_batch


@given(class_sizes, st.integers(2, 4), st.integers(0, 2**32))
def test_p_times_k_takes_exactly_k_images_of_classes_that_have_them(sizes: list[int], k: int, seed: int) -> None:
    labels = shuffled_labels(sizes, seed)
    n_eligible = sum(size >= k for size in sizes)
    if n_eligible < 2:
        return
    sampler = ClassBalancedBatches(labels, batch_size=n_eligible * k, images_per_class=k, seed=seed, n_batches=25)
    assert sampler.n_left_out == len(sizes) - n_eligible
    for batch in sampler:
        assert len(batch) == len(set(batch)) == n_eligible * k
        assert set(Counter(labels[batch].tolist()).values()) == {k}


@given(ratio_samplers(), st.integers(0, 60))
def test_resumed_equals_uninterrupted(case: tuple[np.ndarray, ClassBalancedBatches], stop: int) -> None:
    labels, sampler = case
    options = {
        "batch_size": sampler.batch_size,
        "class_ratio": sampler.classes_per_batch / sampler.batch_size,
        "seed": sampler.seed,
        "n_batches": 25,
    }
    uninterrupted = [*sampler, *sampler, *sampler]
    assert sampler.position == 75
    first = ClassBalancedBatches(labels, **options)
    passes = itertools.chain.from_iterable(itertools.repeat(first))
    begun = list(itertools.islice(passes, stop))
    second = ClassBalancedBatches(labels, **options)
    second.load_state_dict(first.state_dict())
    rest = list(second)
    assert begun + rest == uninterrupted[: stop + len(rest)]
    assert (stop + len(rest)) % 25 == 0  # to the end of the pass


@given(st.sampled_from([1, 2, 3, 4, 6]), st.integers(0, 1000), st.booleans())
def test_ranks_never_overlap_and_together_are_the_single_process_batch(world_size: int, seed: int, p_times_k: bool) -> None:
    labels = np.repeat(np.arange(40), 5)
    options = {
        "batch_size": 24,
        "seed": seed,
        "n_batches": 20,
        **({"images_per_class": 3} if p_times_k else {"class_ratio": 0.5}),
    }
    single = list(ClassBalancedBatches(labels, **options))
    ranks = [list(ClassBalancedBatches(labels, rank=r, world_size=world_size, **options)) for r in range(world_size)]
    for batch, shares in zip(single, zip(*ranks, strict=True), strict=True):
        assert {len(share) for share in shares} == {24 // world_size}
        assert [image for share in shares for image in share] == batch


def test_the_same_seed_gives_the_same_batches_and_another_seed_others() -> None:
    labels = np.repeat(np.arange(50), 6)
    draws = [list(ClassBalancedBatches(labels, batch_size=32, seed=seed)) for seed in (3, 3, 4)]
    assert draws[0] == draws[1] != draws[2]


def test_every_pass_draws_new_batches() -> None:
    sampler = ClassBalancedBatches(np.repeat(np.arange(50), 6), batch_size=32)
    assert list(sampler) != list(sampler)


def test_classes_and_images_are_drawn_evenly() -> None:
    labels = np.repeat(np.arange(20), 10)
    for options in ({"class_ratio": 0.25}, {"images_per_class": 4}):
        sampler = ClassBalancedBatches(labels, batch_size=20, n_batches=4000, **options)
        counts = np.bincount(np.concatenate(list(sampler)), minlength=200)  # each expects 400
        assert abs(counts - 400).max() < 6 * 20
        assert abs(counts.reshape(20, 10).sum(axis=1) - 4000).max() < 6 * 110


def test_classes_that_hold_too_few_images_make_way_for_larger_ones() -> None:
    labels = np.concatenate([np.arange(100), np.repeat(np.arange(100, 104), 8)])  # 100 single images, 4 classes of 8
    for batch in ClassBalancedBatches(labels, batch_size=20, class_ratio=0.2, n_batches=500):
        sizes = Counter(labels[batch].tolist())
        assert len(sizes) == 4
        assert len(set(batch)) == 20


def test_a_single_image_class_is_drawn_when_others_fill_the_batch() -> None:
    labels = np.array([0] + [1] * 9 + [2] * 9)
    drawn = {image for batch in ClassBalancedBatches(labels, batch_size=8, class_ratio=0.25, n_batches=200) for image in batch}
    assert drawn == set(range(19))


def test_it_serves_a_data_loader() -> None:
    labels = np.repeat(np.arange(10), 8)
    sampler = ClassBalancedBatches(labels, batch_size=16, n_batches=3)
    batches = [batch.tolist() for batch in DataLoader(range(80), batch_sampler=sampler)]  # type: ignore[arg-type]
    sampler.seek(0)
    assert batches == list(sampler)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"class_ratio": 0.01}, "one cluster is always right"),
        ({"class_ratio": 1.0}, "its own class"),
        ({"images_per_class": 1}, "its own class"),
        ({"images_per_class": 32}, "one cluster is always right"),
        ({"images_per_class": 5}, "multiple of images_per_class"),
        ({"class_ratio": 0.5, "images_per_class": 4}, "give one"),
        ({"class_ratio": 1.5}, "between 0 and 1"),
        ({"class_ratio": 0.9}, "has 20 classes: lower class_ratio"),
        ({"images_per_class": 16}, "0 classes with 16 images or more"),
        ({"batch_size": 64, "class_ratio": 0.1}, "raise class_ratio or lower batch_size"),
        ({"world_size": 5}, "multiple of world_size"),
        ({"world_size": 2, "rank": 2}, "rank must be"),
        ({"n_batches": 0}, "at least one batch"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_impossible_and_useless_batches_are_refused(options: dict[str, float], message: str) -> None:
    labels = np.repeat(np.arange(20), 6)
    with pytest.raises(ValueError, match=message) as refused:
        ClassBalancedBatches(labels, **{"batch_size": 32, **options})  # type: ignore[arg-type]
    assert "--set" not in str(refused.value)  # this is Python


def test_labels_that_are_no_integers_are_refused() -> None:
    with pytest.raises(ValueError, match="labels must be integers"):
        ClassBalancedBatches([0.5, 1.5])


def test_a_state_from_other_labels_or_settings_is_refused() -> None:
    labels = np.repeat(np.arange(20), 6)
    state = ClassBalancedBatches(labels, batch_size=32).state_dict()
    for other in (
        ClassBalancedBatches(labels, batch_size=32, seed=1),
        ClassBalancedBatches(labels, batch_size=16),
        ClassBalancedBatches(labels[::-1], batch_size=32),
    ):
        with pytest.raises(ValueError, match="cannot resume from that state"):
            other.load_state_dict(state)
    with pytest.raises(ValueError, match="no position"):
        ClassBalancedBatches(labels, batch_size=32).load_state_dict({k: v for k, v in state.items() if k != "position"})


def test_a_thousand_batches_of_5000_classes_take_less_than_a_second() -> None:
    labels = np.repeat(np.arange(5000), 12)
    sampler = ClassBalancedBatches(labels, batch_size=128, n_batches=1000)
    start = time.process_time()
    assert sum(1 for _ in sampler) == 1000
    assert time.process_time() - start < 1.0  # a tenth of it is usual; not by the clock: a busy machine is not a failure


@pytest.mark.parametrize("key", ["batch_size", "class_ratio", "images_per_class"])
@pytest.mark.parametrize("value", ["x", [4], True, 1j])
def test_a_setting_that_is_no_number_is_refused(key, value):
    with pytest.raises(ValueError, match=rf"^{key} must be a number; got "):
        ClassBalancedBatches([0, 0, 1, 1], **{"batch_size": 4, key: value})


@pytest.mark.parametrize("key", ["seed", "n_batches", "rank", "world_size"])
@pytest.mark.parametrize("value", ["x", [4], True, 1j, 1.5, -1, 2**64])
def test_a_count_that_is_no_whole_number_or_out_of_range_is_refused(key, value):
    if key == "n_batches" and value == 2**64:
        return  # as many as anybody wants
    with pytest.raises(ValueError, match=r"; got |must be a multiple"):
        ClassBalancedBatches([0, 0, 1, 1], **{"batch_size": 4, "class_ratio": 0.5, key: value})
