"""Backbones that were tried: input size, features, where they can be frozen, and what an image costs on one core.

    python benchmarks/backbones.py [--only NAME …] [--images 16] [--repeats 3]

Prints the table of docs/backbones.md. Every place is checked with numbers: both parts in a row give the features of the network.
The time is CPU time of the forward pass in eval mode with one thread, the least of the repeats; the last column compares it
with the default backbone. Weights do not change it: networks without packaged weights have random ones here.
"""

from __future__ import annotations

import argparse
import re
import time
from itertools import groupby

import torch

from facetric.embedder import Network, WeightsError, build_network
from facetric.embedder.split import working_places
from facetric.embedder.weights import default_weights

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
    """Print a row per backbone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these backbones")
    parser.add_argument("--images", type=int, default=16, help="in a batch")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| backbone | input | features | weights | `freeze_through`, besides `all` | s / 100 images | × lite0 |")
    print("|---|---|---|---|---|---|---|")
    first = None
    for name, size in TRIED:
        if options.only and name not in options.only:
            continue
        embedder, weights = built(name, size)
        spec = embedder.preprocessing
        seconds = 100 / options.images * least_seconds(embedder, options.images, options.repeats)
        first = first or seconds
        probe = torch.randn(1, spec.channels, spec.crop, spec.crop, generator=torch.Generator().manual_seed(0))
        places = shown(working_places(embedder.backbone, probe), embedder)
        columns = (f"`{name}`", spec.crop, embedder.n_features, weights, places, f"{seconds:.1f}", f"{seconds / first:.1f}")
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
