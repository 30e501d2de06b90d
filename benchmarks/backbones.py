"""What networks see that are not trained further, and with a head in closed form; or where networks can be frozen.

    FACETRIC_DATA=path/to/datasets python benchmarks/backbones.py --vectors cache [--file resnet50.safetensors]
    python benchmarks/backbones.py --places [NAME ...] [--images 16] [--repeats 3]

The first prints the first table of docs/backbones.md, on birds (CUB, classes 101 to 200), pets and groceries (a half of the
classes, then the other): Recall@1 / MAP@R / NMI of k-means with the true k / BCubed F1 of the groups that the packaged pair model
finds in piles. The head is fitted to the other half, with 256 dimensions where that has 2,000 photos, else with all. Networks
that are joined with + give vectors one behind the other; a mirrored mean is that of an image and its mirror image. Images per
second are of one core, from files of groceries, by onnxruntime. Vectors are kept in the folder, under the names of pair_model.py;
--file is a network of `benchmarks/resnet50.py`.

The second prints the second table. Every place is checked with numbers: both parts in a row give the features of the network. The
time is CPU time of the forward pass in eval mode with one thread, the least of the repeats; the last column compares it with the
default backbone. Weights do not change it: networks without packaged weights have random ones here.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import numpy as np
import torch

import facetric
from facetric.clustering import PairLinkage
from facetric.embedder import Embedder, Network, WeightsError, build_network, closed_form_vectors, encode
from facetric.embedder.split import working_places
from facetric.embedder.weights import default_weights
from facetric.images import Files
from facetric.metrics import unit_rows
from pair_model import SHAPES, drawn, f1s, listed

KINDS = {"cub": "stretch", "pets": "crop", "groceries": "crop"}  # photos of CUB are squares already
NETWORKS = ("lite0", "lite1", "lite2", "resnet50")
ROWS = (*NETWORKS, "lite0 mirrored", "lite0+lite1", "lite0+lite1+lite2")
ENOUGH, DIM = 2000, 256  # as the recipe for one's own photos has it

# Name and image_size; None for the backbone's own.
TRIED: tuple[tuple[str, int | None], ...] = (
    ("tf_efficientnet_lite0", None),
    ("tf_efficientnet_lite1", None),
    ("tf_efficientnet_lite2", None),
    ("mobilenetv3_small_100", None),
    ("resnet18", None),
    ("resnet50", None),
    ("googlenet", None),
    ("convnext_atto", None),
    ("efficientvit_b0", None),
    ("vit_tiny_patch16_224", None),
    ("deit_tiny_patch16_224", None),
    ("eva02_tiny_patch14_224", None),
    ("vit_small_patch14_dinov2", 224),
    ("vit_small_patch14_reg4_dinov2", 224),
    ("vit_small_patch14_dinov2", None),
    ("vit_small_patch16_dinov3", None),
    ("swin_tiny_patch4_window7_224", None),
    ("mvitv2_tiny", None),
    ("crossvit_tiny_240", None),
    ("glyphnet", None),
)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path, help="the folder where vectors are kept")
    parser.add_argument("--file", type=Path, help="resnet50 from this file; left out without it")
    parser.add_argument("--places", nargs="*", metavar="NAME", help="where these can be frozen; without names, all tried")
    parser.add_argument("--images", type=int, default=16, help="in a batch")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.places is not None:
        print_places(options.places, options.images, options.repeats)
    elif options.vectors is not None:
        print_scores(options.vectors, options.file)
    else:
        parser.error("nothing to do: add --vectors FOLDER or --places")


def print_scores(folder: Path, file: Path | None) -> None:
    """Two rows per network: as it is, and with a head."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [row for row in ROWS if file is not None or "resnet50" not in row]
    speeds = {name: speed(embedder(name, file)) for name in NETWORKS if name != "resnet50" or file is not None}
    speeds["lite0 mirrored"] = speeds["lite0"] / 2
    print("| network | dim | images/s | | birds | pets | groceries |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        rate = 1 / sum(1 / speeds[part] for part in row.split("+"))
        cells: dict[str, list[str]] = {"as it is": [], "with a head": []}
        for kind in KINDS:
            parts = [unit_rows(vectors(kind, part, folder, file)) for part in row.split("+")]
            for how, scores in scored(kind, unit_rows(np.concatenate(parts, axis=1))).items():
                cells[how].append(" / ".join(f"{100 * score:.1f}" for score in scores))
        dim = sum(part.shape[1] for part in parts)
        for number, (how, columns) in enumerate(cells.items()):
            start = f"| {row} | {dim} | {rate:.1f} |" if number == 0 else "| | | |"
            print(f"{start} {how} | {' | '.join(columns)} |", flush=True)


def scored(kind: str, x: np.ndarray) -> dict[str, list[float]]:
    """Recall@1, MAP@R, NMI and BCubed F1 of unseen classes, as it is and with a head."""
    classes = listed(kind)[1]
    found: dict[str, list[list[float]]] = {"as it is": [], "with a head": []}
    for known, own in halves(kind):
        fitting = np.isin(classes, known)
        n_known = int(fitting.sum())
        head = closed_form_vectors(x[fitting], classes[fitting], x, DIM if n_known >= ENOUGH else x.shape[1])[0]
        for how, values in (("as it is", x), ("with a head", head)):
            report = facetric.evaluate(values[~fitting], classes[~fitting], ks=(1,), n_restarts=2, facility=False)
            piles = [rows for shape in SHAPES[kind] for rows in drawn(classes, own, shape, 2, 9)]
            groups = np.mean([f1s(classes[rows], PairLinkage().fit_predict(values[rows]))[0] for rows in piles])
            found[how].append([report.recall_at_k[1], report.map_at_r, report.nmi, float(groups)])
    return {how: np.mean(scores, axis=0).tolist() for how, scores in found.items()}


def halves(kind: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Classes that a head is fitted to, and classes that it is scored on."""
    if kind == "cub":
        yield np.arange(100), np.arange(100, 200)
        return
    n_classes = {"pets": 25, "groceries": 60}[kind]
    order = np.random.default_rng(5).permutation(n_classes)
    one, two = order[: (n_classes + 1) // 2], order[(n_classes + 1) // 2 :]
    yield one, two
    yield two, one


def embedder(name: str, file: Path | None) -> Embedder:
    return facetric.load(file if name == "resnet50" else name, device="cpu")


def vectors(kind: str, name: str, folder: Path, file: Path | None) -> np.ndarray:
    """(n, dim), from the folder or made now."""
    network, _, mirrored = name.partition(" ")
    kept = folder / f"v_{kind}_{network}_{KINDS[kind]}{f'_{mirrored}' * bool(mirrored)}.npy"
    if not kept.exists():
        photos, model = Files(listed(kind)[0]), embedder(network, file)
        model.prepare(len(photos))
        if mirrored:
            seen = unit_rows(vectors(kind, network, folder, file))
            found = unit_rows(seen + encode(model._engine, Mirrored(photos)))  # type: ignore[arg-type]
        else:
            found = model.encode(list(photos.images))
        np.save(kept, found)
    return np.load(kept)


class Mirrored:
    """The inputs of a source, left to right."""

    starts_at = "images"

    def __init__(self, source: Files) -> None:
        self.source = source

    def __len__(self) -> int:
        return len(self.source)

    def inputs(self, *arguments: object) -> np.ndarray:
        return np.ascontiguousarray(self.source.inputs(*arguments)[..., ::-1])  # type: ignore[arg-type]


def speed(model: Embedder) -> float:
    """Photos per second of CPU time, from files."""
    photos = [str(file) for file in listed("groceries")[0][:48]]
    model.prepare(10**6)
    model.encode(photos[:4], n_threads=1)
    start = time.process_time()
    model.encode(photos, n_threads=1)
    return len(photos) / (time.process_time() - start)


def print_places(names: list[str], n_images: int, repeats: int) -> None:
    """A row per backbone."""
    print("| backbone | input | features | weights | `freeze_through`, besides `all` | s / 100 images | × lite0 |")
    print("|---|---|---|---|---|---|---|")
    first = None
    for name, size in TRIED:
        if names and name not in names:
            continue
        network, weights = built(name, size)
        spec = network.preprocessing
        seconds = 100 / n_images * least_seconds(network, n_images, repeats)
        first = first or seconds
        probe = torch.randn(1, spec.channels, spec.crop, spec.crop, generator=torch.Generator().manual_seed(0))
        places = shown(working_places(network.backbone, probe), network)
        columns = (f"`{name}`", spec.crop, network.n_features, weights, places, f"{seconds:.1f}", f"{seconds / first:.1f}")
        print("| " + " | ".join(str(column) for column in columns) + " |", flush=True)


def built(name: str, size: int | None) -> tuple[Network, str]:
    """With packaged weights where they exist and are installed, else random ones."""
    weights = "packaged" if default_weights(name) == "packaged" else "none"
    try:
        return build_network(name, weights=weights, image_size=size).eval(), weights
    except WeightsError:
        return build_network(name, weights="none", image_size=size).eval(), "none"


def least_seconds(embedder: Network, n_images: int, repeats: int) -> float:
    """CPU time of a batch."""
    spec = embedder.preprocessing
    images = torch.randn(n_images, spec.channels, spec.crop, spec.crop)
    times = []
    with torch.inference_mode():
        embedder.features(images[:1])
        for _ in range(repeats):
            start = time.process_time()
            embedder.features(images)
            times.append(time.process_time() - start)
    return min(times)


def shown(places: list[str], embedder: Network) -> str:
    """Stages and blocks, runs of them in short: `blocks.0`-`blocks.6`. Stems and norms work too, and are left out."""
    numbered = [
        place for place in places if re.fullmatch(r"\D.*\.\d+", place) and not place.startswith(("stem.", "patch_embed."))
    ]
    parts = []
    for _, group in groupby(numbered, key=lambda place: place.rpartition(".")[0]):
        run = list(group)
        parts.append(f"`{run[0]}`" if len(run) == 1 else f"`{run[0]}`–`{run[-1].rpartition('.')[2]}`")
    if not parts:  # a network without chains: its parts by name
        parts = [f"`{place}`" for place in places if any(True for _ in embedder.backbone.get_submodule(place).children())]
    return ", ".join(parts) or "nowhere"


if __name__ == "__main__":
    main()
