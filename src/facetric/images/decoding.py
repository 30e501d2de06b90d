"""Opening an image file: always 8-bit RGB and upright, or one error that names the file."""

from __future__ import annotations

import os
import stat
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from facetric.text import printable

# 8,000 × 8,000 pixels, 192 MB as RGB. Below Pillow's own warning at 89 million, so that ours is the limit that counts.
MAX_PIXELS = 64_000_000

# Pillow's name of a format → the suffixes it comes with. Nothing else is opened: some of Pillow's readers start programs.
FORMAT_SUFFIXES = {
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif"),
    "PNG": (".png",),
    "WEBP": (".webp",),
    "GIF": (".gif",),
    "BMP": (".bmp",),
    "TIFF": (".tif", ".tiff"),
    "PPM": (".ppm", ".pgm", ".pbm", ".pnm"),
    "JPEG2000": (".jp2", ".j2k"),
    "AVIF": (".avif",),
    "HEIF": (".heic", ".heif", ".hif"),  # of phones; Pillow reads it when pillow-heif is installed
}
IMAGE_SUFFIXES = frozenset(suffix for suffixes in FORMAT_SUFFIXES.values() for suffix in suffixes)
# How a file begins whose format may be missing from this Pillow: the format, and what to install for it.
_OPTIONAL = {b"avif": ("AVIF", "'pillow>=11.3'")} | dict.fromkeys((b"heic", b"heix", b"mif1", b"msf1"), ("HEIF", "pillow-heif"))

WAYS_OUT = {
    "missing": "restore the file or take it off the list",
    "empty": "copy or download it again, or remove it",
    "not an image": "remove it, or save it as JPEG or PNG",
    "truncated": "copy or download it again, or remove it",
    "too large": "shrink it first",
    "unreadable": "copy or download it again, or save it again as 8-bit JPEG or PNG",
}

