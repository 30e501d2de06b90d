"""Eight threads search one collection object while one process adds photos and another removes some.

FACETRIC_EXAMPLES=500 has them at it for a minute instead of five seconds; `pytest -s` prints what was counted.
"""

import json
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import processes
from conftest import EXAMPLES
from facetric.photos import open_collection
from photos.stores import DIM, embedded

SECONDS = 60 if EXAMPLES >= 500 else 5
N_THREADS, N_PHOTOS, N_QUERIES = 8, 400, 16
PATHS = [f"/photos/{i:03}.jpg" for i in range(N_PHOTOS)]


class Directions:
    """Stands in for a network: vectors are put into the store by hand, and searched for."""

    fingerprint, dim, run = "a" * 64, DIM, None


def directions(n, seed):
    return np.random.default_rng(seed).normal(size=(n, DIM)).astype(np.float32)


def change(address, seed, adds, log, stop):
    """In a process: add or remove a few photos again and again, and note which, with the version that this made."""
    index, vectors, rng, n_refused = (
        open_collection(address, Directions()),
        directions(N_PHOTOS, 0),
        np.random.default_rng(int(seed)),
        0,
    )
    with open(log, "w") as file:
        while not Path(stop).exists():
            rows = rng.choice(N_PHOTOS, rng.integers(1, 9), replace=False).tolist()
            try:
                with index.writing() as store:
                    if adds == "True":
                        store.set_labels({PATHS[row]: f"class {row % 4}" for row in rows})
                        store.add([embedded(PATHS[row], vectors[row]) for row in rows])
                    else:
                        store.remove([PATHS[row] for row in rows])
                    print(json.dumps([store.version(), adds == "True", rows]), file=file, flush=True)
            except RuntimeError as refused:
                if "is being written by another process" not in str(refused):
                    raise
                n_refused += 1
            time.sleep(0.01)
    print(n_refused)


def search(index, queries, seed, until, answers, failures):
    """In a thread."""
    rng = np.random.default_rng(seed)
    try:
        while time.monotonic() < until:
            query, top, start = int(rng.integers(N_QUERIES)), int(rng.choice([1, 10, 2 * N_PHOTOS])), time.perf_counter()
            before = index.version()
            (match,) = index.search(queries[query], top=top, classify=bool(rng.random() < 0.02))
            found = [(hit.entry.path, hit.similarity) for hit in match.hits]
            answers.append((before, index.version(), query, top, found, time.perf_counter() - start))
    except Exception as error:
        failures.append(repr(error))


def states(logs, first):
    """The photos that there were at every version."""
    changes = sorted(json.loads(line) for log in logs for line in log.read_text().splitlines())
    found, now, n_versions = {first: frozenset(PATHS)}, set(PATHS), first
    for version, adds, rows in changes:
        found |= dict.fromkeys(range(n_versions, version), frozenset(now))  # a change of labels is a version too
        (now.update if adds else now.difference_update)(PATHS[row] for row in rows)
        found[version], n_versions = frozenset(now), version
    return found


def test_every_answer_is_exact_for_some_moment_while_others_write(tmp_path):
    address, stop = tmp_path / "i", tmp_path / "stop"
    vectors, queries = directions(N_PHOTOS, 0), directions(N_QUERIES, 1)
    with open_collection(address, Directions()).writing() as store:
        store.add(embedded(path, vector) for path, vector in zip(PATHS, vectors, strict=True))
    index = open_collection(address, Directions())
    index.search(queries, classify=True)  # compile
    first = index.version()
    logs, said = [tmp_path / "adds", tmp_path / "removes"], [tmp_path / "adder", tmp_path / "remover"]
    work = [(address, seed, seed == 0, log, stop) for seed, log in enumerate(logs)]
    writers = [
        processes.start(*arguments, function="photos.test_many_at_once:change", log=file, errors=f"{file}.errors")
        for arguments, file in zip(work, said, strict=True)
    ]
    try:
        processes.wait_for(lambda: all(processes.contains(log, "\n") for log in logs))
        answers, failures, until = [], [], time.monotonic() + SECONDS
        threads = [
            threading.Thread(target=search, args=(index, queries, seed, until, answers, failures)) for seed in range(N_THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        stop.touch()
        ended = [processes.wait(writer) for writer in writers]
    index.close()
    assert (failures, ended) == ([], [0, 0]), [Path(f"{file}.errors").read_text() for file in said]
    photos, cosines = states(logs, first), {}
    for query in range(N_QUERIES):
        for path, vector in zip(PATHS, vectors.astype(np.float64), strict=True):
            own = queries[query].astype(np.float64)
            cosines[query, path] = sum(own * vector) / sum(own * own) ** 0.5 / sum(vector * vector) ** 0.5
    ranks = [sorted(PATHS, key=lambda path, query=query: -cosines[query, path]) for query in range(N_QUERIES)]
    for before, after, query, top, found, _ in answers:
        moments = ([path for path in ranks[query] if path in photos[v]][:top] for v in range(before, after + 1))
        assert [path for path, _ in found] in moments
        assert [similarity for _, similarity in found] == pytest.approx([cosines[query, path] for path, _ in found], abs=1e-6)
    assert len(answers) >= N_THREADS
    n_changes = len(set(photos.values()))
    assert n_changes >= 10
    p50, p99 = 1000 * np.quantile([seconds for *_, seconds in answers], [0.5, 0.99])
    n_during = sum(before != after for before, after, *_ in answers)
    n_refused = sum(int(file.read_text()) for file in said)
    print(f"\n{SECONDS} s, {N_THREADS} threads: {len(answers):,} searches, all exact; photos changed during {n_during:,} of them")
    print(f"p50 {p50:.1f} ms, p99 {p99:.1f} ms; {n_changes:,} changes, {n_refused:,} times a writer waited for the other")
