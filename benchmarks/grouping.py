"""Photos of unseen classes in groups, the number of groups unknown: beside other methods, and how far corrections carry.

    FACETRIC_DATA=path/to/datasets python benchmarks/grouping.py --vectors cache [--run runs/cub --glyphs runs/glyphs]
    FACETRIC_DATA=path/to/datasets python benchmarks/grouping.py --vectors cache --corrections

CUB: the classes 1 to 100 are labeled, piles are drawn of the classes 101 to 200. "no training": the packaged network; "head": a
closed-form head fitted to the classes 1 to 50, of which 51 to 100 teach what belongs together; "fine-tuned": a run (--run) whose
validation classes teach. Glyphs: a run of configs/glyphs.toml (--glyphs). The pair model starts from what the other kinds of
photos teach, without the kind that is tested, and is fitted to the labeled classes. Every other method chooses its setting on
piles of the same labeled classes, by the mean of both scores; k-means is told the true number.

    pip install evoc 'fast-hdbscan[nndescent]' finch-clust

Scores are BCubed F1 / pairwise F1 in %, means of --piles piles per shape and seed. Then: expected against real precision of the
groups. --corrections: ten rounds of ten answers on piles of 8 classes x 15, pairwise F1 after each, beside the same answers as
constraints alone, which teach nothing.
"""

import argparse
import contextlib
import io
import warnings
from pathlib import Path

import numpy as np
from scipy.special import expit
from sklearn.cluster import DBSCAN, HDBSCAN, KMeans

import facetric
from facetric.clustering import AverageLinkage, FacilityLocation, PairLinkage, pair_linkage
from facetric.clustering.lessons import drawn_rows
from facetric.embedder.heads import closed_form_head
from facetric.metrics import unit_rows
from facetric.runs import Run
from pair_model import SHAPES, VARIANTS, drawn, f1s, labels_of, learned, lessons_of, vectors_of

N_TUNING = 16  # piles of labeled classes


def alone(labels):
    """Noise is alone."""
    labels = np.asarray(labels).copy()
    noise = labels < 0
    labels[noise] = labels.max(initial=0) + 1 + np.arange(noise.sum())
    return labels


def finch(x, level):
    from finch import FINCH

    with contextlib.redirect_stdout(io.StringIO()):
        levels = FINCH(x, distance="cosine", verbose=False)[0]
    return levels[:, min(level, levels.shape[1] - 1)]


def evoc(x, size):
    from evoc import EVoC

    return alone(EVoC(base_min_cluster_size=size, random_state=0).fit_predict(x))


def plscan(x, samples, size):
    from fast_hdbscan import PLSCAN

    return alone(PLSCAN(min_samples=samples, base_min_cluster_size=size).fit(x).labels_)


METHODS = {  # name: the settings to choose from, and what clusters with one of them
    "average linkage": (np.linspace(0.5, 1.3, 17), lambda x, t: AverageLinkage(t).fit_predict(x)),
    "HDBSCAN": (
        [(size, samples) for size in (2, 3, 4, 5, 8) for samples in (1, 2, 3)],
        lambda x, s: alone(HDBSCAN(s[0], min_samples=s[1], copy=True).fit_predict(x)),
    ),
    "DBSCAN": (
        [(eps, n) for eps in np.linspace(0.4, 1.1, 15) for n in (2, 3)],
        lambda x, s: alone(DBSCAN(s[0], min_samples=s[1]).fit_predict(x)),
    ),
    "FINCH": ((0, 1, 2), finch),
    "EVoC": ((2, 3, 5, 8), evoc),
    "PLSCAN": ([(samples, size) for samples in (2, 3, 5) for size in (2, 3, 5)], lambda x, s: plscan(x, *s)),
}


def log_odds(model, x):
    """(n, n), of the pairs that are in no list the mean."""
    (first, second), found, background = model.log_odds(x)
    dense = np.full((len(x), len(x)), background)
    dense[first, second] = dense[second, first] = found
    np.fill_diagonal(dense, 20)
    return dense


def by_links(model):
    """The same log-odds with other clusterers: medoids that P(same) pays for, and correlation clustering by local moves."""

    def medoids(x, price):
        costs = 1 - expit(log_odds(model, x))
        np.fill_diagonal(costs, 0)
        return FacilityLocation(opening_cost=price, metric="precomputed").fit_predict(costs)

    def correlation(x, offset):
        dense = log_odds(model, x) - offset
        labels = np.arange(len(x))
        for _ in range(50):
            before = labels.copy()
            for i in range(len(x)):
                gains = np.bincount(labels, dense[i], len(x) + 1)
                gains[labels[i]] -= dense[i, i]
                labels[i] = gains.argmax()
            if (before == labels).all():
                break
        return np.unique(labels, return_inverse=True)[1]

    return {
        "facility location on links": (np.linspace(0.2, 3, 15), medoids),
        "correlation clustering on links": (np.linspace(-3, 1, 9), correlation),
    }


