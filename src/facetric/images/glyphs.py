"""The built-in dataset: characters in the fonts that come with matplotlib. A class is a character, its images are font faces.

It stands in for Online Products: thousands of classes with a dozen images each, and no files beyond matplotlib's. Every image
is drawn at one size per em on one baseline, so that `o` and `O` keep their sizes and a comma stays below an apostrophe; only
a glyph too large for the box is made smaller. Characters that look the same are found by measurement and dropped.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from facetric.images.dataset import ImageDataset

FAMILIES = ("DejaVu", "STIX")

# Two images look alike when |a − b| < LOOK_ALIKE · max(|a|, |b|), the norms over pixels. By the median over their common faces
# 219 pairs of characters differ by less than 0.01 (A, Α, А), few more by less than 0.1 (293) or 0.15 (348: Ŏ, Ǒ); then come
# characters that differ by a small accent (494 below 0.2, 1,040 below 0.25).
LOOK_ALIKE = 0.15
# Two characters look alike when their images do in this fraction of the faces that have both: one face in ten, two in sixteen.
FACE_FRACTION = 0.1

_EM = 0.6875  # of the box: accents above capitals and descenders fit for 99 glyphs of 100
_BASELINE = 0.75  # of the box, from the top
_MARGIN = 1 / 32  # of the box, kept free on every side
_OVERSAMPLING = 4  # glyphs are centered to a quarter of a pixel, and hinting disappears
_LARGEST = 256  # pixels; 25,000 characters of this side are 1.7 GB


def load_glyphs(*, size: int = 32, seed: int = 0, min_images: int = 8) -> ImageDataset:
    """White characters on black, (n, size, size), in half of the characters for training and half for testing, by seed.

    * A face counts for a character when its character map has it and the drawing is not blank. Faces that draw the same
      pixels count once.
    * Characters are visited from the most images to the fewest, ties by code point. A character with fewer than `min_images`
      images, or that looks like one already taken, is dropped: no two characters that are left look alike (`LOOK_ALIKE`,
      `FACE_FRACTION`).
    * Images are ordered by code point, then by the face's file name. Classes are measured at the size asked for, whatever
      the seed. The same Pillow and matplotlib give the same pixels.
    """
    if size < 16 or size % 8:
        raise ValueError(
            f"size must be a multiple of 8, at least 16, or characters blur into each other; got {size}: 32 is typical "
            "(--set data.options.size=32)"
        )
    if size > _LARGEST:
        raise ValueError(
            f"size must be at most {_LARGEST}, or the characters fill the memory; got {size}: 32 is typical "
            "(--set data.options.size=32)"
        )
    if min_images < 2:
        raise ValueError(
            f"min_images must be at least 2, or a class has nothing to retrieve; got {min_images}: 8 is typical "
            "(--set data.options.min_images=8)"
        )
    images, characters, faces = _draw_all(size, min_images)
    chosen = _choose(images, characters, faces, min_images)
    images, characters = images[chosen], characters[chosen]
    codes, labels = np.unique(characters, return_inverse=True)
    if len(codes) < 2:
        raise ValueError(
            f"{len(codes)} characters of the DejaVu and STIX fonts have {min_images} different images, and 2 are needed: lower "
            "min_images (--set data.options.min_images=8)"
        )
    trains = np.zeros(len(codes), dtype=bool)
    trains[np.random.default_rng(seed).permutation(len(codes))[: len(codes) // 2]] = True
    return ImageDataset(
        name="glyphs",
        images=images,
        labels=labels.astype(np.int64),
        class_names=tuple(f"U+{code:04X} {chr(code)}" for code in codes),
        splits=np.where(trains[labels], "train", "test"),
    )


def look_alike_pairs(
    images: NDArray[np.uint8], *, threshold: float = LOOK_ALIKE, block: int = 1024
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All pairs i < j of images (n, size, size) with |a − b| < threshold · max(|a|, |b|), without comparing all their pixels.

    Means over 8×8 cells can only shrink a distance: pairs too far apart by them need no closer look. The rest is decided in
    integers, hence the same on every machine.
    """
    n, size = len(images), images.shape[1]
    flat = images.reshape(n, -1)
    energy = np.einsum("ij,ij->i", flat, flat, dtype=np.int64)  # (n,) |a|²
    cells = images.reshape(n, 8, size // 8, 8, size // 8).mean(axis=(2, 4), dtype=np.float32).reshape(n, 64)
    cells *= np.float32(size // 8)  # (n, 64) distances between rows are at most those between images
    squares = np.einsum("ij,ij->i", cells, cells)
    reach = ((threshold**2 + 1e-5) * energy).astype(np.float32)  # the slack covers rounding
    found = [np.empty((0, 2), dtype=np.int64)]
    for start in range(0, n, block):
        rows = slice(start, start + block)
        distances = squares[rows, None] + squares[start:] - 2 * cells[rows] @ cells[start:].T
        near = np.triu(distances < np.maximum(reach[rows, None], reach[start:]), 1)
        for pairs in np.array_split(np.argwhere(near) + start, near.sum() // 4096 + 1):
            a, b = pairs.T
            difference = flat[a].astype(np.int32) - flat[b]
            squared = np.einsum("ij,ij->i", difference, difference, dtype=np.int64)
            found.append(pairs[squared < threshold**2 * np.maximum(energy[a], energy[b])])
    first, second = np.concatenate(found).T
    return first, second


def _choose(
    images: NDArray[np.uint8], characters: NDArray[np.int64], faces: NDArray[np.int64], min_images: int
) -> NDArray[np.int64]:
    """Positions of the images that stay, by code point and face."""
    by_character: dict[int, dict[bytes, int]] = {}  # character → pixels → the first image that has them
    for i, character in enumerate(characters.tolist()):
        by_character.setdefault(character, {}).setdefault(images[i].tobytes(), i)
    rivals = _look_alike_characters(images, characters, faces)
    taken: dict[int, list[int]] = {}
    for character in sorted(by_character, key=lambda code: (-len(by_character[code]), code)):
        if len(by_character[character]) < min_images:
            break
        if rivals.get(character, set()).isdisjoint(taken):
            taken[character] = list(by_character[character].values())
    return np.array([i for character in sorted(taken) for i in taken[character]], dtype=np.int64)


def _look_alike_characters(
    images: NDArray[np.uint8], characters: NDArray[np.int64], faces: NDArray[np.int64]
) -> dict[int, set[int]]:
    """For each character those that look like it in at least `FACE_FRACTION` of their common faces."""
    n_alike: Counter[tuple[int, int]] = Counter()
    faces_of: dict[int, set[int]] = {}
    for face in np.unique(faces):
        here = np.flatnonzero(faces == face)
        for character in characters[here].tolist():
            faces_of.setdefault(character, set()).add(int(face))
        first, second = look_alike_pairs(images[here])
        n_alike.update(zip(characters[here[first]].tolist(), characters[here[second]].tolist(), strict=True))
    rivals: dict[int, set[int]] = {}
    for (a, b), n in n_alike.items():
        if n >= FACE_FRACTION * len(faces_of[a] & faces_of[b]):
            rivals.setdefault(a, set()).add(b)
            rivals.setdefault(b, set()).add(a)
    return rivals


def _draw_all(size: int, min_faces: int) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Images (n, size, size) of the characters in enough faces, with the character and the face of each."""
    import matplotlib
    from matplotlib.ft2font import FT2Font

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    fonts = sorted(path for path in folder.glob("*.ttf") if path.name.startswith(FAMILIES))
    maps = []  # the code points that a font can draw: glyph 0 is the box for missing characters, private use has no meaning
    for path in fonts:
        charmap = FT2Font(str(path)).get_charmap().items()
        maps.append(sorted(code for code, glyph in charmap if glyph != 0 and unicodedata.category(chr(code)) != "Co"))
    n_faces = Counter(character for codes in maps for character in codes)
    images, characters, faces = [], [], []
    for face, (path, codes) in enumerate(zip(fonts, maps, strict=True)):
        pen = _Pen(path, size)
        for character in codes:
            if n_faces[character] >= min_faces and (image := pen.draw(chr(character))) is not None:
                images.append(image)
                characters.append(character)
                faces.append(face)
    drawn = np.array(images, dtype=np.uint8).reshape(-1, size, size)  # there may be none
    return drawn, np.array(characters, dtype=np.int64), np.array(faces, dtype=np.int64)


class _Pen:
    """Draws characters of one face into the box."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.box = size * _OVERSAMPLING
        self.margin = max(_OVERSAMPLING, round(self.box * _MARGIN))
        self.baseline = round(self.box * _BASELINE)
        self.fonts: dict[int, ImageFont.FreeTypeFont] = {}

    def draw(self, character: str) -> NDArray[np.uint8] | None:
        """The character on its baseline, its ink centered from left to right; None when there is no ink."""
        pixels, inner = round(self.box * _EM), self.box - 2 * self.margin
        while True:
            canvas, ink = self._ink(character, pixels)
            if ink is None:
                return None
            if (extent := max(ink[2] - ink[0], ink[3] - ink[1])) <= inner:
                break
            pixels = min(pixels - 1, pixels * inner // extent)
        left = (ink[0] + ink[2] - self.box) // 2
        top = canvas.height // 2 - self.baseline
        top = min(max(top, ink[3] + self.margin - self.box), ink[1] - self.margin)  # ink that sticks out is pushed in
        return np.asarray(canvas.crop((left, top, left + self.box, top + self.box)).reduce(_OVERSAMPLING))

    def _ink(self, character: str, pixels: int) -> tuple[Image.Image, tuple[int, int, int, int] | None]:
        if pixels not in self.fonts:
            self.fonts[pixels] = ImageFont.truetype(str(self.path), pixels, layout_engine=ImageFont.Layout.BASIC)
        canvas = Image.new("L", (4 * self.box, 4 * self.box))  # the largest glyphs span 3 em
        origin = (canvas.width // 2, canvas.height // 2)
        ImageDraw.Draw(canvas).text(origin, character, fill=255, font=self.fonts[pixels], anchor="ls")
        return canvas, canvas.getbbox()
