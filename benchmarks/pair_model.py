"""Groups by learned links: learned on some kinds of photos, tested on another; and the model that comes with the install.

    FACETRIC_DATA=path/to/datasets python benchmarks/pair_model.py --leave-out pets groceries cub --vectors cache
    FACETRIC_DATA=path/to/datasets python benchmarks/pair_model.py --cub --vectors cache
    FACETRIC_DATA=path/to/datasets python benchmarks/pair_model.py --write --vectors cache --glyphs runs/glyphs

--leave-out: learned on the other kinds of birds (cub), pets, groceries and characters (glyphs), tested on piles of this one.
--cub: learned on the classes 1 to 100 of CUB (own), or on the three other kinds, tested on piles of the classes 101 to 200; with
the features as they are, and with a closed-form head fitted to the classes 1 to 50 and links learned on 51 to 100.
Both print BCubed F1 / pairwise F1 (groups found), beside k-means with the true k and the best cut of the learned
tree; then how far the expected precision of groups is from the real one.
--write: learned on all kinds, into src/facetric/clustering/pair_model.json.

Vectors are kept in the folder of --vectors. The characters are embedded by a run of configs/glyphs.toml (--glyphs), and only
those of its test half are used; without it there are three kinds. FACETRIC_DATA holds CUB_200_2011, pets (the Oxford-IIIT pets)
and groceries (the Grocery Store dataset), one folder for a class.
"""

import argparse
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.special import expit
from sklearn.cluster import KMeans

import facetric
import facetric.clustering.pair_model as product
from facetric.clustering.cut import best_cut
from facetric.clustering.group_features import GROUP_FEATURES
from facetric.clustering.lessons import Lesson, drawn_rows
from facetric.clustering.linear import Examples, Linear
from facetric.clustering.pair_model import PairModel
from facetric.embedder import Embedder, build_network
from facetric.embedder.heads import closed_form_head
from facetric.images.readers import load_dataset
from facetric.metrics import precision_recall, unit_rows

# The first variant of a kind is the one that is tested; all of them teach.
VARIANTS = {
    "cub": ("lite0_stretch", "lite1_stretch"),
    "pets": ("lite0_crop", "lite0_stretch", "lite1_crop", "lite2_crop"),
    "groceries": ("lite0_crop", "lite0_stretch", "lite1_crop", "lite2_crop"),
    "glyphs": ("glyphnet",),
}
TAIL = 0  # in place of the photos per class: 30 to 2 of them
SHAPES = {  # classes, photos per class
    "cub": ((4, 15), (8, 15), (8, 5), (8, TAIL), (20, 15), (20, TAIL), (50, 5), (50, TAIL)),
    "pets": ((4, 15), (8, 15), (8, 5), (8, TAIL), (12, 10), (12, TAIL)),
    "groceries": ((4, 15), (8, 15), (8, 5), (20, 15), (20, TAIL), (30, 5)),
    "glyphs": ((8, 10), (20, 10), (20, TAIL), (50, 5), (50, TAIL), (100, 5)),
}
N_PILES = 100  # that a kind teaches by
PAIR_STRENGTH, MERGE_STRENGTH, GROUP_STRENGTH = 10.0, 1.0, 1.0


def seen(variants, rows, classes, rng):
    """Vectors of a pile as one of the networks sees it; at times projected, at times sharper, as if trained on its classes."""
    x = variants[rng.integers(len(variants))][rows]
    if rng.random() < 0.35:
        width = int(np.exp(rng.uniform(np.log(24), np.log(160))))
        x = x @ rng.standard_normal((x.shape[1], width)).astype(np.float32)
    if rng.random() < 0.4:
        x, (_, codes) = unit_rows(x), np.unique(classes[rows], return_inverse=True)
        means = np.stack([x[codes == c].mean(axis=0) for c in range(codes.max() + 1)])
        x = x + np.float32(rng.uniform(0, 0.6)) * (means[codes] - x)
    return x


def lessons_of(variants, classes, n_piles=N_PILES, seed=1):
    rng = np.random.default_rng(seed)
    piles = drawn_rows(classes, n_piles, rng)
    return [Lesson.of(seen(variants, rows, classes, rng), np.unique(classes[rows], return_inverse=True)[1]) for rows in piles]


def learned(lessons):
    """A model of several kinds, from nothing; `lessons` per kind. Promises are corrected on a kind by what others teach."""
    found = fitted([lesson for some in lessons.values() for lesson in some])
    tests = []
    for kind, some in lessons.items():
        others = [lesson for other, parts in lessons.items() if other != kind for lesson in parts]
        tests += (fitted(others) if others else found).judged(some)
    blank = replace(found, groups=Linear.blank(np.concatenate([features for features, _, _ in tests])))
    return blank.corrected(tests, sum(len(features) for features, _, _ in tests), GROUP_STRENGTH)


