"""The losses of a study and their search spaces.

The paper's losses keep its normalization and its batches (pairs for N-pairs). Ranges are wide around the values that the authors
of each loss recommend, which lie near their middle; what is usual comes first in a list. Learning rates and the number of classes
in a batch have the same range for all losses of a setting. A key that ends in /m is searched for each image that is clustered:
what is found for one size of batches or subsets holds for another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Value = str | int | float | bool
Parameters = dict[str, Value]  # "table.key" → value


@dataclass(frozen=True)
class Range:
    """A positive number, searched on the log scale."""

    low: float
    high: float


Space = dict[str, Range | tuple[Value, ...]]  # "table.key" → a range, or a list of choices


@dataclass(frozen=True)
class Method:
    """A loss under study: its part of the configuration, and the keys that are searched."""

    title: str
    loss: dict[str, Any]
    searched: Space
    batches: dict[str, Any] = field(default_factory=dict)  # replace those of the setting; None drops a key
    fixed: dict[str, Value] = field(default_factory=dict)  # "table.key" → a value found by another study


PER_IMAGE = "/m"
CLASS_RATIO, CLASS_RATIOS = "batches.class_ratio", (0.25, 0.375, 0.5)  # classes per image of a batch without fixed pairs
FACILITY_SPACE: Space = {"loss.margin_weight" + PER_IMAGE: Range(0.06, 4.0), "loss.margin_decay": (0.94, 0.8, 1.0)}

PAPER_METHODS = {
    "triplet_semihard": Method("Triplet semi-hard", {"name": "triplet_semihard"}, {"loss.margin": Range(0.05, 0.8)}),
    "lifted_structure": Method(
        "Lifted structure", {"name": "lifted_structure"}, {"loss.margin": Range(0.3, 10.0), "model.head_scale": Range(1.0, 16.0)}
    ),
    "npairs": Method(
        "N-pairs",
        {"name": "npairs"},
        {"loss.norm_weight": Range(1e-4, 1e-1), "model.head_scale": Range(1.0, 8.0)},
        {"class_ratio": None, "images_per_class": 2},
    ),
    "facility_location": Method("Facility location", {"name": "facility_location"}, FACILITY_SPACE),
}


def _later(title: str, searched: Space, **options: Value) -> Method:
    """A loss of pytorch-metric-learning."""
    return Method(title, {"name": f"pytorch_metric_learning.{title}Loss", "options": options}, searched)


_PROXIES: Space = {"optimizer.loss_lr": Range(1e-4, 1e-1)}
LATER_METHODS = {
    "multi_similarity": _later(
        "MultiSimilarity", {"loss.options.alpha": Range(1.0, 10.0), "loss.options.beta": Range(15.0, 80.0)}
    ),
    "proxy_anchor": _later("ProxyAnchor", {"loss.options.alpha": Range(8.0, 64.0), **_PROXIES}),
    "soft_triple": _later("SoftTriple", {"loss.options.la": Range(5.0, 60.0), **_PROXIES}, centers_per_class=2),
    "sup_con": _later("SupCon", {"loss.options.temperature": Range(0.02, 0.5)}),
}

_SUBSETS = {"name": "facility_location", "n_subsets": 16}  # the paper's conclusion proposes them as future work
_SQUARED = {"name": "facility_location", "squared": True}
OUR_METHODS = {
    "facility_location_subsets": Method("Facility location, 16 subsets of half of the batch", _SUBSETS, FACILITY_SPACE),
    "facility_location_squared": Method("Facility location, squared distances", _SQUARED, FACILITY_SPACE),
}

COMPARED_WITH_ALL = ("facility_location_subsets", "facility_location")  # the first of these that a study has

METHODS: dict[str, Method] = {**PAPER_METHODS, **LATER_METHODS, **OUR_METHODS}
