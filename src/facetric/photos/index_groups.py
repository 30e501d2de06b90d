"""The photos of an index in groups, as `facetric cluster` groups those of a folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from facetric.clustering import Calibration
from facetric.photos import Collection, Decisions, PhotoGroups
from facetric.photos.grouping import Clusterer
from facetric.photos.photo_groups import group_photos
from facetric.text import printable


def group_index(
    index: Collection,
    clusterer: Clusterer,
    *,
    decisions: Decisions | None = None,
    calibration: Calibration | None = None,
    made_by: str = "",
) -> PhotoGroups:
    """Group all photos of an index; `decisions` are kept to. Paths are those below the folder that holds all of them."""
    entries = index.entries()
    if not entries:
        raise ValueError(f"{printable(index.address)} holds no photos: add some with `facetric index add`")
    root = common_folder([entry.path for entry in entries])
    return group_photos(
        root,
        [Path(entry.path).relative_to(root) for entry in entries],
        [entry.content.hex() for entry in entries],
        index.vectors(dict.fromkeys(entry.content for entry in entries)),
        clusterer,
        decisions=decisions or Decisions(),
        calibration=calibration,
        made_by=made_by,
    )


def common_folder(paths: Sequence[str]) -> Path:
    """The deepest folder that holds all these files.

    >>> common_folder(["/photos/a/1.jpg", "/photos/b/2.jpg"]).as_posix(), common_folder(["/photos/a/1.jpg"]).as_posix()
    ('/photos', '/photos/a')
    """
    return Path(os.path.commonpath([os.path.dirname(path) for path in paths]))