def fitted(lessons):
    pairs = Examples.joined([lesson.examples for lesson in lessons], 1.0)
    pairs = Linear.blank(pairs.features).fitted(pairs._replace(importance=pairs.importance * len(pairs.features)), PAIR_STRENGTH)
    bare = PairModel(pairs, Linear.blank(np.zeros((1, 23))), Linear.blank(np.zeros((1, len(GROUP_FEATURES)))), 0.0)
    merges = Examples.joined([m for m in (lesson.merges(bare._tree(lesson)[0]) for lesson in lessons) if len(m.targets)], 1.0)
    importance = merges.importance * len(merges.features)
    merges = Linear.blank(merges.features).fitted(merges._replace(importance=importance), MERGE_STRENGTH)
    return replace(bare, merges=merges)


def drawn(classes, own, shape, n_piles, seed):
    n_classes, per_class = shape
    sizes = np.full(n_classes, per_class) if per_class else np.round(np.geomspace(30, 2, n_classes)).astype(int)
    for number in range(n_piles):
        rng = np.random.default_rng([seed, number, n_classes, per_class])
        chosen = rng.permutation(own)[:n_classes]
        yield np.concatenate([rng.permutation(np.flatnonzero(classes == c))[:n] for c, n in zip(chosen, sizes, strict=True)])


def judged(title, vectors, classes, piles, systems):
    """Print a row per shape of pile and the means; then expected against real precision of groups and F1 of piles."""
    totals, (groups, within, off) = {}, ({name: [] for name in systems} for _ in range(3))
    for (n_classes, per_class), rows_of_piles in piles.items():
        found = {}
        for rows in rows_of_piles:
            x, own = vectors[rows], np.unique(classes[rows], return_inverse=True)[1]
            clusters = {"k-means": KMeans(len(np.unique(own)), n_init=3, random_state=0).fit_predict(x)}
            for name, model in systems.items():
                lesson = Lesson.of(x, own)
                tree, probability = model._tree(lesson)
                cut = best_cut(tree, probability)
                labels = cut.roots[tree.leaves]
                clusters[name] = labels
                clusters[f"{name}, best cut"] = best_of(tree, own)
                scores = model._scores(lesson.listed, lesson.features)
                numbers, expected = model.precision(scores, tree, probability, cut)
                if len(numbers):
                    real = lesson.precision(labels, numbers)
                    groups[name] += zip(expected, real, strict=True)
                    pairs = tree.sizes[numbers] * (tree.sizes[numbers] - 1)
                    of_pile, true = float(pairs @ expected / pairs.sum()), float(pairs @ real / pairs.sum())
                    low, high = (expit(np.log(of_pile / (1 - of_pile)) + sign * model.error) for sign in (-1, 1))
                    within[name].append((low <= true <= high, abs(of_pile - true), n_classes))
                off[name].append(100 * (cut.f1 - f1s(own, labels)[1]))
            for name, labels in clusters.items():
                found.setdefault(name, []).append((*f1s(own, labels), len(np.unique(labels))))
        means = {name: np.mean(values, axis=0) for name, values in found.items()}
        for name, mean in means.items():
            totals.setdefault(name, []).append(mean)
        cells = (f"{name} {100 * m[0]:.1f}/{100 * m[1]:.1f} ({m[2]:.0f})" for name, m in means.items())
        print(f"{title}, {n_classes} x {per_class or 'tail'} | " + " | ".join(cells), flush=True)
    means = {name: 100 * np.mean(values, axis=0) for name, values in totals.items()}
    print(f"{title}, mean | " + " | ".join(f"{name} {m[0]:.1f}/{m[1]:.1f}" for name, m in means.items()))
    for name, pairs in groups.items():
        expected, real = np.array(sorted(pairs)).T
        bins = np.array_split(expected - real, 8)
        error = sum(abs(part.mean()) * len(part) for part in bins) / len(real)
        hold = np.array(within[name], dtype=float)
        many = hold[hold[:, 2] >= 50]
        print(f"{title}, {name}: expected against real precision of {len(real)} groups: binned error {error:.3f},", end=" ")
        print(f"mean error {np.abs(expected - real).mean():.3f}, bias {(expected - real).mean():+.3f};", end=" ")
        print(f"of piles: mean error {hold[:, 1].mean():.3f}, interval holds in {hold[:, 0].mean():.0%}", end=" ")
        print(f"({many[:, 0].mean() if len(many) else np.nan:.0%} of 50 classes or more);", end=" ")
        print(f"F1: mean error {np.mean(np.abs(off[name])):.1f}, bias {np.mean(off[name]):+.1f}", flush=True)


def best_of(tree, own):
    """The best horizontal cut by the labels."""
    nodes, best = np.arange(tree.n_leaves), (-1.0, None)
    for m, (u, v) in enumerate(tree.parts):
        nodes[(nodes == u) | (nodes == v)] = tree.n_leaves + m
        if len(tree.parts) - m <= 200 and (score := sum(f1s(own, nodes[tree.leaves]))) > best[0]:
            best = score, nodes.copy()
    return best[1] if best[1] is not None else nodes


def f1s(classes, clusters):
    pairs, points = precision_recall(classes, clusters)
    return points.f1, pairs.f1


