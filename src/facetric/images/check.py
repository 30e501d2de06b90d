"""Check a dataset before training: open every image, and report every problem at once, by file name."""

from __future__ import annotations

import hashlib
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from PIL import Image

from facetric.images.decoding import FORMAT_SUFFIXES, ImageError, decode_image, is_image_file, open_file
from facetric.images.listing import list_class_folders, sub_folders, visible
from facetric.images.readers import LISTS
from facetric.images.readers.annotations import PUBLISHED, Listing, SplitCount, existing_root
from facetric.images.readers.official import find_cub, find_products, has_cars
from facetric.images.readers.own import WHAT, find_csv, has_header, listing_of
from facetric.machine import made_ahead
from facetric.progress import Progress
from facetric.text import did_you_mean, name_some, printable

LAYOUTS = (*LISTS, "files")
PROBLEM, REMARK = "problem", "remark"
MIN_SIDE = 16  # pixels; smaller images are icons and spacers
MAX_ASPECT = 10.0  # longer side over shorter side
_N_ZEROS = 1024  # that many zero bytes at the end of a JPEG are the unwritten part of an interrupted copy


@dataclass(frozen=True)
class Finding:
    """One finding: a problem must be fixed, a remark is worth a look."""

    severity: str  # "problem" or "remark"
    kind: str  # "truncated", "duplicate", "leak", …: findings are grouped by it
    subject: str  # the file (from the root of the dataset), the class or the split
    detail: str


_problem, _remark = partial(Finding, PROBLEM), partial(Finding, REMARK)


@dataclass(frozen=True)
class DatasetCheck:
    """The result of check_dataset."""

    path: str
    layout: str
    counts: dict[str, SplitCount]  # split → its size; the split "all" when no file defines one
    published: dict[str, SplitCount]  # empty for your own data
    n_files: int  # files that were decoded
    findings: tuple[Finding, ...]  # problems first
    seconds: float

    @property
    def problems(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == PROBLEM)

    @property
    def remarks(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == REMARK)

    @property
    def ok(self) -> bool:
        """No problem; there may be remarks."""
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"ok": self.ok, "n_problems": len(self.problems), "n_remarks": len(self.remarks), **asdict(self)}


def check_dataset(path: str | os.PathLike[str], *, layout: str | None = None, progress: Progress | None = None) -> DatasetCheck:
    """Open every image and compare the files with the dataset's own annotations.

    * ``layout``: "cub", "cars", "products", "folder", "csv", "huggingface", "files" (no classes), or None to detect it.
    * ``progress``: called with (step, files done, total files).
    """
    started = time.perf_counter()
    root = Path(path).expanduser()
    if not root.exists():
        raise ValueError(f"{printable(root)} does not exist: pass the folder of a dataset, or a CSV file")
    if layout is None and root.is_file() and root.suffix.lower() != ".csv":
        raise ValueError(f"{printable(root)} is a file, but not a .csv file: pass the folder of a dataset, or a CSV file")
    if layout is not None and layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}; got {layout!r}{did_you_mean(layout, LAYOUTS)}")
    layout = layout or _layout_of(root)
    try:
        found = _survey(root, layout)
    except ValueError as error:
        finding = _problem("annotations", printable(root), printable(error))
        return DatasetCheck(str(root), layout, {}, PUBLISHED.get(layout, {}), 0, (finding,), time.perf_counter() - started)
    files = list(dict.fromkeys((*found.listing.paths, *found.strays)))
    base = root if root.is_dir() else root.parent
    digests: dict[Path, str] = {}
    of_files: list[Finding] = []
    for file, (digest, inside) in zip(files, made_ahead(partial(_inspect, file, base) for file in files), strict=True):
        digests[file] = digest
        of_files += inside
        if progress is not None:
            progress("Opening images", len(digests), len(files))
    findings = [
        *_listing_findings(found),
        *of_files,
        *_duplicate_findings(found.listing, digests, base),
        *_beside_findings(found, base),
    ]
    findings.sort(key=lambda finding: finding.severity != PROBLEM)  # stable: the order above within each
    return DatasetCheck(
        path=str(root),
        layout=layout,
        counts=found.listing.counts(),
        published=PUBLISHED.get(layout, {}),
        n_files=len(files),
        findings=tuple(findings),
        seconds=time.perf_counter() - started,
    )


@dataclass(frozen=True)
class _Survey:
    """A listing, and what else is in the folder. Readers refuse what is wrong; this is what there is."""

    listing: Listing
    strays: tuple[Path, ...] = ()  # images that belong to no class; they are inspected too
    skipped: tuple[Path, ...] = ()  # what no reader opens
    empty_classes: tuple[str, ...] = ()

    @property
    def has_classes(self) -> bool:
        return bool(self.listing.class_names or self.empty_classes)


def _layout_of(path: Path) -> str:
    """The layout by its distinctive files: the official ones first, then a table, then class folders, then plain files."""
    with suppress(ValueError):  # there is not one table
        if path.is_file() or has_header(find_csv(path)[0]):
            return "csv"
    if any((path / name).is_file() for name in ("state.json", "dataset_dict.json")) or any(path.glob("*.parquet")):
        return "huggingface"
    for layout, find in {"cub": find_cub, "products": find_products, "cars": has_cars}.items():
        if find(path):
            return layout
    return "folder" if sub_folders(path) else "files"


