"""The paper's four losses, four later ones of pytorch-metric-learning and variants of ours, under one protocol.

    python benchmarks/compare_losses.py --root datasets/CUB_200_2011            # a linear head on frozen features: minutes
    python benchmarks/compare_losses.py --root datasets/CUB_200_2011 --batch-size 256 --folder runs/compare-cub-head-256
    python benchmarks/compare_losses.py --root datasets/CUB_200_2011 --setting finetune --trials 4 --seeds 3 --steps 200

The same cached features, the same search (Optuna, so many trials for each loss, on classes cut from the training half), the
same seeds, the same evaluation. It is the study of `facetric reproduce` with more methods, and goes on where it was when it is
interrupted.
"""

from __future__ import annotations

import argparse
import os
import time

from facetric.evaluation.tables import comparison_text
from facetric.figures import save_comparison
from facetric.studies.reproduction import reproduction
from facetric.studies.spaces import METHODS


def main() -> None:
    """Run the study and print its table."""
    parser = argparse.ArgumentParser(description="Eight losses under one protocol.")
    parser.add_argument("--dataset", default="cub", help="glyphs, cub, cars or products")
    parser.add_argument("--root", help="where the dataset lies")
    parser.add_argument("--setting", default="head", help="head, finetune or paper; scratch for glyphs")
    parser.add_argument("--folder", help="where the study is kept")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), help="the losses; all of them when left out")
    parser.add_argument("--trials", type=int, help="trials of the search for each loss")
    parser.add_argument("--seeds", type=int, help="final runs of each loss")
    parser.add_argument("--steps", type=int, help="steps of every run")
    parser.add_argument("--batch-size", type=int, help="images in a batch; 128 unless told otherwise")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time")
    options = parser.parse_args()
    start = time.perf_counter()
    study = reproduction(
        options.dataset,
        options.folder or f"runs/compare-{options.dataset}-{options.setting}",
        root=options.root,
        setting=options.setting,
        methods=options.methods,
        n_trials=options.trials,
        n_seeds=options.seeds,
        steps=options.steps,
        batch_size=options.batch_size,
    )
    comparison = study.run(n_jobs=options.jobs)
    save_comparison(comparison, study.folder / "table.png")
    print(comparison_text(comparison))
    print(f"{(time.perf_counter() - start) / 60:.0f} minutes, {options.jobs} runs at a time")


if __name__ == "__main__":
    main()
