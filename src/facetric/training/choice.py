"""`run.choose_minutes`: which network and recipe suit a dataset, from the pretrained network as it is to fine-tuning.

Candidates are compared on classes that they were not trained on: half of the training classes train, the other half is scored,
for several random halves. Those that need no training come first, on all of them, network by network from the smallest on; what
is trained is the network that is best by then. The simplest wins unless another beats it by more than the standard error of their
difference. No more halves are tried once every class was held out and the winner is clear.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from facetric.embedder import check_fit, network_facts
from facetric.images import ImageDataset
from facetric.runs import FEWEST_TO_CHOOSE, Run, TrainConfig, with_network
from facetric.training.choice_candidates import (
    Candidate,
    ClassScores,
    candidates,
    embedding_seconds,
    group_scores,
    hold_out,
    with_settings,
)
from facetric.training.choice_record import Record, kept_record, summary, words
from facetric.training.display import Display
from facetric.training.session import Session, network_of

N_SPLITS = 6
CLEAR = 2.0  # standard errors


def choose(
    config: TrainConfig, dataset: ImageDataset, run: Run, display: Display, *, stopped: Callable[[], bool]
) -> TrainConfig | None:
    """The configuration of the best candidate, also written to the run folder; None if `stopped` said so before that.

    Scores are kept in choice.json as they come, and what is there is not computed again.
    """
    record, minutes = kept_record(run), config.run.choose_minutes
    before, start = record.seconds, time.monotonic()

    def seconds_left() -> float:
        return 60 * minutes - (before + time.monotonic() - start)

    def scored(group: Sequence[Candidate], split: int, *, needed: bool = False) -> bool:
        """Score candidates of one training, if there is time; whether nobody stopped it."""
        if all(split in record.scores.get(recipe.name, {}) for recipe in group) or (seconds_left() < 0 and not needed):
            return True
        found = group_scores(group, hold_out(dataset, splits[split]), stopped=lambda: stopped() or seconds_left() < 0)
        if stopped():
            return False
        for name, scores in found.items():
            record.scores.setdefault(name, {})[split] = scores
        record.seconds = 60 * minutes - seconds_left()
        run.save_choice(record.to_json())
        return True

    recipes = recipes_by_network(config, dataset)
    splits = halves(_scorable(dataset), N_SPLITS, seed=config.run.seed)
    first, several = next(iter(recipes)), f"{len(recipes)} networks ({', '.join(recipes)}) and " if len(recipes) > 1 else ""
    what = f"{several}{len(recipes[first])} recipes"
    display.say(f"choosing among {what} on halves of the training classes, for up to {minutes:g} minute{'s' * (minutes != 1)}")
    # What takes seconds comes first, for time may be up before the last split.
    for network, own in recipes.items():
        free = [recipe for recipe in own if recipe.is_free]
        if network != first and not _has_time(record, free, dataset, seconds_left, display):
            run.save_choice(record.to_json())
            continue
        for split, recipe in product(range(len(splits)), free):
            if not scored([recipe], split, needed=network == first and split == 0):  # without these there is no choice
                return None
        if free[0].name not in record.scores:
            record.left_out.append(network)
        if several:
            display.say(words(record, free))
    ordered = [recipe for own in recipes.values() for recipe in own]
    best = decide(record.scores, [recipe.name for recipe in ordered if recipe.is_free])[0]
    tried = next(own for own in recipes.values() if any(recipe.name == best for recipe in own))
    trainings = dict.fromkeys(recipe.training for recipe in tried if not recipe.is_free)
    for split in range(len(splits)):
        for training in trainings:
            if not scored([recipe for recipe in tried if recipe.training == training], split):
                return None
        display.say(f"split {split + 1} of {len(splits)}: {words(record, tried, split)}")
        if seconds_left() < 0 or (split % 2 == 1 and is_clear(record.scores, tried, n_splits=split + 1)):
            break
    record.chosen, gains = decide(record.scores, [recipe.name for recipe in ordered])
    rows, record.why = summary(record, gains, ordered)
    chosen = next(recipe for recipe in ordered if recipe.name == record.chosen)
    config = with_settings(chosen.config, {"run": {"choose_minutes": 0.0, "choose_networks": ()}})
    run.save_choice(record.to_json())
    run.save_config(config)
    display.table("On held-out halves of the training classes", rows)
    display.say(f"chosen: {record.chosen}")
    return config


def recipes_by_network(config: TrainConfig, dataset: ImageDataset) -> dict[str, list[Candidate]]:
    """What is to be compared: the network of the run first, then the others that were named."""
    n_images, networks = int((dataset.splits == "train").sum()), {network_facts(config.model.backbone).name: config}
    for named in config.run.choose_networks:
        if (name := network_facts(named).name) not in networks:
            networks[name] = with_network(config, named, n_images)
    return {
        name: candidates(own, network_facts(own.model.backbone).n_features, name if len(networks) > 1 else "")
        for name, own in networks.items()
    }


def _has_time(
    record: Record, free: Sequence[Candidate], dataset: ImageDataset, seconds_left: Callable[[], float], display: Display
) -> bool:
    """Whether a network can be compared in half of the time that is left; the other half is for training."""
    network = free[0].network
    if free[0].name in record.scores or network in record.left_out:
        return network not in record.left_out
    needed = embedding_seconds(free[0], dataset) if seconds_left() > 0 else math.inf
    if needed <= seconds_left() / 2:
        return True
    record.left_out.append(network)
    about = "" if needed == math.inf else f": it would take about {needed / 60:.1f} minutes for these images"
    display.say(f"{network} is left out for lack of time{about} (--set run.choose_minutes=… gives more)")
    return False


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
    for own in list(recipes_by_network(session.config, dataset).values())[1:]:
        network_of(own[0].config)  # its weights are here, or are downloaded now


def _scorable(dataset: ImageDataset) -> NDArray[np.int64]:
    """Training classes with several images; those with one always train."""
    return np.flatnonzero(np.bincount(dataset.labels[dataset.splits == "train"]) > 1)
