"""Losses: an nn.Module each, called as loss(embeddings, labels) → scalar tensor."""

from collections.abc import Callable

from torch import nn

from facetric.losses.baselines import (
    AffinityLoss,
    ContrastiveLoss,
    LiftedStructureLoss,
    NPairsLoss,
    TripletLoss,
    TripletSemihardLoss,
)
from facetric.losses.batch import PairLoss
from facetric.losses.external import for_pytorch_metric_learning
from facetric.losses.facility_location import BatchExplanation, FacilityLocationLoss
from facetric.losses.global_batch import GlobalBatch
from facetric.losses.margin_decay import MarginDecay
from facetric.losses.nested import NestedLoss
from facetric.losses.sampler import ClassBalancedBatches
from facetric.losses.subsampled import SubsampledLoss, SubsetsExplanation, facility_location_subsets

# By the names of configurations. A new loss is one file and one line here; its options are those of its signature (options.py).
LOSSES: dict[str, Callable[..., nn.Module]] = {
    "facility_location": FacilityLocationLoss,
    "facility_location_subsets": facility_location_subsets,  # what we recommend
    "triplet_semihard": TripletSemihardLoss,
    "lifted_structure": LiftedStructureLoss,
    "npairs": NPairsLoss,
    "contrastive": ContrastiveLoss,
    "triplet": TripletLoss,
    "affinity": AffinityLoss,
}

__all__ = [
    "LOSSES",
    "AffinityLoss",
    "BatchExplanation",
    "ClassBalancedBatches",
    "ContrastiveLoss",
    "FacilityLocationLoss",
    "GlobalBatch",
    "LiftedStructureLoss",
    "MarginDecay",
    "NPairsLoss",
    "NestedLoss",
    "PairLoss",
    "SubsampledLoss",
    "SubsetsExplanation",
    "TripletLoss",
    "TripletSemihardLoss",
    "for_pytorch_metric_learning",
]
