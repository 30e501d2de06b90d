"""The paper's two illustrations of the failure mode, drawn from what benchmarks/failure_mode.py found."""

from __future__ import annotations

import io
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon
from numpy.typing import NDArray
from PIL import Image
from scipy.spatial import ConvexHull  # type: ignore[import-untyped]

from facetric.metrics import nmi
from facetric.report.figures import PALETTE, PLOT_STYLE

LAYOUT_NAMES = {"one": "one class of three is split", "four": "four classes, all split", "eight": "eight classes, all split"}
_MARKERS = "osD^vPX*"


@dataclass(frozen=True, eq=False)
class FailureMode:
    """The results on disk: `summary` from failure_mode.json, `tracks` from failure_mode.npz."""

    summary: dict[str, Any]
    tracks: dict[str, NDArray[Any]]

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> FailureMode:
        """Read both files of the folder."""
        paths = [Path(folder) / f"failure_mode.{suffix}" for suffix in ("json", "npz")]
        for path in paths:
            if not path.is_file():
                raise FileNotFoundError(f"there is no {path}: run `python benchmarks/failure_mode.py --folder {folder}` first")
        with np.load(paths[1]) as arrays:
            return cls(json.loads(paths[0].read_text(encoding="utf-8")), {key: arrays[key] for key in arrays.files})

    def names(self, key: str) -> list[str]:
        """The layouts, optimizers or losses, in the order of the results."""
        return list(dict.fromkeys(result[key] for result in self.summary["results"]))

    def result(self, layout: str, optimizer: str, loss: str) -> dict[str, Any]:
        for result in self.summary["results"]:
            if (result["layout"], result["optimizer"], result["loss"]) == (layout, optimizer, loss):
                return dict(result)
        raise ValueError(f"the results hold no {loss!r} with {optimizer!r} on layout {layout!r}: run the benchmark again")

    def table(self) -> str:
        """The same as a Markdown table: successes by k-means, and by medoids in brackets."""
        cases = [(layout, optimizer) for layout in self.names("layout") for optimizer in self.names("optimizer")]
        lines = ["| loss | " + " | ".join(f"{layout}, {optimizer}" for layout, optimizer in cases) + " |"]
        lines.append("|---|" + "---:|" * len(cases))
        for loss in self.names("loss"):
            found = [self.result(layout, optimizer, loss) for layout, optimizer in cases]
            counts = [f"{result['successes_kmeans']} ({result['successes_medoids']})" for result in found]
            lines.append(f"| {loss} | " + " | ".join(counts) + " |")
        return "\n".join(lines)


def draw_panels(found: FailureMode, *, layout: str = "one") -> Figure:
    """Start and end of the first counted start under every loss, a row for each optimizer, NMI below each panel."""
    losses, optimizers = found.names("loss"), found.names("optimizer")
    with matplotlib.rc_context({**PLOT_STYLE, "axes.grid": False}):
        figure = Figure(figsize=(2.3 * (len(losses) + 1), 2.75 * len(optimizers)), layout="constrained")
        grid = figure.subplots(len(optimizers), len(losses) + 1, squeeze=False)
        for row, optimizer in zip(grid, optimizers, strict=True):
            first = f"{layout}|{optimizer}|{losses[0]}"
            _draw_points(row[0], found, first, layout, 0)
            row[0].set_title("start", loc="center")
            row[0].set_ylabel(optimizer, fontsize=10, fontweight="bold")
            for axes, loss in zip(row[1:], losses, strict=True):
                _draw_points(axes, found, f"{layout}|{optimizer}|{loss}", layout, -1)
                axes.set_title(loss, loc="center")
    return figure


def draw_success_rates(found: FailureMode) -> Figure:
    """Successes of every loss on every layout, with 95% intervals (Wilson): k-means filled, clustering by medoids hollow."""
    losses, optimizers, layouts = (found.names(key) for key in ("loss", "optimizer", "layout"))
    n = int(found.summary["n_starts"])
    with matplotlib.rc_context(PLOT_STYLE):
        figure = Figure(figsize=(3.5 * len(layouts), 1.9 * len(optimizers) + 0.3), layout="constrained")
        grid = figure.subplots(len(optimizers), len(layouts), squeeze=False, sharex=True, sharey=True)
        for row, optimizer in zip(grid, optimizers, strict=True):
            for axes, layout in zip(row, layouts, strict=True):
                for number, loss in enumerate(losses):
                    result = found.result(layout, optimizer, loss)
                    color = PALETTE[(number + 1) % len(PALETTE)]
                    for score, shift, face in (("kmeans", -0.14, color), ("medoids", 0.16, "white")):
                        low, share, high = _wilson(int(result[f"successes_{score}"]), n)
                        axes.plot([low, high], [number + shift] * 2, color=color, linewidth=1.2)
                        axes.plot(share, number + shift, "o", color=color, markerfacecolor=face, markersize=5.5, clip_on=False)
                axes.set_title(f"{LAYOUT_NAMES.get(layout, layout)}\n{optimizer}", fontsize=9)
                axes.set_yticks(range(len(losses)), losses)
                axes.set_xlim(-0.03, 1.03)
                axes.set_xticks([0, 0.5, 1], ["0%", "50%", "100%"])
        grid[0, 0].invert_yaxis()
        grid[-1, 0].set_xlabel(f"share of {n} starts solved: ● by k-means, ○ by medoids", loc="left", fontsize=8)
    return figure


