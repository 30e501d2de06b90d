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
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array  # type: ignore[import-untyped]
from scipy.sparse.csgraph import connected_components  # type: ignore[import-untyped]

from facetric.files import read_checksummed
from facetric.images import content_hash
from facetric.text import counted, printable, readable

FORMAT = "facetric decisions 1"
MOST = 100_000  # decisions
_LENGTHS = {"same": (2, None), "different": (2, 2), "name": (1, None), "reject": (1, None)}  # of photos: at least, at most
_CONTRADICTION = "decisions contradict each other: {}, directly or through others: remove one of these decisions on the page"


class ContradictionError(ValueError):
    """Decisions that cannot hold together."""


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

    def __post_init__(self) -> None:
        if self.do not in _LENGTHS:
            raise ValueError(f"has the unknown decision {self.do!r}; known are {', '.join(_LENGTHS)}: save it on the page again")
        least, most = _LENGTHS[self.do]
        if not least <= len(self.photos) <= (most or len(self.photos)):
            raise ValueError(f"has a decision {self.do!r} about {counted(len(self.photos), 'photo')}: save it on the page again")

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
            record = read_checksummed(file.read_bytes(), required=False)
        except FileNotFoundError:
            raise ValueError(f"{printable(file)} does not exist: save it on the page, or leave it out") from None
        except ValueError as error:
            way_out = 'restore it, or remove its "sha256" if the change is yours; or save it on the page again'
            raise ValueError(f"{printable(file)} is damaged ({error}): {way_out}") from None
        try:
            return cls.from_dict(record)
        except ValueError as error:
            raise ValueError(f"{printable(file)} {error}") from None

    @classmethod
    def read_all(cls, paths: Iterable[str | os.PathLike[str]], root: str | os.PathLike[str] | None) -> Decisions:
        """Those of several files, one after the other; `root` is the folder of photos, None for names without photos."""
        files = map(Path, paths)
        read = (cls.read_table(file, root) if file.suffix.lower() == ".csv" else cls.read(file) for file in files)
        return cls(tuple(decision for one in read for decision in one.decisions))

    @classmethod
    def read_table(cls, path: str | os.PathLike[str], root: str | os.PathLike[str] | None) -> Decisions:
        """The column `name` of clusters.csv, as somebody filled it in: photos of one name are one group, those of two names are
        two; a photo whose `cluster` was emptied is rejected. `root` is the folder of photos. Files that are gone are left out.
        Without it, paths are names, and no files.
        """
        table, n_gone = Path(path).expanduser(), 0
        names: dict[str, list[DecidedPhoto]] = {}
        rejected: list[DecidedPhoto] = []
        try:
            rows = csv.DictReader(io.StringIO(table.read_bytes().decode("utf-8-sig"), newline=""))
            if not {"path", "cluster"} <= set(rows.fieldnames or ()):
                raise ValueError(f"{printable(table)} must have the columns path, cluster and name of clusters.csv")
            for row in rows:
                name, file = " ".join((row.get("name") or "").split()), table.parent / (row["path"] or "")
                if not name and row["cluster"]:
                    continue
                if root is None:
                    photo = DecidedPhoto(content_hash(os.fsencode(row["path"] or "")).hex(), row["path"] or "")
                    (names.setdefault(name, []) if row["cluster"] else rejected).append(photo)
                elif file.is_file():
                    below = Path(os.path.relpath(file.resolve(), Path(root).expanduser().resolve()))
                    photo = DecidedPhoto(content_hash(file.read_bytes()).hex(), readable(below))
                    (names.setdefault(name, []) if row["cluster"] else rejected).append(photo)
                else:
                    n_gone += 1
        except FileNotFoundError:
            raise ValueError(f"{printable(table)} does not exist: pass clusters.csv, or leave it out") from None
        except (UnicodeDecodeError, csv.Error) as error:
            raise ValueError(f"{printable(table)} is not a CSV file in UTF-8 ({error}): save it as one") from None
        if n_gone and not names and not rejected:
            raise ValueError(
                f"{printable(table)} is about {counted(n_gone, 'photo')}, and none is where its path leads: paths start from the "
                "folder of the table, so keep it there"
            )
        found = [Decision("name", tuple(photos), name) for name, photos in names.items()]
        return cls((*found, *([Decision("reject", tuple(rejected))] if rejected else [])))

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Decisions:
        """What :meth:`as_dict` gave."""
        if (found := record.get("format") if isinstance(record, Mapping) else type(record).__name__) != FORMAT:
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
        changed.constraints(list(paths), content_of)
        return changed

    def constraints(self, contents: Sequence[str], paths: Mapping[str, str]) -> Constraints:
        """The decisions as links between points; `contents` are those of the points, `paths` the content of every path.

        What was decided about photos that are gone still joins those that are left. ContradictionError where they cannot hold.
        """
        n, number = len(contents), {content: point for point, content in enumerate(contents)}
        place: dict[DecidedPhoto, int] = {}  # the point, or a number beyond them for a photo that is gone
        for photo in dict.fromkeys(photo for decision in self.decisions for photo in decision.photos):
            content = photo.content if photo.content in number else paths.get(photo.path, photo.content)
            place[photo] = number.setdefault(content, len(number))
        label = {place[photo]: printable(photo.path) for photo in place}
        links: dict[str, list[tuple[int, int]]] = {"same": [], "different": []}
        given: dict[int, str] = {}
        rejected: set[int] = set()
        for decision in self.decisions:
            first, *others = own = [place[photo] for photo in decision.photos]
            if decision.do == "reject":
                rejected.update(own)
            elif decision.do == "name":
                given |= dict.fromkeys(own, decision.name)
            else:
                links[decision.do] += [(first, other) for other in others]
        names = {point: name for point, name in given.items() if name}
        parts, known = joined(links["same"], len(number)), dict[int, int]()
        for point, name in names.items():
            if names[other := known.setdefault(int(parts[point]), point)] != name:
                two = f"{label[other]} is named {printable(names[other])!r} and {label[point]} {printable(name)!r}"
                raise ContradictionError(_CONTRADICTION.format(f"{two}, but they are the same"))
        anchors: dict[str, int] = {}
        links["same"] += [(anchors.setdefault(name, point), point) for point, name in names.items()]
        parts = joined(links["same"], len(number))
        for a, b in links["different"]:
            if parts[a] == parts[b]:
                raise ContradictionError(_CONTRADICTION.format(f"{label[a]} and {label[b]} are different, and also the same"))
        here = [point for point in range(n) if point not in rejected]
        leader = dict(zip(parts[here[::-1]].tolist(), here[::-1], strict=True))  # the first of each
        led: list[int] = [leader.get(part, -1) for part in parts.tolist()]  # −1: nobody of them is here
        apart = {(led[a], led[b]) for a, b in [*links["different"], *combinations(anchors.values(), 2)]}
        return Constraints(
            tuple((led[point], point) for point in here if led[point] != point),
            tuple(sorted(pair for pair in apart if min(pair) >= 0)),
            {led[point]: name for point, name in names.items() if led[point] >= 0},
            frozenset(point for point in rejected if point < n),
        )


def joined(pairs: Sequence[tuple[int, int]] | NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Points that pairs join, directly or through others, have one number. (n,)"""
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    graph = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(n, n))
    parts: NDArray[np.int64] = connected_components(graph, directed=False)[1]
    return parts


def _decision(row: Mapping[str, Any], photos: Sequence[DecidedPhoto]) -> Decision:
    do, name = row["do"], row.get("name", "")
    if not isinstance(name, str) or min(row["photos"], default=-1) < 0:
        raise TypeError(row)
    return Decision(do, tuple(photos[place] for place in dict.fromkeys(row["photos"])), " ".join(name.split()))
