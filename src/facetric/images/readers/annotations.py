"""What a dataset's files claim, unverified: every reader lists first, then checks, then returns the dataset."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facetric.images.dataset import ImageDataset
from facetric.text import name_some, printable

UNDECIDED = "all"  # the split of images that no file assigns to one


@dataclass(frozen=True)
class SplitCount:
    """The size of one split."""

    n_classes: int
    n_images: int

    def __str__(self) -> str:
        return f"{self.n_classes:,} classes with {self.n_images:,} images"


# The sizes of the paper's splits (Section 5).
PUBLISHED: dict[str, dict[str, SplitCount]] = {
    "cub": {"train": SplitCount(100, 5_864), "test": SplitCount(100, 5_924)},
    "cars": {"train": SplitCount(98, 8_054), "test": SplitCount(98, 8_131)},
    "products": {"train": SplitCount(11_318, 59_551), "test": SplitCount(11_316, 60_502)},
}


@dataclass(frozen=True, eq=False)
class Listing:
    """Images that may be missing, in splits that may leak: ``dataset()`` refuses both, `facetric data check` reports them."""

    name: str
    paths: tuple[Path, ...]
    labels: NDArray[np.int64]  # (n,) index into class_names
    class_names: tuple[str, ...]
    splits: NDArray[np.str_]  # (n,)
    is_from_disk: bool = False  # the paths are those of a folder, not of a table: they exist

    def counts(self) -> dict[str, SplitCount]:
        """The size of every split, in order of first appearance."""
        return {
            split: SplitCount(len(np.unique(self.labels[self.splits == split])), int((self.splits == split).sum()))
            for split in dict.fromkeys(self.splits.tolist())
        }

    def count_differences(self) -> list[str]:
        """One sentence per split that differs from the published figures; empty when all agree or none are known."""
        counts, none = self.counts(), SplitCount(0, 0)
        return [
            f"{split} has {counts.get(split, none)}, published: {published}"
            for split, published in PUBLISHED.get(self.name, {}).items()
            if counts.get(split, none) != published
        ]

    def missing(self) -> list[Path]:
        """The listed images that are not on disk. One listing per folder, not one stat per file: fast on network drives too."""
        if self.is_from_disk:
            return []
        present = {folder: _file_names(folder) for folder in {path.parent for path in self.paths}}
        # The second check is for file systems that store a name in another Unicode form than the list.
        return [path for path in self.paths if path.name not in present[path.parent] and not path.is_file()]

    def present(self) -> ImageDataset:
        """The images that are on disk now, all in one split: for a caller that knows the splits, and what is missing."""
        gone = set(self.missing())
        there = np.array([i for i, path in enumerate(self.paths) if path not in gone], dtype=np.int64)
        paths = [self.paths[i] for i in there]
        return ImageDataset(self.name, paths, self.labels[there], self.class_names, np.full(len(there), "train"))

    def dataset(self, *, check_counts: bool = False, shared_classes: bool = False) -> ImageDataset:
        """The dataset, or a ValueError about missing images, wrong counts or classes in two splits."""
        if missing := self.missing():
            raise ValueError(
                f"{self.name}: {len(missing):,} of {len(self.paths):,} listed images do not exist: {name_some(missing)}: "
                "restore them or take them off the list"
            )
        if check_counts and (differences := self.count_differences()):
            raise ValueError(
                f"{self.name}: {'; '.join(differences)}: complete the copy, or use it as it is with check_counts=False "
                "(--set data.options.check_counts=false)"
            )
        return ImageDataset(self.name, list(self.paths), self.labels, self.class_names, self.splits, shared_classes)


def existing_root(root: str | os.PathLike[str], what: str) -> Path:
    """The folder as a Path, or a ValueError that says what should be there."""
    path = Path(root).expanduser()
    if not path.is_dir():
        problem = "is not a folder" if path.exists() else "does not exist"
        raise ValueError(f"{printable(path)} {problem}: pass {what} as root (--root)")
    return path


def read_lines(path: Path) -> list[str]:
    """The lines of a text file that comes with a dataset."""
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise ValueError(f"{printable(path)} does not exist: it belongs to the dataset, unpack the archive again") from None
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{printable(path)} is not UTF-8 text ({error.reason} at byte {error.start}): save it as UTF-8"
        ) from None
    except OSError as error:
        raise ValueError(f"{printable(path)} cannot be read ({error.strerror}): check the file and its permissions") from None


def _file_names(folder: Path) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if entry.is_file()}
    except (FileNotFoundError, NotADirectoryError):
        return set()