def save_animation(
    found: FailureMode, path: str | os.PathLike[str], *, layout: str = "one", optimizer: str = "gradient descent", dpi: int = 72
) -> Path:
    """A GIF of the first counted start, the losses side by side; the last frame stays for two seconds."""
    losses = found.names("loss")
    steps = found.tracks["steps"]
    n_frames = len(found.tracks[f"{layout}|{optimizer}|{losses[0]}|points"])
    frames = []
    with matplotlib.rc_context({**PLOT_STYLE, "axes.grid": False}):
        for frame in range(n_frames):
            figure = Figure(figsize=(3.0 * len(losses), 3.5))
            figure.subplots_adjust(left=0.01, right=0.99, top=0.84, bottom=0.1, wspace=0.06)
            for axes, loss in zip(figure.subplots(1, len(losses), squeeze=False)[0], losses, strict=True):
                key = f"{layout}|{optimizer}|{loss}"
                _draw_points(axes, found, key, layout, min(frame, len(found.tracks[f"{key}|points"]) - 1), widest=True)
                axes.set_title(loss, loc="center", fontsize=12, fontweight="bold")
            figure.text(0.01, 0.985, f"{optimizer}, step {int(steps[min(frame, len(steps) - 1)])}", va="top", color="#777777")
            buffer = io.BytesIO()
            figure.savefig(buffer, dpi=dpi)
            frames.append(Image.open(buffer).convert("RGB"))
    palette = frames[-1].quantize(64, dither=Image.Dither.NONE)  # one palette: colors do not flicker
    colors = np.array(palette.getpalette(), dtype=np.uint8).reshape(-1, 3)
    colors[(colors > 247).all(axis=1)] = 255  # quantization grays the paper a little
    palette.putpalette(colors.ravel().tolist())
    indexed = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    durations = [600] + [70] * (n_frames - 2) + [2000]
    indexed[0].save(target, save_all=True, append_images=indexed[1:], duration=durations, loop=0, optimize=True)
    return target


def _draw_points(axes: Axes, found: FailureMode, key: str, layout: str, frame: int, *, widest: bool = False) -> None:
    """Points in the color and shape of their class, medoids in bold, the clusters of the medoids outlined, both NMI below."""
    track = found.tracks[f"{key}|points"]
    points, labels = track[frame], found.tracks[f"{layout}|labels"]
    medoids, assignment = found.tracks[f"{key}|medoids"][frame], found.tracks[f"{key}|assignment"][frame]
    seen = track[: frame + 1].reshape(-1, 2) if widest else points  # an animation only ever zooms out
    center, reach = _view(seen)
    for cluster in range(len(medoids)):
        outline = _outline(points[assignment == cluster], 0.09 * reach)
        axes.add_patch(Polygon(outline, closed=True, fill=False, linestyle=":", linewidth=1.2, edgecolor="#777777"))
    for label in np.unique(labels).tolist():
        own = np.flatnonzero(labels == label)
        style: dict[str, Any] = {
            "marker": _MARKERS[label % len(_MARKERS)],
            "color": PALETTE[label % len(PALETTE)],
            "linewidths": 0,
        }
        axes.scatter(points[own, 0], points[own, 1], s=22, alpha=0.85, **style)
        bold = np.intersect1d(own, medoids)
        axes.scatter(points[bold, 0], points[bold, 1], s=80, zorder=3, **{**style, "linewidths": 2.0, "edgecolors": "#111111"})
    axes.set_xlim(center[0] - reach, center[0] + reach)
    axes.set_ylim(center[1] - reach, center[1] + reach)
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(True)
    axes.spines[:].set_color("#cccccc")
    by_kmeans, by_medoids = float(found.tracks[f"{key}|nmi"][frame]), nmi(labels, assignment)
    text = f"NMI: k-means {_rounded_down(by_kmeans)}, medoids {_rounded_down(by_medoids)}"
    axes.set_xlabel(text, fontsize=8, fontweight="bold" if by_kmeans > 1 - 1e-9 else "normal")


def _rounded_down(score: float) -> str:
    """Two decimals; only a perfect score is shown as 1.00."""
    return f"{math.floor(score * 100 + 1e-7) / 100:.2f}"


def _view(points: NDArray[np.floating]) -> tuple[NDArray[np.floating], float]:
    low, high = points.min(axis=0), points.max(axis=0)
    return (low + high) / 2, 0.62 * float(max(*(high - low), 1e-3))


def _outline(points: NDArray[np.floating], distance: float) -> NDArray[np.float64]:
    """The hull of the points at a distance, with round corners."""
    angles = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    circle = distance * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    cloud = (points[:, None, :] + circle).reshape(-1, 2).astype(np.float64)
    hull: NDArray[np.float64] = cloud[ConvexHull(cloud).vertices]
    return hull


def _wilson(successes: int, n: int) -> tuple[float, float, float]:
    """The lower end, the share and the upper end of Wilson's 95% interval."""
    z, share = 1.96, successes / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), share, min(1.0, middle + half)
