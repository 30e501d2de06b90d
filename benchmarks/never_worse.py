"""Is training ever worse than not training? Small folders drawn at random, trained by default, scored on unseen classes.

    FACETRIC_DATA=path/to/datasets python benchmarks/never_worse.py [--folders 30] [--set run.choose_minutes=5]

Two of three folders hold birds, 8 to 40 classes of 6 to 30 photos of the test half of CUB; every third holds characters of many
fonts on colored paper. Each goes through what `facetric train --data folder` and `facetric evaluate` do. A finished folder is one
line of --output; the command continues where it was stopped, and with --show prints the table so far. The runs are not kept.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from facetric.images.readers import load_dataset
from facetric.machine import prepare_process
from facetric.runs import open_run, recipe
from facetric.training import train
from kept_results import keep, kept_results

BEFORE, AFTER = "pretrained features", "this run"
SCORES = ("recall_at_1", "map_at_r", "nmi")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=Path(os.environ.get("FACETRIC_DATA", ".")) / "CUB_200_2011")
    parser.add_argument("--folders", type=int, default=30)
    parser.add_argument("--set", action="append", default=[], metavar="TABLE.KEY=VALUE", dest="settings")
    parser.add_argument("--output", type=Path, default=Path("never_worse.jsonl"))
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    prepare_process()
    done = kept_results(options.output, options.settings)
    if not options.show:
        birds = load_dataset("cub", root=options.root).select("test")
        characters = load_dataset("glyphs", min_images=16)
        for number in range(options.folders):
            if any(line["folder"] == number for line in done):
                continue
            with tempfile.TemporaryDirectory() as place:
                found = result(number, birds, characters, Path(place), options.settings)
            done.append({"folder": number, "settings": options.settings, **found})
            keep(options.output, done[-1])
    show(done)


def result(number, birds, characters, place, settings):
    """Draw one folder, train on it, and score its unseen classes before and after."""
    rng = np.random.default_rng([7, number])
    n_classes, n_images = int(rng.integers(8, 41)), int(rng.integers(6, 31))
    dataset, write = (characters, draw_character) if number % 3 == 2 else (birds, link_bird)
    for label in rng.permutation(np.unique(dataset.labels))[:n_classes]:
        folder = place / "photos" / f"{label:04}"
        folder.mkdir(parents=True)
        for i, image_id in enumerate(rng.permutation(np.flatnonzero(dataset.labels == label))[:n_images]):
            write(dataset.images[image_id], folder / f"{i:02}.jpg", rng)
    os.environ["FACETRIC_CACHE"] = str(place / "cache")
    start = time.perf_counter()
    chosen = recipe("folder", place / "photos", overrides=[f"run.folder={place}", "run.name=run", *settings])
    if signal_number := train(chosen.config).signal_number:
        raise SystemExit(128 + signal_number)  # this folder is drawn again the next time
    seconds = time.perf_counter() - start
    report = open_run(place / "run").evaluate(facility=False)
    found = {name: scores_of(start) for name, start in report.baselines.items()} | {AFTER: scores_of(report)}
    run = open_run(place / "run")
    what = json.loads(run.choice_file.read_text())["chosen"] if run.choice_file.exists() else "as set"
    kind = "characters" if dataset is characters else "birds"
    sizes = {"classes": n_classes, "images": n_images, "test_classes": run.manifest.count("test")[1]}
    return {"kind": kind, **sizes, "chosen": what, "seconds": round(seconds), "scores": found}


def link_bird(image, path, rng):
    path.symlink_to(Path(image).absolute())


def draw_character(pixels, path, rng):
    """A character on colored paper."""
    side = int(rng.integers(80, 160))
    ink = Image.fromarray(pixels).resize((side, side))
    paper, color = (tuple(rng.integers(low, low + 100, 3).tolist()) for low in (0, 156))
    picture = Image.new("RGB", (240, 180), paper)
    picture.paste(Image.new("RGB", ink.size, color), tuple(rng.integers(0, [240 - side, 180 - side]).tolist()), mask=ink)
    picture.save(path)


def scores_of(report):
    return {"recall_at_1": report.recall_at_k[1], "map_at_r": report.map_at_r, "nmi": report.nmi}


def show(lines):
    print("| folder | classes × photos | chosen | Recall@1 | MAP@R | NMI |\n|---|---|---|---|---|---|")
    for line in sorted(lines, key=lambda line: line["folder"]):
        before, after = line["scores"][BEFORE], line["scores"][AFTER]
        cells = [f"{100 * before[name]:.1f} → {100 * after[name]:.1f}" for name in SCORES]
        print(f"| {line['kind']} | {line['classes']} × {line['images']} | {line['chosen']} | {' | '.join(cells)} |")
    for name in SCORES if lines else ():
        gains = np.array([100 * (line["scores"][AFTER][name] - line["scores"][BEFORE][name]) for line in lines])
        rose, kept = np.mean(gains > 0), np.mean(gains >= 0)
        print(
            f"{name}: {len(gains)} folders, mean {gains.mean():+.1f}, worst {gains.min():+.1f}; rose in {rose:.0%}, not lower in "
            f"{kept:.0%}"
        )


if __name__ == "__main__":
    main()