_UPRIGHT = {  # by the EXIF orientation
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class ImageError(ValueError):
    """A file that cannot be opened as an image. ``fault`` is one of the keys of WAYS_OUT; the message is one line."""

    def __init__(self, message: str, *, fault: str = "unreadable") -> None:
        super().__init__(message)  # one positional argument: it survives pickling and torch's re-raise in data workers
        self.fault = fault


def open_image(path: str | os.PathLike[str], *, at_least: int | None = None) -> Image.Image:
    """The image in a file as 8-bit RGB, turned upright by its EXIF orientation, or an ImageError.

    Alpha is laid over white, 16-bit values are scaled to 8 bit, an animation gives its first frame. Images of more than
    MAX_PIXELS are refused before they are decoded. Color profiles are ignored.

    With `at_least` a JPEG is decoded at a half, a quarter or an eighth of its size where both sides keep that many pixels: a
    photo of 12 megapixels in less than half the time.
    """
    path = Path(path)
    with open_file(path) as file:
        return decode_image(file, path, at_least=at_least)[0]


def is_image_file(path: str | os.PathLike[str]) -> bool:
    """Whether the name looks like an image: a known suffix, and not hidden (macOS adds ``._*`` files).

    >>> is_image_file("owl.JPG"), is_image_file("._owl.jpg"), is_image_file("owl.txt")
    (True, False, False)
    """
    name = Path(path).name
    return not name.startswith(".") and Path(name).suffix.lower() in IMAGE_SUFFIXES


@contextmanager
def open_file(path: Path) -> Iterator[IO[bytes]]:
    """The file opened for reading; ImageError when it is missing, empty or not a regular file (a pipe would block forever)."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise _error(path, "not an image", "is a folder" if stat.S_ISDIR(status.st_mode) else "is not a regular file")
        if status.st_size == 0:
            raise _error(path, "empty", "is empty (0 bytes)")
        file = path.open("rb")
    except (FileNotFoundError, NotADirectoryError):
        broken_link = path.is_symlink()
        raise _error(path, "missing", "is a link to a file that does not exist" if broken_link else "does not exist") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        if isinstance(error, ImageError):
            raise
        raise _error(path, "unreadable", f"cannot be read ({_reason(error)})") from None
    with file:
        yield file


def decode_image(
    file: IO[bytes], path: Path, *, at_least: int | None = None, max_pixels: int = MAX_PIXELS
) -> tuple[Image.Image, str]:
    """The image in an open file as upright RGB, and the name of its format; ``path`` is for the message.

    ``at_least``: see `open_image`.
    """
    start, most = file.read(32), f"an image may have {max_pixels:,} at most"
    file.seek(0)
    try:
        with _QUIET, Image.open(file, formats=known_formats()) as image:
            if image.width * image.height > max_pixels:
                raise _error(path, "too large", f"has {image.width:,} × {image.height:,} pixels; {most}")
            if at_least is not None:
                image.draft(None, (at_least, at_least))
            image.load()
            return upright_rgb(image), "JPEG" if image.format == "MPO" else str(image.format)
    except ImageError:
        raise
    except Image.DecompressionBombError:
        raise _error(path, "too large", f"has too many pixels; {most}") from None
    except UnidentifiedImageError:
        kind, package = _OPTIONAL.get(start[8:12], ("", "")) if start[4:8] == b"ftyp" else ("", "")
        if kind and kind not in known_formats():
            what = f"is an image in {kind} format, which needs a package: pip install {package}, or save it as JPEG"
            raise ImageError(f"{printable(path)} {what}", fault="unreadable") from None
        accepts = (Image.OPEN[name][1] for name in known_formats())
        if any(accept is not None and accept(start) is True for accept in accepts):
            raise _error(path, "unreadable", "starts like an image but its header is damaged") from None
        raise _error(path, "not an image", "is not an image that can be read") from None
    except Exception as error:  # Pillow's readers can raise anything on a damaged file
        reason = _reason(error)
        if isinstance(error, EOFError) or any(sign in reason.lower() for sign in ("truncated", "not enough")):
            raise _error(path, "truncated", "is truncated") from None
        raise _error(path, "unreadable", f"cannot be decoded ({reason})") from None


def upright_rgb(image: Image.Image) -> Image.Image:
    """An image of any mode as `open_image` gives it: 8-bit RGB, alpha over white, turned by its EXIF orientation."""
    if image.mode.startswith(("I", "F")):
        rgb = _eight_bit(image).convert("RGB")
    elif image.has_transparency_data:
        rgba = image.convert("RGBA")
        rgb = Image.new("RGB", image.size, "white")
        rgb.paste(rgba, mask=rgba.getchannel("A"))
    else:
        rgb = image.convert("RGB")
    try:
        turn = _UPRIGHT.get(int(image.getexif().get(ExifTags.Base.Orientation, 1)))
    except Exception:  # the EXIF block is damaged, in any way; the pixels are still good
        turn = None
    return rgb if turn is None else rgb.transpose(turn)


def _eight_bit(image: Image.Image) -> Image.Image:
    """16-bit (0 … 65,535) or floating-point (0 … 1) grayscale, scaled to 0 … 255. Other ranges are refused."""
    values = np.asarray(image)
    low, high = float(values.min()), float(values.max())
    largest = 1 if image.mode.startswith("F") else 65_535
    if not (low >= 0 and high <= largest):
        raise ValueError(f"values from {low:g} to {high:g}; grayscale of this kind must lie between 0 and {largest:,}")
    return Image.fromarray(np.rint(values.astype(np.float64) * (255 / largest)).astype(np.uint8))


@cache
def known_formats() -> tuple[str, ...]:
    """Pillow's names of the formats that are opened, of those that are installed."""
    Image.init()
    with suppress(ImportError):
        from pillow_heif import register_heif_opener

        register_heif_opener()
    return tuple(name for name in FORMAT_SUFFIXES if name in Image.OPEN)  # an older Pillow has no AVIF


def _error(path: Path, fault: str, what: str) -> ImageError:
    return ImageError(f"{printable(path)} {what}: {WAYS_OUT[fault]}", fault=fault)


def _reason(error: BaseException) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return printable(" ".join(text.split())) or type(error).__name__


class _Quiet:
    """Silences the warnings that Pillow gives about odd files, for as long as any thread is decoding.

    warnings.catch_warnings restores what it found, so threads that enter and leave in turns would undo each other: only the
    first one in and the last one out touch the filters.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._lock = threading.Lock()
        self._n_inside = 0
        self._filters: warnings.catch_warnings[None] | None = None

    def __enter__(self) -> None:
        with self._lock:
            if self._n_inside == 0:
                self._filters = warnings.catch_warnings()
                self._filters.__enter__()
                warnings.filterwarnings("ignore", module=r"PIL\.")
            self._n_inside += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._n_inside -= 1
            if self._n_inside == 0 and self._filters is not None:
                self._filters.__exit__(None, None, None)


_QUIET = _Quiet()
if hasattr(os, "register_at_fork"):  # a data worker forked while another thread decodes must not inherit a lock that is held
    os.register_at_fork(after_in_child=_QUIET.reset)
