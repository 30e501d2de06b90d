"""Does the choice find the network that is best for photos it has not seen? Small folders, several networks, unseen classes.

    FACETRIC_DATA=path/to/datasets python benchmarks/choose_network.py [--folders 20] [--set run.choose_minutes=2]

Folders of 12 to 40 classes of 10 to 30 photos are drawn in turn from the test half of CUB, from pets and from groceries. Each
goes through what `facetric train --data folder` and `facetric evaluate` do. Beside it stands what every network gives alone,
without training: its pretrained features or its closed-form head, whichever the same halves of the training classes say. They
come first, and their features stay in the cache, so that the time of the choice goes into recipes. A finished folder is one line
of --output; the command continues where it was stopped, and with --show prints the table so far.
"""

import argparse
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from facetric.evaluation import evaluate
from facetric.images.readers import load_dataset
from facetric.machine import prepare_process
from facetric.runs import open_run, recipe
from facetric.training import train
from facetric.training.choice import decide, recipes_by_network
from facetric.training.choice_candidates import train_in_memory
from facetric.training.choice_record import kept_record
from facetric.training.session import torch_settings
from kept_results import keep, kept_results
from never_worse import link_bird, scores_of

KINDS = ("birds", "pets", "groceries")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(os.environ.get("FACETRIC_DATA", ".")))
    parser.add_argument("--folders", type=int, default=20)
    parser.add_argument("--set", action="append", default=[], metavar="TABLE.KEY=VALUE", dest="settings")
    parser.add_argument("--output", type=Path, default=Path("choose_network.jsonl"))
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    prepare_process()
    done = kept_results(options.output, options.settings)
    if not options.show:
        birds = load_dataset("cub", root=options.root / "CUB_200_2011").select("test")
        others = [load_dataset("folder", root=options.root / kind, test_fraction=0) for kind in KINDS[1:]]
        for number in range(options.folders):
            if any(line["folder"] == number for line in done):
                continue
            with tempfile.TemporaryDirectory() as place:
                found = result(number, [birds, *others][number % 3], Path(place), options.settings)
            done.append({"folder": number, "kind": KINDS[number % 3], "settings": options.settings, **found})
            keep(options.output, done[-1])
    show(done)


def result(number, dataset, place, settings):
    """Draw one folder, score every network on its unseen classes, and the run that the choice ends with."""
    rng = np.random.default_rng([34, number])
    n_classes, n_images = int(rng.integers(12, 41)), int(rng.integers(10, 31))
    labels = rng.permutation(np.unique(dataset.labels))[:n_classes]
    for label in labels:
        folder = place / "photos" / f"{label:04}"
        folder.mkdir(parents=True)
        for i, image_id in enumerate(rng.permutation(np.flatnonzero(dataset.labels == label))[:n_images]):
            link_bird(dataset.images[image_id], folder / f"{i:02}.jpg", rng)
    chosen = recipe("folder", place / "photos", overrides=[f"run.folder={place}", "run.name=run", *settings])
    candidates = recipes_by_network(chosen.config, chosen.dataset)
    unseen = replace(chosen.dataset, splits=np.where(chosen.dataset.splits == "test", "validation", "train"))
    free = [candidate for own in candidates.values() for candidate in own if candidate.is_free]
    with torch_settings(threads=chosen.config.run.threads or 1):
        alone = {candidate.name: unseen_score(candidate.config, unseen) for candidate in free}
    start = time.perf_counter()
    if signal_number := train(chosen.config).signal_number:
        raise SystemExit(128 + signal_number)  # this folder is drawn again the next time
    seconds = time.perf_counter() - start
    run = open_run(place / "run")
    record, report = kept_record(run), run.evaluate(facility=False)
    best = {
        network: decide(record.scores, [candidate.name for candidate in own if candidate.is_free])[0]
        for network, own in candidates.items()
    }
    return {
        "classes": len(labels),
        "images": n_images,
        "test_classes": run.manifest.count("test")[1],
        "chosen": record.chosen,
        "why": record.why,
        "seconds": round(seconds),
        "alone": {network: {"candidate": name, **alone[name]} for network, name in best.items()},
        "untrained": alone[decide(record.scores, [candidate.name for candidate in free])[0]],
        "run": scores_of(report),
        "all": alone,
    }


def unseen_score(config, dataset):
    """Of a network with its untrained head, on the classes that are for testing."""
    session = train_in_memory(config, dataset)
    vectors = session.held_out_vectors(session.embedder, step=0)
    labels = dataset.labels[dataset.splits == "validation"]
    return scores_of(evaluate(vectors, labels, metric=session.metric, facility=False))


def show(lines):
    networks = list(lines[0]["alone"]) if lines else []
    print(f"| folder | classes × photos | {' | '.join(networks)} | chosen without training | chosen | the run |")
    print("|---|---" + "|---:" * len(networks) + "|---:|---|---:|")
    for line in sorted(lines, key=lambda line: line["folder"]):
        cells = [f"{100 * line['alone'][network]['map_at_r']:.1f}" for network in networks]
        ends = [f"{100 * line['untrained']['map_at_r']:.1f}", line["chosen"], f"{100 * line['run']['map_at_r']:.1f}"]
        print(f"| {line['kind']} | {line['classes']} × {line['images']} | {' | '.join([*cells, *ends])} |")
    if lines:
        first, best = (
            np.array([100 * how(line["alone"][network]["map_at_r"] for network in networks) for line in lines])
            for how in (lambda values: next(iter(values)), max)
        )
        for what, key in (("the choice without training", "untrained"), ("the run", "run")):
            found = np.array([100 * line[key]["map_at_r"] for line in lines])
            lag, gain = found - best, found - first
            n_near, n_lower = (lag >= -0.5).sum(), (gain < 0).sum()
            print(
                f"MAP@R of {what}: within 0.5 of the best network alone, without training, in {n_near} of {len(lines)} folders "
                f"(mean {lag.mean():+.1f}, worst {lag.min():+.1f}); against {networks[0]} without training: mean "
                f"{gain.mean():+.1f}, worst {gain.min():+.1f}, lower in {n_lower}"
            )


if __name__ == "__main__":
    main()
