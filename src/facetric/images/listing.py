"""The images in a folder: nested and unsorted as people keep them, or one sub-folder per class."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from facetric.images.decoding import is_image_file
from facetric.text import printable


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
        others = f", only {self.n_others:,} files of other kinds" if self.n_others else ""
        raise ValueError(f"there are no photos in {printable(self.root)}{others}: pass a folder that holds some, nested or not")


def list_images(root: str | os.PathLike[str]) -> ImageList:
    """All images in a folder and its sub-folders, or the one image that a path names.

    Hidden files and folders are left out. Links are followed, but every folder is listed once, under its own name rather than
    that of a link, so that a link to a folder above ends nowhere.
    """
    path = Path(root).expanduser()
    if path.is_file():
        return ImageList(path.parent, (Path(path.name),))
    if not path.is_dir():
        what = "is not a folder or a photo" if path.exists() else "does not exist"
        raise ValueError(f"{printable(path)} {what}: pass a photo, or a folder of photos")
    walk = _Walk(path)
    return ImageList(
        path,
        tuple(sorted(walk.images, key=os.fsencode)),
        tuple(sorted(walk.problems, key=lambda problem: os.fsencode(problem.path))),
        walk.n_others,
    )


class _Walk:
    """Folders first, then what links to folders lead to and has not been listed yet."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.images: list[Path] = []
        self.problems: list[Problem] = []
        self.n_others = 0
        self._seen: set[tuple[int, int]] = set()
        waiting: list[Path] = [Path()]
        links: list[Path] = []
        while waiting or links:
            if not waiting:
                waiting, links = [min(links, key=os.fsencode)], sorted(links, key=os.fsencode)[1:]
            folders, found = self._list(waiting.pop())
            waiting += folders
            links += found

    def _list(self, folder: Path) -> tuple[list[Path], list[Path]]:
        """The sub-folders of a folder, and links to folders; its images are kept."""
        folders: list[Path] = []
        links: list[Path] = []
        try:
            status = (self.root / folder).stat()
            if (status.st_dev, status.st_ino) in self._seen:
                return [], []
            with os.scandir(self.root / folder) as entries:
                found = list(entries)
        except OSError as error:
            reason = f"the folder {printable(self.root / folder)} cannot be read ({error.strerror}): change its permissions"
            self.problems.append(Problem(folder, reason))
            return [], []
        self._seen.add((status.st_dev, status.st_ino))
        for entry in found:
            path = folder / entry.name
            if entry.name.startswith(".") or entry.name == "__MACOSX":
                continue
            if _is_folder(entry):
                (links if entry.is_symlink() else folders).append(path)
            elif is_image_file(path):
                self.images.append(path)
            else:
                self.n_others += 1
        return folders, links


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads in a circle: reported when it is opened
        return False


@dataclass(frozen=True)
class ClassFolders:
    """The contents of a folder with one sub-folder per class."""

    images: dict[str, tuple[Path, ...]]  # class name → its images, by name; empty for a folder without images
    others: tuple[Path, ...]  # files and folders in the class folders that no reader opens
    strays: tuple[Path, ...]  # images beside the class folders: they have no class


def list_class_folders(root: Path) -> ClassFolders:
    """Everything in `root` and its sub-folders, hidden files left out."""
    images: dict[str, tuple[Path, ...]] = {}
    others: list[Path] = []
    for folder in sub_folders(root):
        inside = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
        images[folder.name] = tuple(path for path in inside if is_image_file(path) and not path.is_dir())
        others += [path for path in inside if not is_image_file(path) or path.is_dir()]
    strays = sorted(path for path in root.iterdir() if is_image_file(path) and not path.is_dir())
    return ClassFolders(images, tuple(others), tuple(strays))


def sub_folders(folder: Path) -> list[Path]:
    """Sub-folders by name, without hidden ones and what macOS adds to archives."""
    return sorted(p for p in folder.iterdir() if not p.name.startswith(".") and p.name != "__MACOSX" and p.is_dir())
