"""Losses: an nn.Module each, called as loss(embeddings, labels) → scalar tensor."""

from facetric.losses.batch import PairLoss
from facetric.losses.facility_location import BatchExplanation, FacilityLocationLoss, compile_kernels
from facetric.losses.global_batch import GlobalBatch, PeerError, broadcast, gather_rows
from facetric.losses.margin_decay import MarginDecay
from facetric.losses.matryoshka import MatryoshkaLoss
from facetric.losses.pair_losses import (
    AffinityLoss,
    ContrastiveLoss,
    LiftedStructureLoss,
    NPairsLoss,
    TripletLoss,
    TripletSemihardLoss,
)
from facetric.losses.registry import LOSSES, build_loss, for_pytorch_metric_learning, loss_options
from facetric.losses.sampler import ClassBalancedBatches
from facetric.losses.subsampled import SubsampledLoss

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
    "loss_options",
]
