"""CUB-200-2011 fine-tuned as configs/cub_512.toml says: several seeds, scored on the test classes at 512 and at 64 dimensions.

    FACETRIC_DATA=path/to/datasets python benchmarks/fine_tuned.py [--seeds 5] [--set run.steps=50]

The first 64 dimensions of the closed-form head are the closed-form head of 64 dimensions with the same shrinkage, so one training
serves both widths. A finished seed is one line of results.jsonl in --output; the command continues where it was stopped, and with
--show prints the table so far.
"""

import argparse
import os
import time
from pathlib import Path

import numpy as np

from facetric.evaluation import evaluate
from facetric.machine import prepare_process
from facetric.runs import open_run, read_config
from facetric.training import resume, train
from kept_results import keep, kept_results

WIDTHS = (512, 64)
CONFIG = Path(__file__).parent.parent / "configs" / "cub_512.toml"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=Path(os.environ.get("FACETRIC_DATA", "datasets")) / "CUB_200_2011")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--set", action="append", default=[], metavar="TABLE.KEY=VALUE", dest="settings")
    parser.add_argument("--output", type=Path, default=Path("runs/fine-tuned"))
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    prepare_process()
    results = options.output / "results.jsonl"
    done = kept_results(results, options.settings)
    for seed in range(0 if options.show else options.seeds):
        if any(line["seed"] == seed for line in done):
            continue
        done.append({"seed": seed, "settings": options.settings, **result(seed, options)})
        keep(results, done[-1])
    show(done)


def result(seed, options):
    """Train one seed, and score it."""
    own = [f"data.root={options.root}", f"run.folder={options.output}", f"run.name=seed{seed}", f"run.seed={seed}"]
    found, run, start = {}, options.output / f"seed{seed}", time.process_time()
    if run.is_dir():
        stopped = resume(run).signal_number
    else:
        stopped = train(read_config(CONFIG, overrides=[*own, *options.settings])).signal_number
    if stopped:
        raise SystemExit(128 + stopped)
    seconds = time.process_time() - start
    open_run(run).evaluate(facility=False, baselines=False)
    embeddings = open_run(run).embeddings()
    for width in WIDTHS:
        report = evaluate(embeddings.vectors[:, :width], embeddings.labels)
        medoid_nmi, recall = report.facility_location.scores.nmi, [report.recall_at_k[k] for k in (1, 2, 4, 8)]
        scores = [medoid_nmi, report.nmi, *recall, report.map_at_r]
        found[str(width)] = [round(100 * float(score), 2) for score in scores]
    return {"processor_seconds": round(seconds), "scores": found}


def show(lines):
    print("| d | seeds | medoid NMI | NMI | R@1 | R@2 | R@4 | R@8 | MAP@R |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name in dict.fromkeys(name for line in lines for name in line["scores"]):
        rows = np.array([line["scores"][name] for line in lines if name in line["scores"]])
        spread = rows.std(axis=0, ddof=1) if len(rows) > 1 else np.zeros(rows.shape[1])
        cells = [f"{mean:.2f} ± {sd:.2f}" for mean, sd in zip(rows.mean(axis=0), spread, strict=True)]
        print(f"| {name} | {len(rows)} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