def tuned(vectors, classes, methods, model):
    """The methods, each at the setting that is best on piles of these classes."""
    piles, chosen = drawn_rows(classes, N_TUNING, np.random.default_rng(3)), {}
    known = METHODS | by_links(model)
    for name in methods:
        settings, cluster = known[name]

        def score(setting, cluster=cluster):
            return np.mean([f1s(classes[rows], cluster(vectors[rows], setting)) for rows in piles])

        best = max(settings, key=score)
        print(f"  {name}: {best}", flush=True)
        chosen[name] = lambda x, cluster=cluster, best=best: cluster(x, best)
    return chosen


def compare(title, kind, model, labeled, test, own, options):
    """A row per shape of pile, and the means; then expected against real precision."""
    methods = tuned(*labeled, options.methods, model)
    vectors, classes = test
    rows_of, groups, within = {}, [], []
    names = ["k-means, true k", *methods, "PairLinkage"]
    print(f"\n| {title} | {' | '.join(names)} |\n|---|" + "---:|" * len(names))
    for shape in SHAPES[kind]:
        if shape[0] > len(own):
            continue
        scores = {name: [] for name in names}
        for seed in options.seeds:
            for rows in drawn(classes, own, shape, options.piles, seed):
                x, y = vectors[rows], np.unique(classes[rows], return_inverse=True)[1]
                found = PairLinkage(model).fit(x)
                scores["PairLinkage"].append(f1s(y, found.labels_))
                scores["k-means, true k"].append(f1s(y, KMeans(y.max() + 1, n_init=3, random_state=0).fit_predict(x)))
                for name, cluster in methods.items():
                    scores[name].append(f1s(y, cluster(x)))
                judge(found, y, shape, groups, within)
        rows_of[shape] = {name: 100 * np.mean(some, axis=0) for name, some in scores.items()}
        show(f"{shape[0]} × {shape[1] or 'tail'}", rows_of[shape])
    show("**mean**", {name: np.mean([row[name] for row in rows_of.values()], axis=0) for name in names})
    reliability(groups, within)


def show(title, row):
    print(f"| {title} | " + " | ".join(f"{b:.1f} / {p:.1f}" for b, p in row.values()) + " |", flush=True)


def judge(found, y, shape, groups, within):
    """Add (expected, real) of each group, and of the pile: whether the interval holds."""
    pairs, same = 0, 0
    for label, expected in enumerate(found.precision_):
        members = y[found.labels_ == label]
        if len(members) > 1:
            n = len(members) * (len(members) - 1)
            right = sum(c * (c - 1) for c in np.bincount(members))
            groups.append((expected, right / n))
            pairs, same = pairs + n, same + right
    if found.expected_ is not None:
        limits = found.expected_.precision
        within.append(
            (limits.low <= same / pairs <= limits.high, limits.value - same / pairs, limits.high - limits.low, shape[0])
        )


def reliability(groups, within):
    expected, real = np.array(sorted(groups)).T
    print("\n| expected precision of a group | groups | expected, mean | real, mean |\n|---|---:|---:|---:|")
    for low, high in ((0, 0.3), (0.3, 0.5), (0.5, 0.7), (0.7, 0.9), (0.9, 1.01)):
        part = (expected >= low) & (expected < high)
        if part.any():
            print(f"| {low:.0%} to {min(high, 1):.0%} | {part.sum():,} | {expected[part].mean():.1%} | {real[part].mean():.1%} |")
    bins = np.array_split(expected - real, 8)
    error = sum(abs(part.mean()) * len(part) for part in bins) / len(real)
    hold = np.array(within, dtype=float)
    print(
        f"\nerror in eight bins {100 * error:.1f}, bias {100 * (expected - real).mean():+.1f} of {len(real):,} groups;", end=" "
    )
    print(
        f"piles: error {100 * np.abs(hold[:, 1]).mean():.1f}, interval of {100 * hold[:, 2].mean():.0f} points holds in", end=" "
    )
    print(", ".join(f"{hold[part, 0].mean():.0%} ({name})" for name, part in sizes(hold[:, 3]) if part.any()), flush=True)


def sizes(n_classes):
    return (("all", n_classes > 0), ("50 classes", n_classes == 50), ("100 classes", n_classes == 100))


