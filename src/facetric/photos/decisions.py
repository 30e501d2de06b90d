"""What people decided about photos, as links for a clusterer: it outlives renamed files, new photos and new models.

A decision is one of

    same       these photos belong together
    different  these two do not
    name       the group of these photos has this name; an empty one takes the name away
    reject     this photo belongs to no group

Photos are told by the hash of their content, and by their path where that content is gone. They come from a file that the page
saved, or from clusters.csv with names that somebody wrote into it.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from facetric.files import checksummed, read_checksummed, write_atomically
from facetric.images import content_hash
from facetric.text import printable, readable

if TYPE_CHECKING:
    from facetric.photos.store import Store

FORMAT, FILE, BEFORE = "facetric decisions 1", "decisions.json", "decisions-before.json"
MOST = 100_000  # decisions
_LENGTHS = {"same": (2, None), "different": (2, 2), "name": (1, None), "reject": (1, None)}  # of photos: at least, at most


class ContradictionError(ValueError):
    """A change that cannot hold together with what was decided before."""


@dataclass(frozen=True)
class DecidedPhoto:
    """A photo that a decision is about."""

    content: str  # the hash of its file, in hex
    path: str  # below the folder of photos, when it was decided


@dataclass(frozen=True)
class Decision:
    """One decision: `do` is same, different, name or reject."""

    do: str
    photos: tuple[DecidedPhoto, ...]
    name: str = ""

    @property
    def key(self) -> tuple[str, tuple[str, ...], str]:
        """Paths change; what was decided about which contents does not."""
        return self.do, tuple(photo.content for photo in self.photos), self.name


@dataclass(frozen=True)
class Constraints:
    """Decisions about the points of one clustering."""

    must_link: tuple[tuple[int, int], ...] = ()
    cannot_link: tuple[tuple[int, int], ...] = ()
    names: Mapping[int, str] = field(default_factory=dict)  # of some points
    rejected: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Decisions:
    """All decisions, in the order in which they were made."""

    decisions: tuple[Decision, ...] = ()

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Decisions:
        """A file that the page of `facetric cluster` saved, or one of `facetric serve`, which has a checksum."""
        file = Path(path).expanduser()
        try:
            return cls.from_dict(_record(file.read_bytes()))
        except FileNotFoundError:
            raise ValueError(f"{printable(file)} does not exist: save it on the page, or leave --decisions out") from None
        except UnicodeDecodeError:
            raise ValueError(f"{printable(file)} is not a text file: pass a file that the page saved (--decisions)") from None
        except json.JSONDecodeError as error:
            raise ValueError(f"{printable(file)} is not valid JSON ({error}): save it on the page again (--decisions)") from None
        except ValueError as error:
            raise ValueError(f"{printable(file)} {error} (--decisions)") from None

    @classmethod
    def read_all(cls, paths: Iterable[str | os.PathLike[str]], root: str | os.PathLike[str]) -> Decisions:
        """Those of several files, one after the other; `root` is the folder of photos."""
        files = map(Path, paths)
        read = (cls.read_table(file, root) if file.suffix.lower() == ".csv" else cls.read(file) for file in files)
        return cls(tuple(decision for one in read for decision in one.decisions))

    @classmethod
    def read_table(cls, path: str | os.PathLike[str], root: str | os.PathLike[str]) -> Decisions:
        """The column `name` of clusters.csv, as somebody filled it in: photos of one name are one group, those of two names are
        two; a photo whose `cluster` was emptied is rejected. `root` is the folder of photos. Files that are gone are left out.
        """
        table, n_gone = Path(path).expanduser(), 0
        names: dict[str, list[DecidedPhoto]] = {}
        rejected: list[DecidedPhoto] = []
        try:
            rows = csv.DictReader(io.StringIO(table.read_bytes().decode("utf-8-sig"), newline=""))
            if not {"path", "cluster"} <= set(rows.fieldnames or ()):
                raise ValueError(f"{printable(table)} must have the columns path, cluster and name of clusters.csv (--decisions)")
            for row in rows:
                name, file = " ".join((row.get("name") or "").split()), table.parent / (row["path"] or "")
                if not name and row["cluster"]:
                    continue
                if file.is_file():
                    below = Path(os.path.relpath(file.resolve(), Path(root).expanduser().resolve()))
                    photo = DecidedPhoto(content_hash(file.read_bytes()).hex(), readable(below))
                    (names.setdefault(name, []) if row["cluster"] else rejected).append(photo)
                else:
                    n_gone += 1
        except FileNotFoundError:
            raise ValueError(f"{printable(table)} does not exist: pass clusters.csv, or leave --decisions out") from None
        except (UnicodeDecodeError, csv.Error) as error:
            raise ValueError(f"{printable(table)} is not a CSV file in UTF-8 ({error}): save it as one (--decisions)") from None
        if n_gone and not names and not rejected:
            raise ValueError(
                f"{printable(table)} is about {n_gone:,} photos, and none is where its path leads: paths start from the folder "
                "of the table, so keep it there (--decisions)"
            )
        found = [Decision("name", tuple(photos), name) for name, photos in names.items()]
        return cls((*found, *([Decision("reject", tuple(rejected))] if rejected else [])))

    @classmethod
    def from_dict(cls, record: Any) -> Decisions:
        """What :meth:`as_dict` gave."""
        found = record.get("format") if isinstance(record, dict) else None
        if found != FORMAT:
            raise ValueError(f'must be a JSON object with "format": "{FORMAT}"; got {found!r}: save it on the page again')
        try:
            photos = [DecidedPhoto(str(photo["content"]), str(photo["path"])) for photo in record["photos"]]
            return cls(tuple(_decision(row, photos) for row in record["decisions"]))
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(f"is damaged ({error!r}): save it on the page again") from None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for a JSON file; every photo is listed once."""
        places: dict[DecidedPhoto, int] = {}
        rows = []
        for decision in self.decisions:
            row: dict[str, Any] = {"do": decision.do, "photos": [places.setdefault(p, len(places)) for p in decision.photos]}
            rows.append(row | ({"name": decision.name} if decision.do == "name" else {}))
        photos = [{"content": photo.content, "path": photo.path} for photo in places]
        return {"format": FORMAT, "photos": photos, "decisions": rows}

    def changed(self, record: Mapping[str, Any], paths: Mapping[str, Sequence[str]]) -> Decisions:
        """With the `decisions` of a record, and without those that it lists as `removed`.

        `paths` are the photos that there are: the paths, below their folder, of each content. A decision that is made again
        counts from now on, so a change that is sent twice is made once. ContradictionError where it cannot hold, ValueError where
        it means nothing.
        """
        added, removed = (Decisions.from_dict({**record, "decisions": record.get(x, [])}) for x in ("decisions", "removed"))
        gone = {decision.key for decision in (*added.decisions, *removed.decisions)}
        kept = [decision for decision in self.decisions if decision.key not in gone]
        changed = Decisions((*kept, *{decision.key: decision for decision in added.decisions}.values()))
        if len(changed.decisions) > MOST:
            raise ContradictionError(f"there may be {MOST:,} decisions: name and merge whole groups instead of single photos")
        content_of = {path: content for content, own in paths.items() for path in own}
        for decision in added.decisions:
            if not any(photo.content in paths or photo.path in content_of for photo in decision.photos):
                raise ValueError(f"none of the photos of a decision {decision.do!r} is in the index: send ids of the index")
        try:
            changed.constraints(list(paths), content_of)
        except ValueError as error:
            raise ContradictionError(str(error)) from None
        return changed

    def constraints(self, contents: Sequence[str], paths: Mapping[str, str]) -> Constraints:
        """The decisions as links between points; `contents` are those of the points, `paths` the content of every path.

        What was decided about photos that are gone still joins those that are left. Contradictions are a ValueError.
        """
        points = {content: point for point, content in enumerate(contents)}
        key = {photo: _key(photo, points, paths) for decision in self.decisions for photo in decision.photos}
        label = {key[photo]: photo.path for photo in key}
        rejected = {key[photo] for decision in self.decisions if decision.do == "reject" for photo in decision.photos}
        names = self._names(key)
        joined = _Union()
        for decision in self.decisions:
            if decision.do == "same":
                joined.join([key[photo] for photo in decision.photos])
        anchors: dict[str, list[str]] = {}
        for content, name in names.items():
            anchors.setdefault(name, []).append(content)
        _check_names(names, joined, label)
        for same_name in anchors.values():
            joined.join(same_name)
        apart = [(key[d.photos[0]], key[d.photos[1]]) for d in self.decisions if d.do == "different"]
        for a, b in apart:
            if joined.root(a) == joined.root(b):
                raise ValueError(
                    f"decisions contradict each other: {printable(label[a])} and {printable(label[b])} are different, and "
                    "also the same, directly or through others: remove one of these decisions on the page"
                )
        apart += combinations([same_name[0] for same_name in anchors.values()], 2)
        present = {root: [c for c in members if c in points and c not in rejected] for root, members in joined.members().items()}
        first = {root: members[0] for root, members in present.items() if members}

        def point(content: str) -> int | None:
            found = first.get(joined.root(content), content if content not in rejected else None)
            return points.get(found) if found is not None else None

        pairs = {(point(a), point(b)) for a, b in apart}
        return Constraints(
            tuple((points[members[0]], points[other]) for members in present.values() for other in members[1:]),
            tuple(sorted((a, b) for a, b in pairs if a is not None and b is not None)),
            {found: name for content, name in names.items() if (found := point(content)) is not None},
            frozenset(points[content] for content in rejected if content in points),
        )

    def _names(self, key: Mapping[DecidedPhoto, str]) -> dict[str, str]:
        names: dict[str, str] = {}
        for decision in self.decisions:
            if decision.do == "name":
                names |= dict.fromkeys((key[photo] for photo in decision.photos), decision.name)
        return {content: name for content, name in names.items() if name}


