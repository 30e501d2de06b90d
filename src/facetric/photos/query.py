"""What was found for a photo (`Match`), and a label from the neighbors with how often such a vote is right.

The precision of a vote is measured on labeled photos of the collection itself. Every sampled photo is classified twice: by the
others, and by the others of other labels, as if its own were not there; copies of it do not vote. The second vote is always
wrong, and shows what votes on photos of unknown labels look like: less similar neighbors that agree less. A logistic regression
on both, the similarity of the nearest and the share of the majority, gives the precision for a stated fraction of such photos.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facetric.embedder import Embedder, ImageLike
from facetric.images import Files, ImageError, as_source
from facetric.machine import made_ahead
from facetric.photos.ingest import Store
from facetric.photos.store import Entry, Hit, batched

UNKNOWN_FRACTION = 0.5  # of the photos that are classified, how many have none of the labels here, unless said otherwise
ENOUGH = 0.5  # a vote that is right less often than this is no answer
N_SAMPLE = 200  # photos that are classified to measure it
MIN_SAMPLE = 20
_N_KEPT = 8  # measurements, each for a limit of its own
_FELLOWS = 1000  # neighbors of a photo's own label that are passed over in search of others
_COPIES = 8  # room for copies
_BATCH = 32  # photos that are searched for at a time
_log = logging.getLogger("facetric")

_Precision = Callable[[float, float], float | None]  # of a vote with this similarity and fraction


@dataclass(frozen=True)
class Match:
    """What was found for one photo: the most similar ones first."""

    photo: str  # its path, or "#0", "#1", … for what was in memory
    hits: tuple[Hit, ...]
    vote: Vote | None = None  # of those that are near, when asked for, and one has a label
    near_enough: float = -np.inf  # the similarity that makes a photo near

    @property
    def near(self) -> tuple[Hit, ...]:
        """Those that are similar enough; others are only the most similar that there are."""
        return tuple(hit for hit in self.hits if hit.similarity >= self.near_enough)

    @property
    def is_unknown(self) -> bool:
        """Whether nothing is similar enough, or the label that was voted for is more likely wrong than right."""
        return not self.near or (self.vote is not None and self.vote.is_unknown)

    @property
    def verdict(self) -> str:
        """One line: unknown, or the vote of the neighbors; empty without either."""
        if not self.near:
            return "unknown: nothing in the index is similar enough"
        if self.vote is None:
            return ""
        expected = self.vote.expected_precision
        precision = "precision not measured: too few labels" if expected is None else f"expected precision {expected:.0%}"
        vote = f"{self.vote.label} ({self.vote.fraction:.0%} of the labeled neighbors; {precision})"
        return f"unknown, perhaps {vote}" if self.is_unknown else vote


Queries = tuple[list[str], NDArray[np.float32]]  # names, and a row for each


def given_vectors(photos: Any, dim: int) -> Queries | None:
    """Arrays of floats, which are vectors; None for anything else."""
    arrays = photos if isinstance(photos, list | tuple) else [photos]
    if not arrays or not all(isinstance(array, np.ndarray) and array.dtype.kind == "f" for array in arrays):
        return None
    if not all(array.ndim in (1, 2) and array.shape[-1] == dim and np.isfinite(array).all() for array in arrays):
        raise ValueError(
            f"a vector to search for has {dim} finite numbers; got shape {arrays[0].shape}: pass what the index's model gives, "
            "(dim,) or (n, dim), or an image as uint8"
        )
    rows = np.concatenate([np.atleast_2d(array) for array in arrays]).astype(np.float32)
    return [f"#{row}" for row in range(len(rows))], rows


def embedded(embedder: Embedder, photos: ImageLike) -> Queries:
    """Names and vectors of what can be opened; a warning for each of the others, or an ImageError where all are broken."""
    source = as_source(photos)
    if not isinstance(source, Files):
        return list(source.names), embedder.encode(source)  # type: ignore[arg-type]
    names, vectors, problems = list[str](), [np.empty((0, embedder.dim), dtype=np.float32)], list[ImageError]()
    tasks = (partial(_opened, partial(source.pixels, row, embedder.preprocessing)) for row in range(len(source.names)))
    for some in batched(zip(source.names, made_ahead(tasks), strict=True), _BATCH):
        opened = [(name, pixels) for name, pixels in some if not isinstance(pixels, ImageError)]
        problems += [error for _, error in some if isinstance(error, ImageError)]
        names += [name for name, _ in opened]
        vectors += [embedder.encode([pixels for _, pixels in opened])] if opened else []
    if problems and not names:
        raise problems[0]
    for problem in problems:
        _log.warning("left out: %s", problem)
    return names, np.concatenate(vectors)


def _opened(pixels: Callable[[], NDArray[np.uint8]]) -> NDArray[np.uint8] | ImageError:
    try:
        return pixels()
    except ImageError as error:
        return error


def check_search(top: Any, at_least: Any, unknown_fraction: Any) -> None:
    """A ValueError where nothing can be searched for like this."""
    if not isinstance(top, int | np.integer) or top < 1:
        raise ValueError(f"top must be a whole number, at least 1; got {top!r}: top=10 shows ten photos")
    if at_least is not None and not (isinstance(at_least, float | int | np.floating) and -1 <= at_least <= 1):
        raise ValueError(f"similarities lie between -1 and 1; got {at_least!r}: try at_least=0.8")
    if not (isinstance(unknown_fraction, float | int | np.floating) and 0 <= unknown_fraction < 1):
        raise ValueError(
            f"the fraction of unknown photos is at least 0 and below 1; got {unknown_fraction!r}: try unknown_fraction=0.5"
        )


@dataclass(frozen=True)
class Vote:
    """The label of most neighbors; of equal ones, that of the most similar."""

    label: str
    fraction: float  # of the neighbors that have a label
    expected_precision: float | None  # None where too few photos have labels to measure it

    @property
    def is_unknown(self) -> bool:
        """Whether the label is more likely wrong than right."""
        return self.expected_precision is not None and self.expected_precision < ENOUGH


class Votes:
    """Votes among the neighbors in one store. Their precision is measured when it is needed, and again after a change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._measured = lru_cache(_N_KEPT)(self._measure)

    def of(
        self, hits: Sequence[Sequence[Hit]], *, top: int, limit: float, unknown_fraction: float = UNKNOWN_FRACTION
    ) -> list[Vote | None]:
        """The vote among the hits of each query; None where no hit has a label."""
        winners = [_winner(some) for some in hits]
        if not any(winners):
            return [None] * len(winners)
        precision = self._measured(self._store.version(), top, limit, unknown_fraction)
        return [None if one is None else Vote(one[0], one[2], precision(*one[1:])) for one in winners]

    def _measure(self, _: int, top: int, limit: float, unknown_fraction: float) -> _Precision:
        with self._store.moment():
            cases = _cases(self._store, top=top, limit=limit)
        return _fitted(cases, unknown_fraction)


