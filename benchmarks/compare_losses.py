r"""The paper's four losses, four later ones of pytorch-metric-learning and variants of ours, under one protocol.

    python benchmarks/compare_losses.py --root datasets/CUB_200_2011            # a linear head on frozen features: minutes
    python benchmarks/compare_losses.py --root datasets/CUB_200_2011 --output runs/compare-cub-head-256 \
        --set batches.size=256 batches.class_ratio=0.25
    python benchmarks/compare_losses.py --root datasets/CUB_200_2011 --setting finetune --trials 4 --seeds 3 --steps 200

The same cached features, the same search (Optuna, the same number of trials for each loss, on validation classes), the same
seeds, the same evaluation: `facetric reproduce` with more losses. Start it again to resume an interrupted study.
"""

from __future__ import annotations

import argparse
import time

from facetric.machine import available_cores
from facetric.report import save_comparison
from facetric.training.study import reproduction
from facetric.training.study.spaces import METHODS


def main() -> None:
    """Run the study and print its table."""
    parser = argparse.ArgumentParser(description="Ten losses under one protocol.")
    parser.add_argument("--dataset", default="cub", help="glyphs, cub, cars or products")
    parser.add_argument("--root", help="path of the dataset")
    parser.add_argument("--setting", default="head", help="head, finetune or paper; scratch for glyphs")
    parser.add_argument("--output", help="folder of the study")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), help="the losses; default: all")
    parser.add_argument("--trials", type=int, help="search trials per loss")
    parser.add_argument("--seeds", type=int, help="final runs per loss")
    parser.add_argument("--steps", type=int, help="steps of every run")
    parser.add_argument("--set", nargs="+", default=[], dest="overrides", metavar="TABLE.KEY=VALUE", help="settings of every run")
    parser.add_argument("--jobs", type=int, default=available_cores(), help="runs at a time")
    options = parser.parse_args()
    start = time.perf_counter()
    study = reproduction(
        options.dataset,
        options.output or f"runs/compare-{options.dataset}-{options.setting}",
        root=options.root,
        setting=options.setting,
        methods=options.methods,
        n_trials=options.trials,
        n_seeds=options.seeds,
        steps=options.steps,
        overrides=options.overrides,
    )
    comparison = study.run(n_processes=options.jobs)
    save_comparison(comparison, study.folder / "table.png")
    print(str(comparison))
    print(f"{(time.perf_counter() - start) / 60:.0f} minutes, {options.jobs} runs at a time")


if __name__ == "__main__":
    main()
