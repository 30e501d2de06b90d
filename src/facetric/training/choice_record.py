"""choice.json, and the choice in words: the scores of every candidate, and why the chosen one was chosen."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from facetric.files import checksummed, read_checksummed
from facetric.runs import Run
from facetric.training.choice_candidates import FINE_TUNED, HALFWAY, HEAD, PRETRAINED, Candidate, ClassScores

_GAINED = {HEAD: "training its head", HALFWAY: "going halfway to fine-tuned weights", FINE_TUNED: "fine-tuning"}
_log = logging.getLogger("facetric")


@dataclass
class Record:
    """choice.json: every score so far, the time that it took, and in the end what was chosen."""

    seconds: float = 0.0
    scores: dict[str, dict[int, ClassScores]] = field(default_factory=dict)  # candidate → split → class
    left_out: list[str] = field(default_factory=list)  # networks that there was no time to compare
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
        return cls(float(values["seconds"]), scores, list(values.get("left_out", ())), values["chosen"], values["why"])

    def to_json(self) -> bytes:
        return checksummed(self.__dict__)


def kept_record(run: Run) -> Record:
    """That of a choice which was stopped; an empty one where there is none."""
    if not run.choice_file.is_file():
        return Record()
    try:
        return Record.from_json(run.choice_file.read_bytes())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        _log.warning("%s is damaged (%s); the choice starts again", run.choice_file, error)
        return Record()


def summary(
    record: Record, gains: dict[str, tuple[float, float]], recipes: Sequence[Candidate]
) -> tuple[dict[str, dict[str, float]], str]:
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
    if len({recipe.network for recipe in recipes}) > 1:
        left_out = f"; left out for lack of time: {', '.join(record.left_out)}" * bool(record.left_out)
        return rows, f"chosen: {chosen}; {_which_network(record, rows, recipes)}{left_out} ({how})"
    if chosen == PRETRAINED:
        return rows, f"chosen: {PRETRAINED}; nothing was better by more than its standard error ({how})"
    (r_before, m_before), (r_after, m_after) = (
        (100 * rows[name]["class-mean R@1"], 100 * rows[name]["class-mean MAP@R"]) for name in (PRETRAINED, chosen)
    )
    return rows, (
        f"chosen: {chosen}; on held-out classes class-mean R@1 goes from {r_before:.1f} to {r_after:.1f} and "
        f"class-mean MAP@R from {m_before:.1f} to {m_after:.1f} ({how})"
    )


def _which_network(record: Record, rows: dict[str, dict[str, float]], recipes: Sequence[Candidate]) -> str:
    """Which network sees these photos best without training, and what training gains on it."""
    chosen = next(recipe for recipe in recipes if recipe.name == record.chosen)
    best: dict[str, float] = {}  # MAP@R of a network without training, in the order in which they were compared
    for recipe in recipes:
        if recipe.is_free and recipe.name in rows:
            best[recipe.network] = max(best.get(recipe.network, 0.0), 100 * rows[recipe.name]["class-mean MAP@R"])
    first, own = next(iter(best)), best[chosen.network]
    if chosen.network != first:
        sees = f"{chosen.network} sees these photos best"
        against = f"{best[first]:.1f} of {first}"
    else:
        sees = f"no larger network sees these photos better than {first} by more than the standard error"
        against = ", ".join(f"{value:.1f} of {network}" for network, value in best.items() if network != first)
    sees += f" (class-mean MAP@R {own:.1f} on held-out classes against {against})" if against else ""
    if chosen.is_free:
        return f"{sees}; training gained nothing that exceeds its standard error"
    what = chosen.name.removeprefix(f"{chosen.network}: ")
    gained = 100 * rows[chosen.name]["class-mean MAP@R"] - own
    return f"{sees}; {_GAINED.get(what, what)} gained {gained:.1f} more"


def words(record: Record, recipes: Sequence[Candidate], split: int | None = None) -> str:
    """The scores of these candidates on one split, or on all that they were scored on."""
    found = {}
    for recipe in recipes:
        splits = record.scores.get(recipe.name, {})
        if splits and (split is None or split in splits):
            found[recipe.name] = _means(splits, set(splits) if split is None else {split})
    named = (f"{name} {100 * recall:.1f} / {100 * precision:.1f}" for name, (recall, precision) in found.items())
    return f"class-mean R@1 / MAP@R: {'; '.join(named)}"


def _means(scores: dict[int, ClassScores], splits: set[int]) -> tuple[float, float]:
    """Recall@1 and MAP@R over the classes of these splits."""
    rows = np.array([values for split in sorted(splits & scores.keys()) for values in scores[split].values()])
    recall, precision = rows.mean(axis=0)
    return float(recall), float(precision)
