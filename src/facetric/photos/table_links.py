"""What a table of photos says about which belong together: the same within a burst, different within one picture."""

from __future__ import annotations

import csv
import io
import os
from itertools import combinations
from pathlib import Path

from facetric.images import content_hash
from facetric.photos.decisions import MOST, DecidedPhoto, Decision, Decisions
from facetric.text import counted, printable, readable


def read_links(
    table: str | os.PathLike[str],
    root: str | os.PathLike[str],
    *,
    same_within: str | None = None,
    different_within: str | None = None,
) -> Decisions:
    """Photos with one value in the column `same_within` are of one group, those with one value in `different_within` are all of
    different ones. Empty cells say nothing; files that are gone are left out.

    The table has a column `path`, starting from its own folder; `root` is the folder of photos.
    """
    file = Path(table).expanduser()
    columns = {name: column for name, column in (("same", same_within), ("different", different_within)) if column is not None}
    if not columns:
        raise ValueError(f"{printable(file)} says nothing without a column: pass same_within= or different_within=")
    groups: dict[str, dict[str, dict[str, DecidedPhoto]]] = {name: {} for name in columns}  # by value, by content
    n_gone = n_there = 0
    try:
        rows = csv.DictReader(io.StringIO(file.read_bytes().decode("utf-8-sig"), newline=""))
        if missing := [name for name in ("path", *columns.values()) if name not in (rows.fieldnames or ())]:
            there = ", ".join(map(printable, rows.fieldnames or ())) or "none"
            raise ValueError(
                f"{printable(file)} has no column {printable(missing[0])!r}; its columns are {there}: name one of them"
            )
        for row in rows:
            values = {name: (row[column] or "").strip() for name, column in columns.items()}
            place = file.parent / (row["path"] or "")
            if not any(values.values()):
                continue
            if not place.is_file():
                n_gone += 1
                continue
            n_there += 1
            below = readable(Path(os.path.relpath(place.resolve(), Path(root).expanduser().resolve())))
            photo = DecidedPhoto(content_hash(place.read_bytes()).hex(), below)
            for name, value in values.items():
                if value:
                    groups[name].setdefault(value, {}).setdefault(photo.content, photo)
    except FileNotFoundError:
        raise ValueError(f"{printable(file)} does not exist: pass a CSV file with a column path") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{printable(file)} is not a CSV file in UTF-8 ({error}): save it as one") from None
    if n_gone and not n_there:
        raise ValueError(
            f"{printable(file)} is about {counted(n_gone, 'photo')}, and none is where its path leads: paths start from the "
            "folder of the table, so keep it there"
        )
    same = [Decision("same", tuple(photos.values())) for photos in groups.get("same", {}).values() if len(photos) > 1]
    n_pairs = sum(len(photos) * (len(photos) - 1) // 2 for photos in groups.get("different", {}).values())
    if n_pairs + len(same) > MOST:
        raise ValueError(
            f"{printable(file)} keeps {n_pairs:,} pairs of photos apart, more than {MOST:,}: a column for different_within has "
            "one value for the few photos of one picture, and is empty elsewhere"
        )
    pairs = (pair for photos in groups.get("different", {}).values() for pair in combinations(photos.values(), 2))
    return Decisions((*same, *(Decision("different", pair) for pair in pairs)))
