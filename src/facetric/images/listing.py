"""The images in a folder: nested and unsorted as people keep them, or one sub-folder per class."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from facetric.images.decoding import is_image_file
from facetric.text import counted, printable

_TABLES = (".npy", ".npz", ".parquet", ".csv")


@dataclass(frozen=True)
class Problem:
    """A file or folder that cannot be used, and why, in one line."""

    path: Path  # relative to the folder that was listed
    reason: str


@dataclass(frozen=True)
class ImageList:
    """Every image below `root`, by path; other files are counted only."""

    root: Path
    images: tuple[Path, ...]  # relative to root
    problems: tuple[Problem, ...] = ()  # folders that cannot be read
    n_others: int = 0

    def not_empty(self) -> Self:
        """The same list; a ValueError if it holds no images: a wrong folder, or a disk that is not mounted."""
        if self.images:
            return self
        if self.problems:
            raise ValueError(f"there are no photos in {printable(self.root)} that can be reached: {self.problems[0].reason}")
        others = f", only {counted(self.n_others, 'file')} of other kinds" if self.n_others else ""
        raise ValueError(f"there are no photos in {printable(self.root)}{others}: pass a folder that holds some, nested or not")


def list_images(root: str | os.PathLike[str]) -> ImageList:
    """All images in a folder and its sub-folders, or the one image that a path names.

    Hidden files and folders are left out. Links are followed, but every folder is listed once, under its own name rather than
    that of a link, so that a link to a folder above ends nowhere.
    """
    path = Path(root).expanduser()
    if path.is_file():
        if path.suffix.lower() in _TABLES:
            raise ValueError(
                f"{printable(path)} is a file of vectors, no folder of photos: pass one; vectors are grouped, scored and "
                "indexed with --vectors"
            )
        return ImageList(path.parent, (Path(path.name),))
    if not path.is_dir():
        what = "is not a folder or a photo" if path.exists() else "does not exist"
        raise ValueError(f"{printable(path)} {what}: pass a photo, or a folder of photos")
    images: list[Path] = []
    problems: list[Problem] = []
    n_others, seen, waiting, links = 0, set(), [Path()], list[Path]()
    while waiting or links:  # folders first, then what links to folders lead to and has not been listed yet
        if not waiting:
            waiting.append(min(links, key=os.fsencode))
            links.remove(waiting[0])
        folder = waiting.pop()
        try:
            status = (path / folder).stat()
            if (status.st_dev, status.st_ino) in seen:
                continue
            with os.scandir(path / folder) as found:
                entries = list(found)
        except OSError as error:
            reason = f"the folder {printable(path / folder)} cannot be read ({error.strerror}): change its permissions"
            problems.append(Problem(folder, reason))
            continue
        seen.add((status.st_dev, status.st_ino))
        for entry in entries:
            if not _is_visible(entry.name):
                continue
            # a link that leads in a circle is no folder for os.path, an error for the entry
            if os.path.isdir(entry) if entry.is_symlink() else entry.is_dir():
                (links if entry.is_symlink() else waiting).append(folder / entry.name)
            elif is_image_file(entry.name):
                images.append(folder / entry.name)
            else:
                n_others += 1
    problems.sort(key=lambda problem: os.fsencode(problem.path))
    return ImageList(path, tuple(sorted(images, key=os.fsencode)), tuple(problems), n_others)


def _is_visible(name: str) -> bool:
    """Not hidden, nor what macOS adds to archives."""
    return not name.startswith(".") and name != "__MACOSX"


@dataclass(frozen=True)
class ClassFolders:
    """The contents of a folder with one sub-folder per class."""

    images: dict[str, tuple[Path, ...]]  # class name → its images, by name; empty for a folder without images
    others: tuple[Path, ...]  # files and folders in the class folders that no reader opens
    strays: tuple[Path, ...]  # images beside the class folders: they have no class


def list_class_folders(root: Path) -> ClassFolders:
    """Everything in `root` and its sub-folders, hidden files left out; every folder is listed once."""
    images: dict[str, tuple[Path, ...]] = {}
    others: list[Path] = []
    strays: list[Path] = []
    for path in visible(root):
        if path.is_dir():
            inside = visible(path)
            images[path.name] = tuple(one for one in inside if is_image_file(one) and not one.is_dir())
            others += [one for one in inside if not is_image_file(one) or one.is_dir()]
        elif is_image_file(path):
            strays.append(path)
    return ClassFolders(images, tuple(others), tuple(strays))


def visible(folder: Path) -> list[Path]:
    """What is in a folder, by name, without what is hidden and what macOS adds to archives."""
    return sorted(path for path in folder.iterdir() if _is_visible(path.name))


def sub_folders(folder: Path) -> list[Path]:
    """Visible folders in a folder, by name."""
    return [path for path in visible(folder) if path.is_dir()]
