"""What a network asks for when it is fine-tuned on one's own photos without a GPU, and the same run with another network.

Some of the last blocks are trained behind cached activations, from a head in closed form, which is fitted once more in the end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from facetric.embedder import WHOLE, named_network, network_facts, networks_here
from facetric.runs.config import TrainConfig
from facetric.runs.config_file import parse_config

BACKBONE = "tf_efficientnet_lite0"
MOST_CACHE_BYTES = 4_000_000_000  # of the activations on disk; large datasets get fewer views
OWN_POOLING = "gem"  # on 60 small folders of birds and characters its closed-form head had a MAP@R 0.9 and 3.6 higher
# EfficientNet-Lites gain from one more stage (benchmarks/results/fine_tuned.md); of a transformer the last two or three blocks
# are trained, at the rate at which transformers are usually fine-tuned: weights to measure another with could not be had.
LITE_PLACE = "blocks.3"
RATE, TRANSFORMER_RATE = 1e-4, 1e-5
OWN_DIM, ENOUGH_FOR_DIM = 256, 2000  # images: a head of 256 dimensions fitted to fewer loses what tells new classes apart

Tables = dict[str, dict[str, Any]]


def networks_to_compare(model: Mapping[str, Any], named: Sequence[str] | None) -> tuple[str, ...]:
    """That of the user's [model] settings first, then those `named`, the smallest first; with neither, those that are here."""
    rows = {name: named_network(name) for name in named or ()}
    by_size = sorted(rows, key=lambda name: row.megabytes if (row := rows[name]) else math.inf)
    names = tuple(dict.fromkeys([*([model["backbone"]] if "backbone" in model else []), *by_size]))
    is_set = named is not None or "weights" in model or model.get("freeze_through", WHOLE) != WHOLE
    return names or ((BACKBONE,) if is_set else networks_here())


def network_settings(backbone: str, n_images: int) -> Tables:
    """The settings that depend on the network. `n_images`: how many train."""
    facts = network_facts(backbone)
    is_lite = facts.name.startswith("lite")
    return {
        "data": {"size": max(256, 2 * round(4 / 7 * facts.crop))},  # 256 for 224: room for random crops
        "model": {
            "backbone": facts.backbone,
            "weights": facts.weights,
            "image_size": facts.image_size,
            "pooling": OWN_POOLING if facts.averages else "average",
            "freeze_through": LITE_PLACE if is_lite else facts.freeze_through,
            "cached_views": min(max(MOST_CACHE_BYTES // (facts.view_bytes * n_images) - 1, 1), 2),  # and the central crop
            "dim": min(OWN_DIM, facts.n_features) if n_images >= ENOUGH_FOR_DIM else facts.n_features,
        },
        "optimizer": {"backbone_lr": TRANSFORMER_RATE if facts.is_transformer else RATE},
    }


def with_network(config: TrainConfig, backbone: str, n_images: int) -> TrainConfig:
    """The same run with another network: what was set for the network is set for this one, the user's own settings stay."""
    before, after = network_settings(config.model.backbone, n_images), network_settings(backbone, n_images)
    tables = config.model_dump()
    for name, values in after.items():
        tables[name] |= {key: value for key, value in values.items() if tables[name][key] == before[name][key]}
    model, frozen = tables["model"], config.model.freeze_through
    model |= {key: after["model"][key] for key in ("backbone", "weights")}
    model["freeze_through"] = frozen if frozen in (None, WHOLE) else after["model"]["freeze_through"]
    model["dim"] = min(model["dim"], network_facts(backbone).n_features)
    tables["loss"]["nested"] = [width for width in config.loss.nested if width < model["dim"]]
    return parse_config({name: {k: v for k, v in table.items() if v is not None} for name, table in tables.items()})