def _winner(hits: Sequence[Hit]) -> tuple[str, float, float] | None:
    """The label of most, the similarity of the nearest labeled photo, the fraction of the labeled ones that have the label."""
    labeled = [hit for hit in hits if hit.entry.label]
    if not labeled:
        return None
    counts = Counter(hit.entry.label for hit in labeled)  # in order of similarity: max takes the first of equal ones
    best = max(counts, key=lambda label: counts[label])
    return best, labeled[0].similarity, counts[best] / len(labeled)


def _cases(store: Store, *, top: int, limit: float) -> NDArray[np.float64]:
    """(n, 4): the similarity and the fraction of a vote, whether the vote was right, whether it was on an unknown photo.

    Of labeled photos that have a fellow of another content; of none where there is but one label.
    """
    first: dict[tuple[str, bytes], Entry] = {}
    for entry in store.entries():
        if entry.label:
            first.setdefault((entry.label, entry.content), entry)
    counts = Counter(label for label, _ in first)
    entries = [entry for (label, _), entry in first.items() if counts[label] > 1]
    if not entries or len(counts) < 2:
        return np.empty((0, 4))
    entries = [entries[i] for i in np.unique(np.linspace(0, len(entries) - 1, N_SAMPLE).astype(int))]
    depth = top + _COPIES + min(max(counts.values()), _FELLOWS)
    found = store.search(store.vectors([entry.content for entry in entries]), top=depth)
    rows = []
    for entry, hits in zip(entries, found, strict=True):
        others = [hit for hit in hits if hit.entry.content != entry.content and hit.similarity >= limit]
        strangers = [hit for hit in others if hit.entry.label != entry.label]
        for is_unknown_label, voters in ((False, others), (True, strangers)):
            winner = _winner(voters[:top])
            if winner is not None:
                rows.append((*winner[1:], float(winner[0] == entry.label), float(is_unknown_label)))
    return np.array(rows, dtype=np.float64).reshape(-1, 4)


def _fitted(cases: NDArray[np.float64], unknown_fraction: float) -> _Precision:
    """The precision of votes when this fraction of the photos is unknown."""
    weights = np.where(cases[:, 3] > 0, unknown_fraction, 1 - unknown_fraction)
    evidence, right, weights = cases[weights > 0, :2], cases[weights > 0, 2], weights[weights > 0]
    if np.count_nonzero(cases[:, 3] == 0) < MIN_SAMPLE:
        return lambda similarity, fraction: None
    if right.min() == right.max():
        return lambda similarity, fraction: float(right[0])
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]
    from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]
    from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]

    model = make_pipeline(StandardScaler(), LogisticRegression())
    model.fit(evidence, right, logisticregression__sample_weight=weights / weights.mean())
    return lambda *one: float(model.predict_proba([one])[0, 1])