def leave_out(kind, kinds, lessons, options):
    model = learned({name: some for name, some in lessons.items() if name != kind})
    halves = np.random.default_rng(5)
    pets, groceries = halves.permutation(25)[13:], halves.permutation(60)[30:]
    own = {"pets": pets, "groceries": groceries, "cub": np.arange(100, 200), "glyphs": np.arange(1, 1044, 2)}[kind]
    variants, classes = kinds[kind]
    piles = {shape: list(drawn(classes, own, shape, options.piles, 9)) for shape in SHAPES[kind]}
    judged(kind, variants[0], classes, piles, {"links": model})


def cub(kinds, lessons, options):
    others = learned({name: some for name, some in lessons.items() if name != "cub"})
    vectors, classes = kinds["cub"][0][0], kinds["cub"][1]
    piles = {}
    for shape in SHAPES["cub"]:
        drawings = [drawn(classes, np.arange(100, 200), shape, options.piles, seed) for seed in options.seeds]
        piles[shape] = [rows for some in drawings for rows in some]
    fitting, calibrating = classes < 50, (classes >= 50) & (classes < 100)
    head = closed_form_head(vectors[fitting], classes[fitting], 64)
    embedded = unit_rows(head(vectors).astype(np.float32))
    for title, x, rows in (("CUB, no training", vectors, classes < 100), ("CUB, head", embedded, calibrating)):
        own = others.fit(x[rows], classes[rows])
        judged(title, x, classes, piles, {"own": own, "of other kinds": others})


def vectors_of(kind, variant, options):
    """(n, dim), from the folder of vectors or embedded now."""
    kept = options.vectors / f"v_{kind}_{variant}.npy"
    if not kept.exists():
        print(f"embedding {kind}, {variant}", flush=True)
        if kind == "glyphs":
            model, files = facetric.load(options.glyphs), load_dataset("glyphs").select("test").images
        else:
            name, _, fit = variant.partition("_")
            network = build_network(f"tf_efficientnet_{name}", dim=None, weights="packaged", fit=fit)
            model, files = Embedder(network.eval()), listed(kind)[0]
        options.vectors.mkdir(parents=True, exist_ok=True)
        np.save(kept, model.encode(list(files)))
    return unit_rows(np.load(kept))


def listed(kind):
    root = Path(os.environ.get("FACETRIC_DATA", "."))
    if kind == "cub":
        lines = (root / "CUB_200_2011" / "images.txt").read_text().split()[1::2]
        return [root / "CUB_200_2011" / "images" / line for line in lines], np.array([int(line[:3]) - 1 for line in lines])
    files = sorted((root / kind).glob("*/*"), key=lambda file: (file.parent.name, file.name))
    return files, np.unique([file.parent.name for file in files], return_inverse=True)[1]


def labels_of(kind):
    if kind == "glyphs":
        return np.unique(load_dataset("glyphs").select("test").labels, return_inverse=True)[1]
    return listed(kind)[1]


def rounded(value):
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    return round(value, 6) if isinstance(value, float) else value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path, required=True, help="folder where vectors are kept")
    parser.add_argument("--glyphs", type=Path, help="a run of configs/glyphs.toml")
    parser.add_argument("--leave-out", choices=sorted(VARIANTS), nargs="+", default=[], help="learn on the other kinds")
    parser.add_argument("--cub", action="store_true", help="learn on the classes 1 to 100 of CUB, test on the others")
    parser.add_argument("--write", action="store_true", help="learn on all kinds, write the model that comes with the install")
    parser.add_argument("--short", action="store_true", help="few piles: whether everything runs, not what it is worth")
    options = parser.parse_args()
    options.piles, options.seeds = (1, (1,)) if options.short else (5, (1, 2, 3))
    if not (options.leave_out or options.cub or options.write):
        parser.error("nothing to do: add --leave-out KIND, --cub or --write")
    has_glyphs = options.glyphs or (options.vectors / "v_glyphs_glyphnet.npy").exists()
    kinds = {}
    for kind, variants in VARIANTS.items():
        if kind != "glyphs" or has_glyphs:
            kinds[kind] = [vectors_of(kind, variant, options) for variant in variants], labels_of(kind)
    if unknown := set(options.leave_out) - set(kinds):
        parser.error(f"no vectors of {', '.join(unknown)}: name a run of configs/glyphs.toml with --glyphs")
    started = time.perf_counter()
    lessons = {kind: lessons_of(*data, 10 if options.short else N_PILES) for kind, data in kinds.items()}
    print(f"lessons: {time.perf_counter() - started:.0f} s", flush=True)
    for kind in options.leave_out:
        leave_out(kind, kinds, lessons, options)
    if options.cub:
        cub(kinds, lessons, options)
    if options.write:
        model = learned(lessons)
        place = Path(product.__file__).with_name("pair_model.json")
        place.write_text(json.dumps(rounded(model.as_dict()), indent=1) + "\n", encoding="utf-8")
        print(f"wrote {place.name}: {PairModel.packaged()!r}, error {model.error:.2f}")
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
