"""One look for all pictures: colors that color-blind readers can tell apart, plain axes, fonts that come with matplotlib."""

from __future__ import annotations

import colorsys
import io
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from PIL import Image, ImageFont

from facetric.files import write_atomically

Color = tuple[int, int, int]

# Okabe and Ito's palette (2008), without yellow, which disappears on white.
PALETTE: tuple[str, ...] = ("#CC79A7", "#0072B2", "#E69F00", "#009E73", "#56B4E9", "#D55E00", "#555555")
RIGHT: Color = (0, 158, 115)  # bluish green
WRONG: Color = (213, 94, 0)  # vermilion
QUERY: Color = (40, 40, 40)
INK: Color = (30, 30, 30)
FAINT: Color = (120, 120, 120)
PAPER: Color = (255, 255, 255)

PLOT_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.4,
    "legend.frameon": False,
    "savefig.facecolor": "white",
    "text.parse_math": False,  # a "$" in a run name is literal
}


def write_plot(figure: Figure, path: Path, *, dpi: int) -> Path:
    """A figure of matplotlib in a file, in the format of its suffix; never half-written."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # shown as boxes
        figure.savefig(buffer, dpi=dpi, format=path.suffix.lstrip(".").lower() or "png")
    return _written(path, buffer)


def write_image(image: Image.Image, path: Path, **options: Any) -> Path:
    """A picture in a file, in the format of its suffix; never half-written."""
    buffer = io.BytesIO()
    image.save(buffer, Image.registered_extensions().get(path.suffix.lower(), "PNG"), **options)
    return _written(path, buffer)


def _written(path: Path, buffer: io.BytesIO) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, buffer.getvalue())
    return path


def class_color(position: int) -> Color:
    """A color for the class at this position of the list: neighbors in the list get far hues, the same position the same one.

    >>> class_color(3) == class_color(3), class_color(3) != class_color(4)
    (True, True)
    """
    hue = position * 0.6180339887498949 % 1.0  # the golden ratio never comes back close to a recent hue
    lightness = (0.45, 0.6, 0.35)[position % 3]
    red, green, blue = colorsys.hls_to_rgb(hue, lightness, 0.75)
    return round(255 * red), round(255 * green), round(255 * blue)


@cache
def font(size: int, *, bold: bool = False) -> ImageFont.FreeTypeFont:
    """DejaVu Sans from matplotlib's own files: the same letters on every machine."""
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    return ImageFont.truetype(str(folder / ("DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf")), size)


def shortened(text: str, width: float, typeface: ImageFont.FreeTypeFont) -> str:
    """The text on one line, cut with an ellipsis where it is wider than `width` pixels.

    >>> shortened("cat", 100, font(12)), shortened("a very long name of a class", 60, font(12))
    ('cat', 'a very l…')
    """
    line = "".join(character if character.isprintable() else " " for character in text)
    if typeface.getlength(line) <= width:
        return line
    while line and typeface.getlength(line + "…") > width:
        line = line[:-1]
    return line + "…"
