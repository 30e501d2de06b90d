"""Losses: an nn.Module each, called as loss(embeddings, labels) → scalar tensor."""

from torch import nn

from facetric.losses.affinity import AffinityLoss
from facetric.losses.contrastive import ContrastiveLoss
from facetric.losses.facility_location import BatchExplanation, FacilityLocationLoss
from facetric.losses.lifted_structure import LiftedStructureLoss
from facetric.losses.margin_decay import MarginDecay
from facetric.losses.npairs import NPairsLoss
from facetric.losses.subsampled import SubsampledLoss
from facetric.losses.triplet import TripletLoss
from facetric.losses.triplet_semihard import TripletSemihardLoss

LOSSES: dict[str, type[nn.Module]] = {
    "facility_location": FacilityLocationLoss,
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
    "ContrastiveLoss",
    "FacilityLocationLoss",
    "LiftedStructureLoss",
    "MarginDecay",
    "NPairsLoss",
    "SubsampledLoss",
    "TripletLoss",
    "TripletSemihardLoss",
]
