"""Thirty files that are broken or odd, each with the kind of finding that it must give."""

import io
import os
import struct
import zlib

import numpy as np
from PIL import Image


def photo(seed, size=(64, 48)):
    """A picture with content: noise does not compress, so every cut removes some of it."""
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))


def encoded(image, format_name, **options):
    buffer = io.BytesIO()
    image.save(buffer, format_name, **options)
    return buffer.getvalue()


def png_claiming(width, height):
    """A small file that says it is a large picture."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


def half(content):
    return content[: len(content) // 2]


def with_zeros(content):
    """The size is right, the second half was never written."""
    return half(content) + bytes(len(content) - len(content) // 2)


def with_damage(content, marker=b"IDAT"):
    position = content.index(marker) + 40
    return content[:position] + bytes(200) + content[position + 200 :]


def broken_contents():
    """File name → (kind of finding, bytes)."""
    jpeg, png = encoded(photo(1), "JPEG", quality=95), encoded(photo(2), "PNG")
    return {
        "zero bytes.jpg": ("empty", b""),
        "text.jpg": ("not an image", b"this is not a picture\n" * 50),
        "error page.png": ("not an image", b"<!DOCTYPE html><title>404</title>"),
        "drawing.png": ("not an image", b"<svg xmlns='http://www.w3.org/2000/svg'/>"),
        "document.jpg": ("not an image", b"%PDF-1.7\n%..."),
        "postscript.jpg": ("not an image", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n"),
        "zeros.jpg": ("not an image", bytes(5000)),
        "[red]noise.jpg": ("not an image", np.random.default_rng(3).bytes(5000)),
        "bücher 名前.jpg": ("not an image", b"non-ASCII name"),
        "line\nbreak.jpg": ("not an image", b"a name of two lines"),
        "half.jpg": ("truncated", half(jpeg)),
        "end missing.jpg": ("truncated", jpeg[:-200]),
        "half progressive.jpg": ("truncated", half(encoded(photo(4), "JPEG", progressive=True))),
        "half.png": ("truncated", half(png)),
        "half.gif": ("truncated", half(encoded(photo(5), "GIF"))),
        "half.bmp": ("truncated", half(encoded(photo(6), "BMP"))),
        "half.ppm": ("truncated", half(encoded(photo(7), "PPM"))),
        "half.tif": ("truncated", half(encoded(photo(8), "TIFF"))),
        "half.webp": ("unreadable", half(encoded(photo(9), "WEBP", lossless=True))),
        "header only.jpg": ("unreadable", jpeg[:20]),
        "signature only.png": ("unreadable", png[:8]),
        "damaged.png": ("unreadable", with_damage(png)),
        "float.tif": (
            "unreadable",
            encoded(Image.fromarray(np.linspace(-5, 900, 400, dtype=np.float32).reshape(20, 20)), "TIFF"),
        ),
        "bomb.png": ("too large", png_claiming(60_000, 60_000)),
        "pillow would warn.png": ("too large", png_claiming(10_000, 10_000)),
        "over our limit.png": ("too large", png_claiming(8_001, 8_000)),
        "second half zeros.jpg": ("suspicious", with_zeros(jpeg)),
        "png.jpg": ("suspicious", encoded(photo(10), "PNG")),
        "tiny.png": ("suspicious", encoded(photo(11, (5, 60)), "PNG")),
        "notes.txt": ("not used", b"taken in May"),
    }


def write_broken_files(folder):
    """Write them all; name → kind. Links, pipes and folders are added where the system has them."""
    kinds = {}
    for name, (kind, content) in broken_contents().items():
        (folder / name).write_bytes(content)
        kinds[name] = kind
    (folder / "gone.jpg").symlink_to(folder / "nowhere")
    (folder / "circle.jpg").symlink_to(folder / "circle.jpg")
    os.mkfifo(folder / "pipe.jpg")
    return kinds | {"gone.jpg": "missing", "circle.jpg": "unreadable", "pipe.jpg": "not an image"}
