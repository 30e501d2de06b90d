"""Embeddings of classes that nothing was trained on, for benchmarks/clustering.py.

    facetric embed path/to/CUB_200_2011/images --output cub.npz
    python benchmarks/unseen_classes.py --cub cub.npz --output embeddings
    facetric train configs/glyphs.toml --output runs/glyphs
    python benchmarks/unseen_classes.py --run runs/glyphs --output embeddings
    python benchmarks/unseen_classes.py --run runs/glyphs --characters 2 --output embeddings

CUB: the features of the packaged network through a closed-form head of 64 dimensions, fitted to the first 50 classes. The next 50
are the validation classes, the last 100 the test classes. A run: its validation and its test classes, by its own network. With
--characters, for a run on glyphs: the test classes are all characters with at least so many images that the run neither trained
on nor validated with (4,000 characters with 2; the run's own have 8). Writes NAME_validation.npz, NAME_test.npz or NAME_many.npz
with vectors and labels.
"""

import argparse
from pathlib import Path

import numpy as np

from facetric import open_run
from facetric.embedder import Vectors, encode, load
from facetric.embedder.heads import closed_form_head
from facetric.images.glyphs import load_glyphs
from facetric.runs import new_images

DIMENSION = 64


def save(folder, name, split, vectors, labels):
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / f"{name}_{split}.npz", vectors=vectors.astype(np.float32), labels=labels)
    print(f"{folder / f'{name}_{split}.npz'}: {len(labels):,} vectors of {len(np.unique(labels)):,} classes", flush=True)


def cub(path, folder):
    found = Vectors.load(path)
    classes = np.array([int(name.split("/")[0][:3]) for name in found.names])
    head = closed_form_head(found.vectors[classes <= 50], classes[classes <= 50], DIMENSION)
    for split, rows in {"validation": (classes > 50) & (classes <= 100), "test": classes > 100}.items():
        save(folder, "cub", split, head(found.vectors[rows]), classes[rows])


def of_run(path, folder):
    run = open_run(path)
    dataset = new_images(run.config.data, validate=True)
    for split in ("validation", "test"):
        part = dataset.select(split)
        save(folder, path.name, split, encode(load(run.path).network, part.source), part.labels)


def characters(path, folder, min_images):
    run, dataset = open_run(path), load_glyphs(min_images=min_images)
    own = new_images(run.config.data, validate=True)
    known = {own.class_names[label] for label in np.unique(own.labels[own.splits != "test"])}
    new = np.array([name not in known for name in dataset.class_names])
    rows = np.flatnonzero(new[dataset.labels])
    part = dataset.take(rows)
    save(folder, path.name, "many", encode(load(run.path).network, part.source), part.labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cub", type=Path, help="vectors of CUB-200-2011, by facetric embed without --model")
    parser.add_argument("--run", type=Path, help="a run folder")
    parser.add_argument("--characters", type=int, help="for a run on glyphs: all other characters with so many images")
    parser.add_argument("--output", type=Path, default=Path("embeddings"))
    options = parser.parse_args()
    if options.cub:
        cub(options.cub, options.output)
    if options.run and options.characters:
        characters(options.run, options.output, options.characters)
    elif options.run:
        of_run(options.run, options.output)


if __name__ == "__main__":
    main()
