"""`run.choose_minutes`: which recipe suits a dataset, from the pretrained network as it is to fine-tuning.

Candidates are compared on classes that they were not trained on: half of the training classes train, the other half is scored,
for several random halves; those that need no training come first, on all of them. The simplest wins unless another beats it by
more than the standard error of their difference. No more halves are tried once every class was held out and the winner is clear.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import NDArray

from facetric.embedder import check_fit
from facetric.files import checksummed, read_checksummed
from facetric.images import ImageDataset
from facetric.runs import FEWEST_TO_CHOOSE, Run, TrainConfig
from facetric.training.choice_candidates import (
    PRETRAINED,
    Candidate,
    ClassScores,
    candidates,
    group_scores,
    hold_out,
    with_settings,
)
from facetric.training.display import Display
from facetric.training.session import Session

N_SPLITS = 6
CLEAR = 2.0  # standard errors

_log = logging.getLogger("facetric")


@dataclass
class Record:
    """choice.json: every score so far, the time that it took, and in the end what was chosen."""

    seconds: float = 0.0
    scores: dict[str, dict[int, ClassScores]] = field(default_factory=dict)  # candidate → split → class
    chosen: str | None = None
    why: str = ""

    @classmethod
    def from_json(cls, data: bytes) -> Record:
        """What `to_json` wrote; a ValueError if its checksum is wrong or missing."""
        values = read_checksummed(data)
        scores = {
            name: {int(split): {c: (float(r), float(m)) for c, (r, m) in classes.items()} for split, classes in splits.items()}
            for name, splits in values["scores"].items()
        }
        return cls(float(values["seconds"]), scores, values["chosen"], values["why"])

    def to_json(self) -> bytes:
        return checksummed(self.__dict__)


def choose(
    config: TrainConfig, dataset: ImageDataset, run: Run, display: Display, *, n_features: int, stopped: Callable[[], bool]
) -> TrainConfig | None:
    """The configuration of the best candidate, also written to the run folder; None if `stopped` said so before that.

    Scores are kept in choice.json as they come, and what is there is not computed again.
    """
    record, minutes = _kept(run), config.run.choose_minutes
    before, start = record.seconds, time.monotonic()

    def is_over() -> bool:
        return before + time.monotonic() - start > 60 * minutes

    recipes = candidates(config, n_features)
    splits = halves(_scorable(dataset), N_SPLITS, seed=config.run.seed)
    display.say(f"choosing among {len(recipes)} recipes on halves of the training classes, for up to {minutes:g} minutes")
    free = [recipe for recipe in recipes if recipe.settings.get("run", {}).get("steps") == 0]
    trained = [recipe for recipe in recipes if recipe not in free]
    # What takes seconds comes first, for time may be up before the last split.
    for tried, split in product((free, trained), range(len(splits))):
        part = hold_out(dataset, splits[split])
        for training in dict.fromkeys(recipe.training for recipe in tried):
            group = [recipe for recipe in tried if recipe.training == training]
            needed = split == 0 and tried is free  # without these there is no choice
            if all(split in record.scores.get(recipe.name, {}) for recipe in group) or (is_over() and not needed):
                continue
            found = group_scores(config, group, part, n_features=n_features, stopped=lambda: stopped() or is_over())
            if stopped():
                return None
            for name, scores in found.items():
                record.scores.setdefault(name, {})[split] = scores
            record.seconds = before + time.monotonic() - start
            run.save_choice(record.to_json())
        if tried is free:
            continue
        display.say(f"split {split + 1} of {len(splits)}: {_words(record, split)}")
        if is_over() or (split % 2 == 1 and is_clear(record.scores, recipes, n_splits=split + 1)):
            break
    record.chosen, gains = decide(record.scores, [recipe.name for recipe in recipes])
    rows, record.why = summary(record, gains)
    chosen = next(recipe for recipe in recipes if recipe.name == record.chosen)
    config = with_settings(config, {**chosen.settings, "run": {**chosen.settings.get("run", {}), "choose_minutes": 0.0}})
    run.save_choice(record.to_json())
    run.save_config(config)
    display.table("On held-out halves of the training classes", rows)
    display.say(f"chosen: {record.chosen}")
    return config


def halves(classes: NDArray[np.int64], n_splits: int, *, seed: int) -> list[NDArray[np.int64]]:
    """Held-out classes of each split: random halves, in pairs that hold out every class once.

    With few classes there are not that many different ones.
    """
    rng, found, seen = np.random.default_rng([seed, 4]), [], set()
    for _ in range(8 * n_splits):
        order = rng.permutation(classes)
        for half in (order[: len(order) // 2], order[len(order) // 2 :]):
            if len(half) >= 2 and len(classes) - len(half) >= 2 and (key := tuple(sorted(half.tolist()))) not in seen:
                seen.add(key)
                found.append(np.sort(half))
    return found[:n_splits]


def decide(scores: dict[str, dict[int, ClassScores]], order: Sequence[str]) -> tuple[str, dict[str, tuple[float, float]]]:
    """The chosen candidate, and for each its gain over the choice before it with the standard error.

    Each in turn, from the simplest on, becomes the choice where its gain exceeds the standard error.
    """
    chosen, gains = order[0], {order[0]: (0.0, 0.0)}
    for name in order[1:]:
        if scores.get(name):
            gains[name] = difference(scores[name], scores[chosen])
            if gains[name][0] > gains[name][1]:
                chosen = name
    return chosen, gains


def is_clear(scores: dict[str, dict[int, ClassScores]], recipes: Sequence[Candidate], *, n_splits: int) -> bool:
    """Whether the choice by the first splits is two standard errors or more ahead of all that are trained in another way."""
    first = {name: {split: found for split, found in splits.items() if split < n_splits} for name, splits in scores.items()}
    chosen = decide(first, [recipe.name for recipe in recipes])[0]
    training = next(recipe.training for recipe in recipes if recipe.name == chosen)
    others = (recipe.name for recipe in recipes if recipe.training != training and first.get(recipe.name))
    leads = [difference(first[chosen], first[other]) for other in others]
    return all(lead >= CLEAR * error for lead, error in leads)


def difference(scores: dict[int, ClassScores], others: dict[int, ClassScores]) -> tuple[float, float]:
    """How much better the first is on the same splits and classes, and the standard error of that over the classes.

    A class counts once, with its mean over the splits that hold it out.
    """
    of_class: dict[str, list[float]] = {}
    for split in scores.keys() & others.keys():
        for name, (recall, precision) in scores[split].items():
            if name in others[split]:
                other = others[split][name]
                of_class.setdefault(name, []).append((recall + precision - other[0] - other[1]) / 2)
    gains = np.array([np.mean(values) for _, values in sorted(of_class.items())])
    if len(gains) < 2:
        return 0.0, math.inf
    return float(gains.mean()), float(gains.std(ddof=1) / math.sqrt(len(gains)))


def summary(record: Record, gains: dict[str, tuple[float, float]]) -> tuple[dict[str, dict[str, float]], str]:
    """A row of scores for each candidate, and the choice in a sentence; all on the splits that every candidate was scored on.

    A gain is over the splits that two candidates share, which may be more.
    """
    scored = [set(splits) for splits in record.scores.values() if splits]
    chosen, rows = str(record.chosen), {}
    splits = set.intersection(*scored) or set(record.scores[chosen])  # none in common: they diverged on different ones
    for name, (gain, error) in gains.items():
        recall, precision = _means(record.scores[name], splits & set(record.scores[name]) or set(record.scores[name]))
        rows[name] = {"class-mean R@1": recall, "class-mean MAP@R": precision, "gain": gain, "± s.e.": error}
    how = f"{len(splits)} split{'s' * (len(splits) != 1)}, {record.seconds / 60:.1f} minutes"
    if chosen == PRETRAINED:
        return rows, f"chosen: {PRETRAINED}; nothing was better by more than its standard error ({how})"
    (r_before, m_before), (r_after, m_after) = (
        (100 * rows[name]["class-mean R@1"], 100 * rows[name]["class-mean MAP@R"]) for name in (PRETRAINED, chosen)
    )
    return rows, (
        f"chosen: {chosen}; on held-out classes class-mean R@1 goes from {r_before:.1f} to {r_after:.1f} and "
        f"class-mean MAP@R from {m_before:.1f} to {m_after:.1f} ({how})"
    )


def check_choice(session: Session, dataset: ImageDataset) -> None:
    """Refuse what cannot be chosen, before the run folder is made."""
    off = "--set run.choose_minutes=0"
    n_classes, n_processes = len(_scorable(dataset)), session.processes.n
    if n_processes > 1:
        raise ValueError(f"run.choose_minutes needs one process; got {n_processes}: choose with one, or train without ({off})")
    if session.config.model.weights == "none":
        raise ValueError(f"run.choose_minutes compares with a pretrained network; model.weights is none: train without ({off})")
    if n_classes < FEWEST_TO_CHOOSE:
        what = f"{FEWEST_TO_CHOOSE} training classes of several images"
        raise ValueError(f"run.choose_minutes needs {what}; got {n_classes}: add some, or {off}")
    check_fit(session.embedder.n_features, session.training.labels, session.embedder.dim, without=off)


def _scorable(dataset: ImageDataset) -> NDArray[np.int64]:
    """Training classes with several images; those with one always train."""
    return np.flatnonzero(np.bincount(dataset.labels[dataset.splits == "train"]) > 1)


def _kept(run: Run) -> Record:
    if not run.choice_file.is_file():
        return Record()
    try:
        return Record.from_json(run.choice_file.read_bytes())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        _log.warning("%s is damaged (%s); the choice starts again", run.choice_file, error)
        return Record()


def _means(scores: dict[int, ClassScores], splits: set[int]) -> tuple[float, float]:
    """Recall@1 and MAP@R over the classes of these splits."""
    rows = np.array([values for split in sorted(splits & scores.keys()) for values in scores[split].values()])
    recall, precision = rows.mean(axis=0)
    return float(recall), float(precision)


def _words(record: Record, split: int) -> str:
    found = {name: _means(splits, {split}) for name, splits in record.scores.items() if split in splits}
    named = (f"{name} {100 * recall:.1f} / {100 * precision:.1f}" for name, (recall, precision) in found.items())
    return f"class-mean R@1 / MAP@R: {'; '.join(named)}"
