"""manifest.json: every class and image of a run's dataset with its split, as training saw them, and a hash of each file.

Evaluation, report and resume take the split from here and never draw it again: a folder that has changed since cannot turn a
class that was trained on into a test class.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from facetric.images import SPLITS, ImageDataset, load_dataset, load_present
from facetric.runs.config import DataTable
from facetric.text import counted, name_some

if TYPE_CHECKING:
    from facetric.runs.run import Run

FORMAT = 1


@dataclass(frozen=True)
class DataChanges:
    """How a dataset differs from a manifest: names of images, and of new classes."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()  # other content under the same name
    relabeled: tuple[str, ...] = ()  # another class under the same name
    leaked: tuple[str, ...] = ()  # now the content of an image of another split
    new_classes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any((self.added, self.removed, self.changed, self.relabeled, self.leaked))

    def lines(self) -> list[str]:
        """One sentence for each kind of change, with the first names."""
        new = ""
        if self.new_classes:
            new = f" ({len(self.new_classes):,} new class{'es' * (len(self.new_classes) > 1)}: {name_some(self.new_classes)})"
        kinds = (
            (self.added, "was added and is left out", f"were added and are left out{new}"),
            (self.removed, "is missing", "are missing"),
            (self.changed, "has changed", "have changed"),
            (self.leaked, "is of another split now and is left out", "are of another split now and are left out"),
            (self.relabeled, "is in another class and keeps its old label", "are in another class and keep their old label"),
        )
        return [
            f"since training, {len(names):,} {f'image {one}' if len(names) == 1 else f'images {many}'}: {name_some(names)}"
            for names, one, many in kinds
            if names
        ]