def corrections(title, model, test, own, options):
    vectors, classes = test
    runs = {"answers teach": [], "constraints alone": []}
    bcubed = {name: [] for name in runs}
    for seed in options.seeds:
        for rows in drawn(classes, own, (8, 15), options.piles, seed):
            x, y = vectors[rows], classes[rows]
            for name, found in runs.items():
                scores = corrected(x, y, model, teach=name == "answers teach")
                found.append([pair for _, pair in scores])
                bcubed[name].append([photo for photo, _ in scores])
    print(f"\n| {title}, 8 × 15, pairwise F1 after answers | " + " | ".join(str(10 * n) for n in range(11)) + " |")
    print("|---|" + "---:|" * 11)
    for name, scores in runs.items():
        print(f"| {name} | " + " | ".join(f"{100 * value:.1f}" for value in np.mean(scores, axis=0)) + " |")
        print(f"| {name}, BCubed | " + " | ".join(f"{100 * v:.1f}" for v in np.mean(bcubed[name], axis=0)) + " |", flush=True)


def corrected(x, y, model, *, teach):
    must, cannot, scores = [], [], []
    kept = pair_linkage.adapted, pair_linkage.spread
    if not teach:
        pair_linkage.adapted, pair_linkage.spread = lambda vectors, links: None, lambda scores, links: scores
    for number in range(11):
        found = PairLinkage(model).fit(x, must_link=must, cannot_link=cannot)
        scores.append(f1s(y, found.labels_))
        for a, b in found.questions_[:10].tolist() if number < 10 else ():
            (must if y[a] == y[b] else cannot).append((a, b))
    pair_linkage.adapted, pair_linkage.spread = kept
    return scores


def settings_of(options):
    """(title, kind, pair model, labeled, test, test classes)"""
    lessons = {}
    for kind, variants in VARIANTS.items():
        if kind == "glyphs" and not (options.glyphs or (options.vectors / "v_glyphs_glyphnet.npy").exists()):
            continue
        data = [vectors_of(kind, variant, options) for variant in variants], labels_of(kind)
        lessons[kind] = lessons_of(*data, 10 if options.short else 100)
    others = learned({kind: some for kind, some in lessons.items() if kind != "cub"})
    vectors, classes = vectors_of("cub", "lite0_stretch", options), labels_of("cub")
    first, second, own = classes < 50, (classes >= 50) & (classes < 100), np.arange(100, 200)
    known = classes < 100
    if "raw" in options.settings:
        yield (
            "CUB, no training",
            "cub",
            others.fit(vectors[known], classes[known]),
            (vectors[known], classes[known]),
            (vectors, classes),
            own,
        )
    if "head" in options.settings:
        head = closed_form_head(vectors[first], classes[first], 64)
        x = unit_rows(head(vectors).astype(np.float32))
        yield (
            "CUB, closed-form head",
            "cub",
            others.fit(x[second], classes[second]),
            (x[second], classes[second]),
            (x, classes),
            own,
        )
    if options.run and "tuned" in options.settings:
        run, model = Run(options.run), facetric.load(options.run)
        (valid, _), (test, _) = run.images("validation"), run.images("test")
        kept = options.vectors / f"v_{model.fingerprint[:12]}.npz"
        if not kept.exists():
            from facetric.embedder import Vectors

            arrays = [Vectors.of(model.network, part.source).vectors for part in (valid, test)]
            np.savez(kept, valid=arrays[0], test=arrays[1])
        with np.load(kept) as stored:
            x, t = unit_rows(stored["valid"]), unit_rows(stored["test"])
        labels = np.unique(test.labels, return_inverse=True)[1]
        yield "CUB, fine-tuned", "cub", others.fit(x, valid.labels), (x, valid.labels), (t, labels), np.arange(labels.max() + 1)
    if options.glyphs and "glyphs" in options.settings:
        others = learned({kind: some for kind, some in lessons.items() if kind != "glyphs"})
        x, labels = vectors_of("glyphs", "glyphnet", options), labels_of("glyphs")
        valid, _ = Run(options.glyphs).images("validation")
        model = facetric.load(options.glyphs)
        v = unit_rows(model.encode([np.asarray(image) for image in valid.images]))
        own = np.arange(1, labels.max() + 1, 2)
        yield "characters, trained", "glyphs", others.fit(v, valid.labels), (v, valid.labels), (x, labels), own


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path, required=True, help="folder where vectors are kept")
    parser.add_argument("--run", type=Path, help="a run on CUB with validation classes")
    parser.add_argument("--glyphs", type=Path, help="a run of configs/glyphs.toml")
    parser.add_argument("--corrections", action="store_true", help="ten rounds of ten answers, in place of the comparison")
    parser.add_argument("--settings", nargs="+", default=["raw", "head", "tuned", "glyphs"], help="raw, head, tuned, glyphs")
    parser.add_argument("--methods", nargs="*", default=[*METHODS, *by_links(None)], help="peers")
    parser.add_argument("--piles", type=int, default=5, help="of each shape and seed")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--short", action="store_true", help="few piles: whether everything runs, not what it is worth")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", category=FutureWarning)
    for title, kind, model, labeled, test, own in settings_of(options):
        if options.corrections:
            corrections(title, model, test, own, options)
        else:
            compare(title, kind, model, labeled, test, own, options)


if __name__ == "__main__":
    main()