def _record(data: bytes) -> Any:
    """What a file holds, its checksum compared if it has one."""
    record = json.loads(data.decode())
    if not isinstance(record, dict):
        return record
    try:
        return read_checksummed(data, required=False)
    except ValueError as error:
        raise ValueError(f'is damaged ({error}): restore it, or remove its "sha256" if the change is yours') from None


def _decision(row: Mapping[str, Any], photos: Sequence[DecidedPhoto]) -> Decision:
    do, name = row["do"], row.get("name", "")
    if do not in _LENGTHS:
        raise ValueError(f"has the unknown decision {do!r}; known are {', '.join(_LENGTHS)}: save it on the page again")
    if not isinstance(name, str) or min(row["photos"], default=-1) < 0:
        raise TypeError(row)
    chosen = tuple(photos[place] for place in dict.fromkeys(row["photos"]))
    least, most = _LENGTHS[do]
    if len(chosen) < least or (most is not None and len(chosen) > most):
        raise ValueError(f"has a decision {do!r} about {len(chosen)} photos: save it on the page again")
    return Decision(do, chosen, " ".join(name.split()))


def _key(photo: DecidedPhoto, points: Mapping[str, int], paths: Mapping[str, str]) -> str:
    """The content of the photo now: its own, or that of the file in its place."""
    return photo.content if photo.content in points else paths.get(photo.path, photo.content)


