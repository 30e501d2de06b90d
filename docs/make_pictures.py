"""Every picture of docs/pictures, by one command: `make pictures`.

    python docs/make_pictures.py [--run runs/glyphs] [--folder docs/pictures]

The failure mode is drawn from failure_mode.json and failure_mode.npz in the folder (benchmarks/failure_mode.py makes them).
The map shows the test characters of the built-in glyphs: with --run in the embedding of that run, with its
curves; without one, in the first 40 principal components of their pixels, which is what there is before any training.
"""

import argparse
import colorsys
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from facetric.embedder import Vectors
from facetric.images.readers import load_dataset
from facetric.report.figures import draw_curves, write_plot, write_png
from facetric.report.map import draw_map, tsne_positions
from facetric.report.run_record import read_run
from facetric.report.sprites import Thumbnails
from failure_mode import FailureMode, draw_panels, draw_success_rates, save_animation

N_CLASSES = 60  # a small map of the first classes


def failure_mode(folder):
    """The panels, the success rates and the animation."""
    found = FailureMode.load(folder)
    draw_panels(found).savefig(folder / "failure_mode.png", dpi=110)
    draw_success_rates(found).savefig(folder / "failure_rates.png", dpi=110)
    size = save_animation(found, folder / "failure_mode.gif").stat().st_size
    print(f"{found.table()}\nanimation: {size / 1e6:.2f} MB")


def principal_components(images):
    """(n, 40) unit vectors: what the pixels alone say."""
    pixels = images.reshape(len(images), -1) / 255.0
    u, s, _ = np.linalg.svd(pixels - pixels.mean(axis=0), full_matrices=False)
    vectors = u[:, :40] * s[:40]
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def class_color(position):
    """A color for the class at this position of the list: neighbors in the list get far hues."""
    hue = position * 0.6180339887498949 % 1.0  # the golden ratio never comes back close to a recent hue
    return tuple(round(255 * part) for part in colorsys.hls_to_rgb(hue, (0.45, 0.6, 0.35)[position % 3], 0.75))


def glyphs(folder, run):
    """The map of the test characters, and the curves of the run."""
    dataset = load_dataset("glyphs").select("test")
    if run is None:
        kept = np.flatnonzero(np.isin(dataset.labels, np.unique(dataset.labels)[:N_CLASSES]))
        vectors, where = principal_components(dataset.images[kept]), "pixels, before training"
    else:
        embeddings = Vectors.load(run / "embeddings.npz")
        if not np.array_equal(embeddings.labels, dataset.labels):
            raise SystemExit(
                f"{run} is not a run on the test split of the built-in glyphs as they are: pass one of configs/glyphs.toml"
            )
        kept = np.flatnonzero(np.isin(dataset.labels, np.unique(dataset.labels)[:N_CLASSES]))
        vectors, where = embeddings.vectors[kept], f"run {run.name}"
        write_plot(draw_curves(read_run(run).panels, title=run.name), folder / "glyphs_curves.png", dpi=80)
    shown = dataset.take(kept)
    labels, images = shown.labels, shown.images
    colors = [class_color(position) for position in np.unique(labels, return_inverse=True)[1]]
    thumbnails = Thumbnails(
        lambda image_id, _: ImageOps.expand(Image.fromarray(images[image_id]).convert("RGB"), 2, colors[image_id])
    )
    write_png(draw_map(tsne_positions(vectors), thumbnails, thumbnail_size=24)[0], folder / "glyphs_map.png")
    print(f"{len(labels)} images of {len(np.unique(labels))} classes: {where}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="an evaluated run on the glyphs")
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "pictures")
    options = parser.parse_args()
    failure_mode(options.folder)
    glyphs(options.folder, options.run)


if __name__ == "__main__":
    main()
