"""How near photos of one group are to the packaged network: the calibration that comes with facetric.

    facetric embed path/to/CUB_200_2011/images --output cub.npz
    python benchmarks/packaged_calibration.py cub.npz

Chosen on the 100 training classes of CUB-200-2011, so that its test classes can show what it is worth (benchmarks/grouping.py).
Writes src/facetric/inference/packaged_calibration.json.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from facetric.clustering import calibrate
from facetric.photos import read_vectors

TARGET = Path(__file__).parent.parent / "src" / "facetric" / "inference" / "packaged_calibration.json"


def rounded(value):
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    return [rounded(part) for part in value] if isinstance(value, list | tuple) else value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vectors", type=Path, help="of CUB-200-2011, by facetric embed without --model")
    found = read_vectors(parser.parse_args().vectors)
    classes = np.array([int(path.split("/")[0][:3]) for path in found.paths])
    rows = classes <= 100
    calibration = calibrate(found.vectors[rows], classes[rows])
    what = f"the 100 training classes of CUB-200-2011 ({int(rows.sum()):,} photos of birds)"
    record = {"classes": what, "model": found.model, "calibration": rounded(calibration.as_dict())}
    TARGET.write_text(json.dumps(record, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{TARGET}: threshold {calibration.threshold:.3f}, {calibration.expected}")


if __name__ == "__main__":
    main()