def _check_names(names: Mapping[str, str], joined: _Union, label: Mapping[str, str]) -> None:
    known: dict[str, str] = {}
    for content, name in names.items():
        other = known.setdefault(joined.root(content), content)
        if names[other] != name:
            raise ValueError(
                f"decisions contradict each other: {printable(label[other])} is named {printable(names[other])!r} and "
                f"{printable(label[content])} {printable(name)!r}, but they are the same, directly or through others: remove one "
                "of these decisions on the page"
            )


class _Union:
    """Sets of contents that grow together."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def root(self, content: str) -> str:
        parents = self._parents
        while (parent := parents.get(content, content)) != content:
            parents[content] = content = parents[parent]
        return content

    def join(self, contents: Sequence[str]) -> None:
        for content in contents:
            self._parents.setdefault(content, content)
            self._parents[self.root(content)] = self.root(contents[0])

    def members(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for content in self._parents:
            found.setdefault(self.root(content), []).append(content)
        return found


def kept_decisions(store: Store, address: str) -> Decisions:
    """Those of a collection; a decisions.json that was put into its folder since takes their place, once."""
    file = Path(address).expanduser() / FILE
    if address.startswith("milvus:") or not file.is_file():
        return store.decisions()
    digest = content_hash(file.read_bytes()).hex()
    if store.noted(FILE) == digest:
        return store.decisions()
    found = replace_decisions(store, address, Decisions.read(file))
    store.note(FILE, digest)
    return found


def replace_decisions(store: Store, address: str, given: Decisions) -> Decisions:
    """Keep these in a collection instead; those that are lost by that are written to decisions-before.json."""

    def change(before: Decisions) -> Decisions:
        if not set(before.decisions) <= set(given.decisions):
            write_atomically(Path(address).expanduser() / BEFORE, checksummed(before.as_dict()))
        return given

    return store.decide(change)
