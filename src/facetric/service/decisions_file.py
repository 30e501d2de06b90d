"""The decisions file of a service: a change is on the disk before it is acknowledged, and one process owns the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from facetric.files import sealed, write_atomically
from facetric.photos import Decisions
from facetric.photos.decisions import Decision
from facetric.text import printable

MOST = 100_000  # decisions


class ContradictionError(ValueError):
    """A change that cannot hold together with what was decided before."""


class DecisionsFile:
    """All decisions, in memory and in a file of the format that `facetric cluster --decisions` reads.

    `change` is called from one thread at a time.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.decisions = Decisions()
        self._lock = FileLock(path.with_name(f".{path.name}.lock"), thread_local=False)  # closed by another thread

    def open(self) -> None:
        """Read the file and become its owner, or a RuntimeError."""
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise RuntimeError(f"{printable(self.path)} belongs to another running `facetric serve`: stop it first") from None
        try:
            if self.path.exists():
                self.decisions = Decisions.read(self.path)
        except BaseException:
            self._lock.release()
            raise

    def close(self) -> None:
        self._lock.release()

    def change(self, record: Mapping[str, Any], paths: Mapping[str, Sequence[str]]) -> Decisions:
        """Add the `decisions` of a record and take back those that it lists as `removed`; all decisions when they are written.

        `paths` are the photos of the index: the paths, below its folder, of each content. A decision that is made again counts
        from now on, so a change that is sent twice is made once. ContradictionError where it cannot hold, ValueError where it
        means nothing.
        """
        added = _parsed(record, "decisions")
        gone = {_key(decision) for decision in (*added, *_parsed(record, "removed"))}
        kept = [decision for decision in self.decisions.decisions if _key(decision) not in gone]
        changed = Decisions((*kept, *{_key(decision): decision for decision in added}.values()))
        if len(changed.decisions) > MOST:
            raise ContradictionError(f"there may be {MOST:,} decisions: name and merge whole groups instead of single photos")
        content_of = {path: content for content, own in paths.items() for path in own}
        for decision in added:
            if not any(photo.content in paths or photo.path in content_of for photo in decision.photos):
                raise ValueError(f"none of the photos of a decision {decision.do!r} is in the index: send ids of the index")
        try:
            changed.constraints(list(paths), content_of)
        except ValueError as error:
            raise ContradictionError(str(error)) from None
        if changed == self.decisions:
            return changed
        write_atomically(self.path, sealed(changed.as_dict()))
        self.decisions = changed
        return changed


def _parsed(record: Mapping[str, Any], rows: str) -> tuple[Decision, ...]:
    return Decisions.from_dict({**record, "decisions": record.get(rows, [])}).decisions


def _key(decision: Decision) -> tuple[str, tuple[str, ...], str]:
    """Paths change; what was decided about which contents does not."""
    return decision.do, tuple(photo.content for photo in decision.photos), decision.name
