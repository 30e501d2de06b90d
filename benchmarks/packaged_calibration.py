"""How near photos of one group are to the packaged network: the calibration that comes with facetric.

    facetric embed path/to/CUB_200_2011/images --output cub.npz
    python benchmarks/packaged_calibration.py cub.npz
    python benchmarks/packaged_calibration.py cub.npz --check

Chosen on the 100 training classes of CUB-200-2011, so that its test classes can show what it is worth (benchmarks/grouping.py).
Writes src/facetric/embedder/packaged_calibration.json. --check writes nothing: it prints what the calibration of that file
promises of long-tailed piles (20 to 2 photos per species) of 8 to 100 training and test species, and what comes true; r and f are
how often two photos of one species, and of two, are joined.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from facetric.clustering import Calibration, calibrate
from facetric.clustering.expected import Agreement, PairRates
from facetric.embedder import Vectors

TARGET = Path(__file__).parent.parent / "src" / "facetric" / "inference" / "packaged_calibration.json"


def rounded(value):
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    return [rounded(part) for part in value] if isinstance(value, list | tuple) else value


def check(vectors, classes):
    calibration = Calibration.from_dict(json.loads(TARGET.read_text(encoding="utf-8"))["calibration"])
    for part, own in {"training": np.arange(1, 101), "test": np.arange(101, 201)}.items():
        all_held = []
        for n_classes in (8, 20, 50, 100):
            rows, held = zip(*(one(calibration, vectors, classes, own, n_classes, seed) for seed in range(3)), strict=True)
            r, f, real, value, low, high = np.mean(rows, axis=0)
            all_held += [each for some in held for each in some]
            print(
                f"{n_classes:4} {part} species: r {r:.3f}, f {f:.4f}; precision {100 * real:.1f}, promised {100 * value:.1f} "
                f"({100 * low:.0f}–{100 * high:.0f})",
                flush=True,
            )
        print(f"     the interval held in {sum(all_held)} of {len(all_held)} piles, at 0, 4 and 8 steps finer")


def one(calibration, vectors, classes, own, n_classes, seed):
    """Rates, real and promised precision of one pile, and whether the interval held at three steps."""
    rng = np.random.default_rng(seed)
    chosen, sizes = rng.permutation(own)[:n_classes], np.round(np.geomspace(20, 2, n_classes)).astype(int)
    rows = np.concatenate([rng.permutation(np.flatnonzero(classes == c))[:n] for c, n in zip(chosen, sizes, strict=True)])
    held = []
    for n_finer in (8, 4, 0):
        step = calibration.finer(n_finer)
        clusters = step.clusterer().fit_predict(vectors[rows])
        real, promised = (
            Agreement.of(classes[rows], clusters).pairwise_precision,
            step.expected(vectors[rows], clusters).precision,
        )
        held.append(promised.low - 0.005 <= real <= promised.high + 0.005)
    rates = PairRates.of(np.unique(classes[rows], return_inverse=True)[1], clusters)
    return (rates.right, rates.wrong, real, promised.value, promised.low, promised.high), held


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vectors", type=Path, help="of CUB-200-2011, by facetric embed without --model")
    parser.add_argument(
        "--check", action="store_true", help="print what the stored calibration promises and keeps; write nothing"
    )
    options = parser.parse_args()
    found = Vectors.load(options.vectors)
    classes = np.array([int(path.split("/")[0][:3]) for path in found.names])
    if options.check:
        check(found.vectors, classes)
        return
    rows = classes <= 100
    calibration = calibrate(found.vectors[rows], classes[rows])
    what = f"the 100 training classes of CUB-200-2011 ({int(rows.sum()):,} photos of birds)"
    record = {"classes": what, "model": found.model, "calibration": rounded(calibration.as_dict())}
    TARGET.write_text(json.dumps(record, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{TARGET}: threshold {calibration.threshold:.3f}, {calibration.reached}")


if __name__ == "__main__":
    main()
