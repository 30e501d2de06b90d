"""Requests that no honest client sends: files that are not what they say, bombs, and bytes that are not HTTP."""

import io
import json
import pickle
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image


class Evil:
    """Unpickling it makes a file."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (Path(self.marker),)


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width, height, *, bits=8, color=2, rows=b"", extra=b""):
    header = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def saved(kind, size=(64, 48), **options):
    buffer = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, kind, **options)
    return buffer.getvalue()


def tiff_of_one_tile(side):
    """8 × 8 pixels in a tile of side × side."""
    tile = zlib.compress(bytes(side * side), 9)
    tags = {256: 8, 257: 8, 258: 8, 259: 8, 262: 1, 277: 1, 322: side, 323: side, 324: 300, 325: len(tile)}
    rows = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in sorted(tags.items()))
    return (b"II*\0" + struct.pack("<IH", 8, len(tags)) + rows + b"\0" * 4).ljust(300, b"\0") + tile


def pictures(marker):
    """By name; the marker is a file that must never be made."""
    good = {kind: saved(kind) for kind in ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM")}
    found = {
        "nothing": b"",
        "zeros": bytes(10_000),
        "text": "not a picture é".encode(),
        "html": b"<html><script>alert(1)</script>",
        "json": json.dumps({"url": "http://127.0.0.1:1/x.jpg"}).encode(),
        "address": b"http://127.0.0.1:1/x.jpg",
        "svg": b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>',
        "postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(x) (w) file",
        "pickle": pickle.dumps(Evil(str(marker))),
        "zip": b"PK\x03\x04" + bytes(100),
        "bomb by header": png(30_000, 30_000),
        "bomb of 900 KB": png(20_000, 20_000, color=0, rows=bytes(20_000 * 20_001 // 8)),
        "bomb in color": png(7_000, 7_000, rows=bytes(7_000 * 21_001)),
        "a line of pixels": png(40_000_000, 1, bits=1, color=0),
        "no pixels": png(0, 0),
        "text bomb": png(8, 8, rows=bytes(200), extra=chunk(b"zTXt", b"x\0\0" + zlib.compress(bytes(50_000_000), 9))),
        "profile bomb": png(8, 8, rows=bytes(200), extra=chunk(b"iCCP", b"x\0\0" + zlib.compress(bytes(50_000_000), 9))),
        "huge gif": b"GIF89a" + struct.pack("<HH", 65535, 65535) + good["GIF"][10:],
        "huge ppm": b"P6 100000 100000 255\n" + bytes(100),
        "negative bmp": good["BMP"][:18] + struct.pack("<ii", -5, -7) + good["BMP"][26:],
        "huge tile": tiff_of_one_tile(16_000),
        "looping tiff": b"II*\0" + struct.pack("<IH", 8, 0) + struct.pack("<I", 8),
        "many frames": saved("GIF", save_all=True, append_images=[Image.new("RGB", (64, 48), (i, i, 9)) for i in range(200)]),
        "floats": tiff_floats(),
    }
    for kind, data in good.items():
        found |= {f"{kind} cut at {n}%": data[: len(data) * n // 100] for n in (1, 10, 50, 90, 99)}
        found[f"{kind} and more"] = data + b"<script>" + bytes(1000)
    return found


def tiff_floats():
    buffer = io.BytesIO()
    Image.fromarray(np.full((8, 8), np.nan, dtype=np.float32)).save(buffer, "TIFF")
    return buffer.getvalue()


def mutations(n, seed=0):
    """n pictures with a few bytes changed."""
    rng = np.random.default_rng(seed)
    good = [saved(kind) for kind in ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM")]
    for i in range(n):
        data = bytearray(good[i % len(good)])
        for place in rng.integers(0, min(len(data), 2000) if i % 2 else len(data), rng.integers(1, 12)):
            data[place] = rng.integers(0, 256)
        yield bytes(data)


def streams(host):
    """Bytes on a connection that are not what HTTP expects, by name."""
    start = f"POST /search HTTP/1.1\r\nHost: {host}\r\n".encode()
    return {
        "noise": bytes(range(256)) * 20,
        "no lines": b"A" * 200_000,
        "a header of 200 KB": start + b"X-A: " + b"a" * 200_000 + b"\r\n\r\n",
        "20,000 headers": start + b"".join(b"X-%d: a\r\n" % i for i in range(20_000)) + b"\r\n",
        "negative length": start + b"Content-Length: -5\r\n\r\nabc",
        "two lengths": start + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        "length and chunks": start + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "a huge length": start + b"Content-Length: 99999999999999999999999999\r\n\r\nabc",
        "bad chunks": start + b"Transfer-Encoding: chunked\r\n\r\nZZZ\r\nabc\r\n0\r\n\r\n",
        "a null in a header": start + b"X-A: a\0b\r\n\r\n",
        "two hosts": start + b"Host: evil.example\r\nContent-Length: 0\r\n\r\n",
        "no host": b"GET /clusters HTTP/1.0\r\n\r\n",
        "http 2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300),
        "another server": f"GET http://example.org/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode(),
        "a tunnel": f"CONNECT example.org:443 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode(),
        "a web socket": f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n".encode(),
        "a method of their own": f"BREW /search HTTP/1.1\r\nHost: {host}\r\n\r\n".encode(),
        "a path outside": f"GET /photos/../../../etc/passwd HTTP/1.1\r\nHost: {host}\r\n\r\n".encode(),
        "a path in bytes": f"GET /photos/%ff%00%2e%2e HTTP/1.1\r\nHost: {host}\r\n\r\n".encode(),
        "a target that is not ascii": b"GET /\xc3\xa9 HTTP/1.1\r\nHost: " + host.encode() + b"\r\n\r\n",
        "half a request": start + b"Content-Length: 100000\r\n\r\nabc",
    }
