"""`PhotoGroups`: photos in groups, as a record, as a table and as folders."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facetric.clustering import ExpectedPrecision, PairLinkage
from facetric.files import write_atomically
from facetric.images import Problem
from facetric.photos.arrangement import How, arrange, folder_name
from facetric.photos.decisions import Decisions
from facetric.photos.grouping import grouped
from facetric.photos.store import check_ours, csv_table
from facetric.progress import Progress
from facetric.text import counted, printable, readable

COLUMNS = ("path", "cluster", "medoid", "ambiguity")
TABLE_MARK = b"path,cluster,medoid,"  # how a table begins, also an older one
LONELY = "alone"  # the folder of photos that are alone
_SURENESS = (  # from this expected precision on
    (0.9, "almost certainly one kind"),
    (0.6, "probably one kind, with a few others"),
    (0.4, "perhaps several kinds"),
    (0.0, "probably several kinds: look here first"),
)


@dataclass(frozen=True, eq=False)
class PhotoGroups:
    """The photos of a folder in groups, the largest first; files with the same bytes are always in one group."""

    root: Path
    photos: tuple[Path, ...]  # relative to root, by path
    contents: tuple[str, ...]  # the hash of each file, in hex
    clusters: NDArray[np.int64]  # (n,) −1 for photos that were rejected
    medoids: NDArray[np.int64]  # (n_clusters,) a photo of each
    precision: NDArray[np.float64]  # (n_clusters,) how often two photos of it should belong together; NaN for one photo
    ambiguity: NDArray[np.float64]  # (n,)
    names: Mapping[int, str]  # of clusters that have one
    questions: NDArray[np.int64]  # (n_questions, 2) photos: do they belong together? The most useful first
    decisions: Decisions
    expected: ExpectedPrecision | None  # of all clusters
    made_by: str = ""  # the model, and what taught it which photos belong together
    problems: tuple[Problem, ...] = ()
    n_new: int = 0  # photos that were embedded now
    noun: str = "photo"  # what they are

    @property
    def sizes(self) -> NDArray[np.int64]:
        """(n_clusters,)"""
        return np.bincount(self.clusters[self.clusters >= 0], minlength=len(self.medoids))

    @property
    def n_groups(self) -> int:
        """Clusters of two photos or more."""
        return int((self.sizes > 1).sum())

    @property
    def n_alone(self) -> int:
        return int((self.sizes == 1).sum())

    @property
    def summary(self) -> tuple[str, ...]:
        """Lines: how many there are, what to expect of them if that is known, and what made them."""
        rejected = int((self.clusters < 0).sum())
        lines = [f"{counted(len(self.photos), self.noun)}: {counted(self.n_groups, 'group')}, {self.n_alone:,} alone"]
        lines[0] += f", {rejected:,} rejected" if rejected else ""
        if self.expected is not None:
            value, recall = 100 * self.expected.precision.value, 100 * self.expected.recall
            lines.append(
                f"roughly {value:.0f} in 100 pairs of photos in one group are of one kind; of the pairs that are of one kind, "
                f"roughly {recall:.0f} in 100 share a group"
            )
        return *lines, self.made_by

    def members(self, cluster: int) -> list[Path]:
        """The photos of a cluster, the medoid first, then the most ambiguous."""
        rows = np.flatnonzero(self.clusters == cluster)
        order = np.lexsort((rows, -self.ambiguity[rows], rows != self.medoids[cluster]))
        return [self.photos[row] for row in rows[order]]

    def precision_of(self, cluster: int) -> float | None:
        """Expected, rounded; None for a photo that is alone."""
        return None if np.isnan(self.precision[cluster]) else round(float(self.precision[cluster]), 4)

    def sureness(self, cluster: int) -> str:
        """How sure it is that a group is of one kind, in words; empty for a photo that is alone."""
        precision = self.precision[cluster]
        return "" if np.isnan(precision) else next(words for least, words in _SURENESS if precision >= least)

    def record(self) -> dict[str, Any]:
        """Groups by the hashes of their photos, for JSON; the medoid comes first, then the most ambiguous."""
        first = np.sort(np.unique(self.contents, return_index=True)[1])  # of each content
        is_medoid = np.isin(first, self.medoids)
        first = first[np.lexsort((-self.ambiguity[first], ~is_medoid, self.clusters[first]))]
        members: dict[int, list[dict[str, Any]]] = {}
        for row in first.tolist():
            photo = {"id": self.contents[row], "ambiguity": round(float(self.ambiguity[row]), 4)}
            members.setdefault(int(self.clusters[row]), []).append(photo)
        rejected, expected = members.pop(-1, []), None
        if self.expected is not None:
            precision = self.expected.precision
            limits = (precision.low, precision.high)
            expected = {"precision": precision.value, "precision_range": limits, "recall": self.expected.recall}
        return {
            "n_photos": len(self.photos),
            "n_groups": self.n_groups,
            "n_alone": self.n_alone,
            "made_by": self.made_by,
            "expected": expected,
            "clusters": [
                {"name": self.names.get(cluster), "precision": self.precision_of(cluster), "photos": members[cluster]}
                for cluster in sorted(members)
            ],
            "rejected": [photo["id"] for photo in rejected],
            "questions": [{"first": self.contents[a], "second": self.contents[b]} for a, b in self.questions.tolist()],
        }

    def save_table(self, path: str | os.PathLike[str]) -> None:
        """Write path,cluster,medoid,ambiguity and, if there are names, name: a row per photo, paths from the table's folder."""
        check_ours(Path(path), TABLE_MARK, "cluster")
        write_atomically(Path(path), self.table(Path(path)))

    def table(self, path: Path) -> bytes:
        """What `save_table` writes there."""
        start = os.path.relpath(self.root.resolve(), path.resolve().parent)
        paths = [readable(Path(start) / photo) for photo in self.photos]
        rows: list[Sequence[object]] = [(*COLUMNS, "name")]
        for own, cluster, ambiguity in zip(paths, self.clusters.tolist(), self.ambiguity.tolist(), strict=True):
            row = ("", "", "") if cluster < 0 else (cluster + 1, paths[self.medoids[cluster]], f"{ambiguity:.4f}")
            rows.append((own, *row, self.names.get(cluster, "")))
        return csv_table(rows if self.names else [row[:-1] for row in rows])

    def arrange(self, target: str | os.PathLike[str], how: How = "copy", *, progress: Progress | None = None) -> int:
        """A folder for every group, with copies of its photos or links to them; how many of them are new there.

        Originals stay where they are, and no file is overwritten. Rejected photos are left out.
        """
        folder = Path(target).expanduser()
        check_target(self.root, folder, how)
        return arrange(self._placed(), folder, how, progress=progress)

    def _placed(self) -> Iterator[tuple[str, Path, str]]:
        sizes, digits = self.sizes, len(str(self.n_groups))
        taken: dict[str, int] = {}
        for photo, content, cluster in zip(self.photos, self.contents, self.clusters.tolist(), strict=True):
            if cluster < 0:
                continue
            folder = folder_name(self.names.get(cluster, LONELY if sizes[cluster] == 1 else f"group {cluster + 1:0{digits}}"))
            if folder != LONELY and taken.setdefault(folder, cluster) != cluster:  # names that differ in characters left out
                folder = f"{folder} ({cluster + 1})"
            yield folder, self.root / photo, content


