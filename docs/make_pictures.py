"""Every picture of docs/pictures, by one command: `make pictures`.

    python docs/make_pictures.py [--run runs/glyphs] [--folder docs/pictures]

The failure mode is drawn from failure_mode.json and failure_mode.npz in the folder (benchmarks/failure_mode.py makes them).
The map and the sheets show the test characters of the built-in glyphs: with --run in the embedding of that run, with its
curves; without one, in the first 40 principal components of their pixels, which is what there is before any training.
"""

import argparse
from pathlib import Path

import numpy as np

from facetric.clustering import kmeans
from facetric.embedder import Embeddings
from facetric.images.readers import load_dataset
from facetric.progress import progress_bar
from facetric.report import Thumbnails, draw_map, save_curves, tsne_positions
from facetric.report.failure_mode import FailureMode, draw_panels, draw_success_rates, save_animation
from facetric.report.nearest_images import nearest_neighbors
from facetric.report.selection import worst_queries
from facetric.report.sheets import cluster_rows, confusion_rows, draw_sheet, retrieval_rows

N_CLASSES, N_ROWS = 60, 6  # a small map of the first classes; rows of a sheet
MARKS = "Tick: the same class. Cross: another class, named below."


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


def glyphs(folder, run):
    """The map and the sheets of the test characters."""
    dataset = load_dataset("glyphs").select("test")
    if run is None:
        kept = np.flatnonzero(np.isin(dataset.labels, np.unique(dataset.labels)[:N_CLASSES]))
        vectors, where = principal_components(dataset.images[kept]), "pixels, before training"
    else:
        embeddings = Embeddings.load(run / "embeddings.npz")
        if not np.array_equal(embeddings.labels, dataset.labels):
            raise SystemExit(
                f"{run} is not a run on the test split of the built-in glyphs as they are: pass one of configs/glyphs.toml"
            )
        kept = np.flatnonzero(np.isin(dataset.labels, np.unique(dataset.labels)[:N_CLASSES]))
        vectors, where = embeddings.vectors[kept], f"run {run.name}"
        save_curves(run / "metrics.jsonl", folder / "glyphs_curves.png", title=run.name, dpi=80)
    shown = dataset.take(kept)
    labels, names, thumbnails = shown.labels, shown.class_names, Thumbnails(shown.images)
    with progress_bar("t-SNE") as report:
        positions = tsne_positions(vectors, on_progress=report)
    draw_map(positions, thumbnails, labels=labels, frames=True, thumbnail_size=24).save(folder / "glyphs_map.png")
    found = nearest_neighbors(vectors, 8)
    worst = worst_queries(found.image_ids, labels, n_queries=N_ROWS)
    clusters = kmeans(vectors, len(np.unique(labels)), seed=0).assignment
    sheets = {
        "worst_queries": retrieval_rows(worst, found.image_ids, labels, names),
        "confused_classes": confusion_rows(found.image_ids, found.distances, labels, names, n_pairs=N_ROWS),
        "clusters": cluster_rows(vectors, clusters, labels, names, n_clusters=N_ROWS),
    }
    for name, rows in sheets.items():
        title = f"{name.replace('_', ' ').capitalize()} ({where})"
        draw_sheet(rows, thumbnails, title=title, note=MARKS, tile_size=56).save(folder / f"glyphs_{name}.png")
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
