"""Losses: an nn.Module each, called as loss(embeddings, labels) → scalar tensor."""

from facetric.losses.averaged import MatryoshkaLoss, SubsampledLoss
from facetric.losses.batch import PairLoss
from facetric.losses.facility_location import BatchExplanation, FacilityLocationLoss, MarginDecay, compile_kernels
from facetric.losses.global_batch import GlobalBatch, PeerError, broadcast, gather_rows
from facetric.losses.pair_losses import (
    AffinityLoss,
    ContrastiveLoss,
    LiftedStructureLoss,
    NPairsLoss,
    TripletLoss,
    TripletSemihardLoss,
)
from facetric.losses.registry import LOSSES, build_loss, for_pytorch_metric_learning
from facetric.losses.sampler import ClassBalancedBatches

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
    "MatryoshkaLoss",
    "NPairsLoss",
    "PairLoss",
    "PeerError",
    "SubsampledLoss",
    "TripletLoss",
    "TripletSemihardLoss",
    "broadcast",
    "build_loss",
    "compile_kernels",
    "for_pytorch_metric_learning",
    "gather_rows",
]