def group_photos(
    root: Path,
    photos: Mapping[Path, bytes],
    vectors: NDArray[np.float32],
    clusterer: PairLinkage,
    made_by: str,
    *,
    decisions: Decisions,
    progress: Progress | None = None,
) -> PhotoGroups:
    """Group `photos` below `root`, each with its content; `vectors` are those of the distinct contents, by first appearance."""
    paths, contents = [photo.relative_to(root) for photo in photos], [content.hex() for content in photos.values()]
    unique = list(dict.fromkeys(contents))
    point = {content: i for i, content in enumerate(unique)}
    points = np.array([point[content] for content in contents])
    photo = np.unique(points, return_index=True)[1]  # the first of each content
    by_path = {readable(path): content for path, content in zip(paths, contents, strict=True)}
    found = grouped(vectors, clusterer, decisions.constraints(unique, by_path), progress=progress)
    return PhotoGroups(
        root=root,
        photos=tuple(paths),
        contents=tuple(contents),
        clusters=found.labels[points],
        medoids=photo[found.medoids],
        precision=found.precision,
        ambiguity=found.ambiguity[points],
        names=found.names,
        questions=photo[found.questions],
        decisions=decisions,
        expected=found.expected,
        made_by=made_by,
    )


def check_target(root: Path, target: Path, how: How) -> None:
    """A ValueError if groups cannot become folders below `target`."""
    if target.expanduser().resolve().is_relative_to(root.expanduser().resolve()):
        raise ValueError(
            f"{printable(target)} lies in the folder of photos, and would be clustered next time: choose a place outside "
            f"({how}_to=)"
        )
    if target.expanduser().is_file():
        raise ValueError(f"{printable(target)} is a file: pass a folder ({how}_to=)")
