"""What `Embedder.encode` takes: paths, folders, images and arrays, in lists or not."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from facetric.images.listing import list_photos, not_empty

_TAKES = "a path of a photo or a folder, a PIL image, a uint8 array (height, width) or (height, width, 3), or a list of these"

Photos: TypeAlias = "str | os.PathLike[str] | Image.Image | NDArray[np.uint8] | Sequence[Photos]"


def pictures_of(photos: Any) -> Iterator[Path | Image.Image]:
    """Every picture in turn; folders and lists are opened, files and images are not."""
    if isinstance(photos, str | os.PathLike):
        path = Path(photos).expanduser()
        if not path.is_dir():
            yield path
            return
        listed = not_empty(list_photos(path))
        yield from (listed.root / photo for photo in listed.photos)
    elif isinstance(photos, Image.Image):
        yield photos
    elif isinstance(photos, np.ndarray):
        yield from (_picture(array) for array in (photos if photos.ndim == 4 else photos[None]))
    elif isinstance(photos, list | tuple):
        for photo in photos:
            yield from pictures_of(photo)
    else:
        raise ValueError(f"encode takes {_TAKES}; got {type(photos).__name__}: pass one of these")


def _picture(array: NDArray[Any]) -> Image.Image:
    is_gray, is_color = array.ndim == 2, array.ndim == 3 and array.shape[2] == 3
    if array.dtype != np.uint8 or not (is_gray or is_color) or 0 in array.shape:
        raise ValueError(
            f"a picture is a uint8 array of shape (height, width) or (height, width, 3), values 0 to 255; got {array.dtype} of "
            f"shape {array.shape}: convert it"
        )
    return Image.fromarray(array)