def _survey(path: Path, layout: str) -> _Survey:
    if layout == "folder":
        found = list_class_folders(existing_root(path, WHAT))
        empty = tuple(name for name, images in found.images.items() if not images)
        return _Survey(listing_of(found), found.strays, found.others, empty)
    if layout == "files":  # not a dataset yet, but its files can be checked
        inside = visible(existing_root(path, "a folder"))
        listing = Listing("files", (), np.empty(0, dtype=np.int64), (), np.empty(0, dtype="<U8"))
        strays = tuple(p for p in inside if is_image_file(p))
        return _Survey(listing, strays, tuple(p for p in inside if not is_image_file(p)))
    listing = LISTS[layout](path)
    if layout == "csv":
        return _Survey(listing)
    listed = set(listing.paths)  # what lies unlisted beside listed images was added or renamed
    inside = [p for folder in sorted({path.parent for path in listed}) if folder.is_dir() for p in visible(folder)]
    return _Survey(listing, skipped=tuple(p for p in inside if p not in listed and p.is_file()))


def _listing_findings(found: _Survey) -> Iterator[Finding]:
    listing = found.listing
    for difference in listing.count_differences():
        split, _, detail = difference.partition(" ")
        yield _problem("counts", split, f"{detail}: complete the copy, or accept it with --set data.options.check_counts=false")
    if not found.has_classes:
        yield _problem("no classes", ".", "there is no sub-folder: make one sub-folder per class, or a CSV file path,label")
    elif len(listing.class_names) < 2:
        yield _problem("too few classes", ", ".join(listing.class_names) or ".", "at least 2 classes are needed")
    for name in found.empty_classes:
        has_folders = any(path.parent.name == name and path.is_dir() for path in found.skipped)
        way_out = "check it by itself if its sub-folders are the classes" if has_folders else "put some in or remove it"
        yield _problem("empty class", printable(name), f"the folder holds no images: {way_out}")
    homes: dict[int, set[str]] = defaultdict(set)
    for label, split in zip(listing.labels.tolist(), listing.splits.tolist(), strict=True):
        homes[label].add(split)
    for label, splits in sorted(homes.items()):
        if len(splits) > 1:
            detail = (
                f"class is in the splits {' and '.join(sorted(splits))}: move it to one, or accept it with "
                "--set data.options.shared_classes=true"
            )
            yield _problem("leak", printable(listing.class_names[label]), detail)
    for label in np.flatnonzero(np.bincount(listing.labels, minlength=len(listing.class_names)) == 1):
        yield _remark("single image", printable(listing.class_names[label]), "a class of one image has nothing to retrieve")


def _duplicate_findings(listing: Listing, digests: dict[Path, str], base: Path) -> Iterator[Finding]:
    """Files with the same bytes: a leak between splits, a contradiction between classes, or a plain duplicate."""
    home = {path: image_id for image_id, path in enumerate(listing.paths)}
    same: dict[str, list[Path]] = defaultdict(list)
    for path, digest in digests.items():
        if digest:
            same[digest].append(path)
    for paths in same.values():
        if len(paths) < 2:
            continue
        image_ids = [home[path] for path in paths if path in home]
        splits = sorted({str(listing.splits[i]) for i in image_ids})
        classes = sorted({listing.class_names[listing.labels[i]] for i in image_ids})
        others = f"the same content as {name_some(_shown(path, base) for path in paths[1:])}"
        if len(splits) > 1:
            yield _problem("leak", _shown(paths[0], base), f"{others}, in the splits {' and '.join(splits)}: keep one")
        elif len(classes) > 1:
            detail = f"{others}, in the classes {name_some(classes)}: keep it in the right one"
            yield _problem("two classes", _shown(paths[0], base), detail)
        else:
            yield _remark("duplicate", _shown(paths[0], base), others)


def _beside_findings(found: _Survey, base: Path) -> Iterator[Finding]:
    if found.has_classes:
        for path in found.strays:
            yield _remark("no class", _shown(path, base), "the image is outside the class folders, so it is not used")
    for path in found.skipped:
        if path.is_dir():
            detail = "a folder inside a class folder is not searched" if found.has_classes else "is a folder"
        elif not is_image_file(path):
            detail = f"the suffix {path.suffix!r} is not an image suffix, so it is not used"
        else:
            detail = "the dataset does not list this file, so it is not used"
        yield _remark("not used", _shown(path, base), detail)


def _shown(path: Path, base: Path) -> str:
    return printable(path.relative_to(base) if path.is_relative_to(base) else path)


def _inspect(path: Path, base: Path) -> tuple[str, list[Finding]]:
    """The SHA-256 of a file, empty when it cannot be read, and what is wrong with it.

    The whole image is decoded, as training will, so that a file cut short is found wherever it was cut.
    """
    digest, shown = "", _shown(path, base)
    try:
        with open_file(path) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
            file.seek(0)
            image, format_name = decode_image(file, path)
            return digest, [_remark("suspicious", shown, why) for why in _suspicions(path, file, image, format_name)]
    except ImageError as error:
        return digest, [_problem(error.fault, shown, str(error).removeprefix(printable(path)).strip())]
    except OSError as error:  # a read error of the disk, after the file was opened
        return digest, [_problem("unreadable", shown, f"cannot be read ({error.strerror}): check the disk")]


def _suspicions(path: Path, file: IO[bytes], image: Image.Image, format_name: str) -> Iterator[str]:
    short, long = sorted(image.size)
    if short < MIN_SIDE:
        yield f"tiny: {image.width} × {image.height} pixels"
    if long > MAX_ASPECT * short:
        yield f"extreme shape: {image.width} × {image.height} pixels"
    if path.suffix.lower() not in FORMAT_SUFFIXES[format_name]:
        yield f"a {format_name} file with the suffix {path.suffix!r}"
    if image.getcolors(maxcolors=1) is not None:
        yield "every pixel has the same color"
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _N_ZEROS))
    if format_name == "JPEG" and size > _N_ZEROS and not any(file.read(_N_ZEROS)):
        yield "ends in zeros: the lower part may be missing"