@dataclass(frozen=True, eq=False)
class Manifest:
    """The images of a run, in the order of its dataset. Names are relative to the dataset's root, or "#7" for one in memory."""

    dataset: str
    class_names: tuple[str, ...]
    images: tuple[str, ...]
    labels: NDArray[np.int64]  # (n,) positions in `class_names`
    splits: NDArray[np.str_]  # (n,)
    contents: tuple[str, ...]  # (n,) hashes of what is in the files
    shared_classes: bool = field(default=False)

    @classmethod
    def of(cls, dataset: ImageDataset, root: str | None) -> Manifest:
        """What training is about to see. Reads every file once (their hashes are cached)."""
        return cls(
            dataset=dataset.name,
            class_names=dataset.class_names,
            images=_names(dataset, root),
            labels=dataset.labels,
            splits=dataset.splits,
            contents=_contents(dataset),
            shared_classes=dataset.shared_classes,
        )

    def __len__(self) -> int:
        return len(self.images)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything in the manifest."""
        return hashlib.sha256(json.dumps(self._tables(), sort_keys=True).encode()).hexdigest()

    def count(self, split: str) -> tuple[int, int]:
        """Images and classes of a split."""
        chosen = self.splits == split
        return int(chosen.sum()), len(np.unique(self.labels[chosen]))

    def names_with_classes(self, split: str) -> frozenset[tuple[str, str]]:
        """Every image of a split with its class, by name."""
        return frozenset((self.images[i], self.class_names[self.labels[i]]) for i in np.flatnonzero(self.splits == split))

    def match(
        self, dataset: ImageDataset, root: str | None, *, splits: Sequence[str] = SPLITS
    ) -> tuple[ImageDataset, DataChanges]:
        """The manifest's images of these splits as they are now, in its order and under its labels, and what has changed.

        Images that are not in the manifest are never in the result, nor are those that now hold an image of another split
        (two class folders that have swapped names, say).
        """
        place_now = {name: i for i, name in enumerate(_names(dataset, root))}
        contents_now = _contents(dataset)
        wanted = [i for i in range(len(self)) if self.splits[i] in splits]
        found = [i for i in wanted if self.images[i] in place_now]
        contents = {i: contents_now[place_now[self.images[i]]] for i in found}
        homes: dict[str, set[str]] = {}
        for content, split in zip(self.contents, self.splits.tolist(), strict=True):
            homes.setdefault(content, set()).add(split)
        changed = [i for i in found if contents[i] != self.contents[i]]
        leaked = {i for i in changed if homes.get(contents[i], {self.splits[i]}) - {self.splits[i]}}
        there = np.array([i for i in found if i not in leaked], dtype=np.int64)
        now = np.array([place_now[self.images[i]] for i in there], dtype=np.int64)
        known, known_classes = set(self.images), set(self.class_names)
        added = [name for name in place_now if name not in known]
        new_classes = [dataset.class_names[dataset.labels[place_now[name]]] for name in added]
        names_now = [dataset.class_names[label] for label in dataset.labels[now]]
        changes = DataChanges(
            added=tuple(added),
            removed=tuple(self.images[i] for i in wanted if self.images[i] not in place_now),
            changed=tuple(self.images[i] for i in changed if i not in leaked),
            leaked=tuple(self.images[i] for i in sorted(leaked)),
            relabeled=tuple(
                self.images[i] for i, name in zip(there, names_now, strict=True) if self.class_names[self.labels[i]] != name
            ),
            new_classes=tuple(dict.fromkeys(name for name in new_classes if name not in known_classes)),
        )
        as_trained = dataset.take(
            now,
            labels=self.labels[there],
            class_names=self.class_names,
            splits=self.splits[there],
            shared_classes=self.shared_classes,
        )
        return as_trained, changes

    def to_json(self) -> str:
        """JSON in ASCII, so that any file name survives; one image a line."""
        tables = self._tables()
        images = tables.pop("images")
        head = json.dumps({"format": FORMAT, "fingerprint": self.fingerprint, **tables}, indent=1)
        rows = ",\n  ".join(json.dumps(row) for row in images)
        return f'{head[:-2]},\n "images": [\n  {rows}\n ]\n}}\n'

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """What `to_json` wrote; a ValueError for anything else."""
        try:
            tables: dict[str, Any] = json.loads(text)
            if tables["format"] != FORMAT:
                raise ValueError(f"its format is {tables['format']}, this version reads {FORMAT}")
            rows = tables["images"]
            manifest = cls(
                dataset=tables["dataset"],
                class_names=tuple(tables["classes"]),
                images=tuple(row[0] for row in rows),
                labels=np.array([row[1] for row in rows], dtype=np.int64),
                splits=np.array([row[2] for row in rows], dtype=np.str_),
                contents=tuple(row[3] for row in rows),
                shared_classes=tables["shared_classes"],
            )
            if manifest.fingerprint != tables["fingerprint"]:
                raise ValueError("its fingerprint does not match its content")
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError, OverflowError) as error:
            raise ValueError(f"damaged or not a manifest ({error})") from None
        return manifest

    def _tables(self) -> dict[str, Any]:
        rows = zip(self.images, self.labels.tolist(), self.splits.tolist(), self.contents, strict=True)
        return {
            "dataset": self.dataset,
            "shared_classes": self.shared_classes,
            "classes": list(self.class_names),
            "images": [list(row) for row in rows],  # name, class, split, hash of the content
        }


def _names(dataset: ImageDataset, root: str | None) -> tuple[str, ...]:
    """Names by which images are found again: relative to the root where they lie below it, so that a folder may be moved."""
    if isinstance(dataset.images, np.ndarray):
        return tuple(f"#{i}" for i in range(len(dataset.images)))
    base = Path(root or ".").expanduser().absolute()
    base = base if base.is_dir() else base.parent
    prefix = os.path.join(str(base), "")
    paths = [str(Path(image).expanduser().absolute()) for image in dataset.images]
    return tuple(path[len(prefix) :] if path.startswith(prefix) else path for path in paths)


def _contents(dataset: ImageDataset) -> tuple[str, ...]:
    return tuple(digest.tobytes().hex() for digest in dataset.hashes)


def new_images(data: DataTable, *, validate: bool, dataset: ImageDataset | None = None) -> ImageDataset:
    """The dataset of a new run, with validation classes held out from the training classes; `dataset` if it is loaded already."""
    if dataset is None:
        dataset = load_dataset(data.name, data.root, **data.options)
    if data.all_classes:
        return replace(dataset, splits=np.full(len(dataset.labels), "train"))
    if validate and "validation" not in dataset.splits:
        dataset = dataset.with_validation(data.validation_fraction, seed=data.validation_seed)
    return dataset


def resumed_images(run: Run, *, accept_changes: bool = False) -> tuple[ImageDataset, DataChanges]:
    """All images of a resumed run. Training images that are missing or have changed since it started are refused.

    `accept_changes` accepts changed content; missing images are always refused.
    """
    data, manifest = run.config.data, run.manifest
    dataset, changes = manifest.match(_current_dataset(run), data.root)
    trained = {name for name, split in zip(manifest.images, manifest.splits, strict=True) if split != "test"}
    gone = [name for name in (*changes.removed, *changes.leaked) if name in trained]
    changed = [name for name in changes.changed if name in trained]
    if gone:
        raise ValueError(
            f"{counted(len(gone), 'image')} needed to resume {run.path} cannot be found ({name_some(gone)}): restore them in "
            f"{data.root}, or train again"
        )
    if changed and not accept_changes:
        raise ValueError(
            f"{counted(len(changed), 'image')} changed since {run.path} started ({name_some(changed)}): restore them, or "
            f"continue with `{run.resume_command} --accept-changes`"
        )
    return dataset, changes


def run_images(run: Run, split: str) -> tuple[ImageDataset, DataChanges]:
    """The images of a split as training saw it and as they are now, and what has changed in that split since."""
    n_images, n_classes = run.manifest.count(split)
    if n_images == 0:
        have = ", ".join(name for name in reversed(SPLITS) if run.manifest.count(name)[0])
        way_out = f"pass --split with one of {have}"
        if split == "validation":
            way_out = f"its validation was off (run.validate_every = 0) or it had too few classes; {way_out}"
        elif split == "test":
            way_out = f"all of its classes were trained on; {way_out}, or train with test classes held out"
        raise ValueError(f"{run.path} has no {split} images: {way_out}")
    data = run.config.data
    matched, changes = run.manifest.match(_current_dataset(run), data.root, splits=(split,))
    if len(np.unique(matched.labels)) < min(2, n_classes):
        raise ValueError(
            f"of the {n_images:,} {split} images of {run.path}, {len(matched):,} are still in {data.root}: restore them, or set "
            "data.root in its config.toml to where they are now"
        )
    return matched, changes


def _current_dataset(run: Run) -> ImageDataset:
    root = run.config.data.root
    if root is not None and not Path(root).expanduser().exists():
        raise ValueError(f"the data of {run.path} is no longer in {root}: set data.root in {run.config_file} to where it is")
    data = run.config.data
    return load_present(data.name, data.root, **data.options)  # what is gone is named by the manifest
