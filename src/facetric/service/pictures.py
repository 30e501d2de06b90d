"""Pictures that come in, and photos and thumbnails that go out."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facetric.embedder.encoder import Encoder
from facetric.images.decoding import ImageError, decode_image, open_file
from facetric.images.fingerprints import content_digest
from facetric.photos.looks import THUMBNAIL_SIDE, thumbnail_of

CONTENT = re.compile(r"[0-9a-f]{32}")
_UPLOAD = Path("the picture")  # what error messages call it
_MEDIA_TYPES = {  # how files begin
    re.compile(rb"\xff\xd8\xff"): "image/jpeg",
    re.compile(rb"\x89PNG"): "image/png",
    re.compile(rb"GIF8"): "image/gif",
    re.compile(rb"RIFF....WEBP", re.DOTALL): "image/webp",
    re.compile(rb"BM"): "image/bmp",
    re.compile(rb"....ftypavi[fs]", re.DOTALL): "image/avif",
    re.compile(rb"....ftyp(hei|mif|msf)", re.DOTALL): "image/heic",
    re.compile(rb"II\*\0|MM\0\*"): "image/tiff",
}
TAKEN = {
    kind for kind in _MEDIA_TYPES.values() if kind != "image/tiff"
}  # a TIFF of 8 × 8 pixels may hold a tile of 16,000 × 16,000


def picture_pixels(data: bytes, encoder: Encoder, max_pixels: int) -> NDArray[np.uint8]:
    """The encoder's input; an ImageError for bytes that are no picture, or one of too many pixels."""
    if not data:
        raise ImageError("the request has no body: send the bytes of a picture", fault="empty")
    if media_type(data) not in TAKEN:
        raise ImageError(
            "the picture is not JPEG, PNG, WebP, GIF, BMP, AVIF or HEIC: save it as one of these", fault="not an image"
        )
    image, _ = decode_image(io.BytesIO(data), _UPLOAD, at_least=encoder.at_least, max_pixels=max_pixels)
    return encoder.pixels(image)


def photo_bytes(paths: Iterable[str], content: str) -> bytes | None:
    """The bytes of the first of these files that still has this content: whatever else lies there now is not given away."""
    for path in paths:
        try:
            with open_file(Path(path)) as file:
                data = file.read()
        except (ImageError, OSError):
            continue
        if content_digest(data).hex() == content:
            return data
    return None


def thumbnail(data: bytes) -> bytes:
    """A small JPEG; an ImageError where it cannot be opened any more."""
    image, _ = decode_image(io.BytesIO(data), Path("the photo"), at_least=2 * THUMBNAIL_SIDE)
    return thumbnail_of(image)


def media_type(data: bytes) -> str:
    """What a file is, by its first bytes; no answer of the service is ever guessed at by a browser.

    >>> media_type(b"GIF89a"), media_type(b"<html>")
    ('image/gif', 'application/octet-stream')
    """
    return next((kind for start, kind in _MEDIA_TYPES.items() if start.match(data[:32])), "application/octet-stream")
