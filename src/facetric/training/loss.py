"""The loss of a configuration, and its γ schedule."""

from __future__ import annotations

from torch import nn

from facetric import losses
from facetric.losses import (
    BatchExplanation,
    FacilityLocationLoss,
    MarginDecay,
    MatryoshkaLoss,
    SubsampledLoss,
    SubsetsExplanation,
)
from facetric.runs import LossTable
from facetric.training.processes import Processes


def build_loss(config: LossTable, *, seed: int, dim: int, n_classes: int, processes: Processes) -> nn.Module:
    """The loss of the configuration; the solver runs in the first process and hands its medoids to the others."""
    by_width = {width: _one_loss(config, seed=seed, dim=width, n_classes=n_classes) for width in (*config.nested, dim)}
    for loss in by_width.values():
        inner = innermost(loss)
        if isinstance(inner, FacilityLocationLoss) and processes.n > 1:
            inner.share = processes.broadcast
    return MatryoshkaLoss(by_width) if config.nested else by_width[dim]


def _one_loss(config: LossTable, *, seed: int, dim: int, n_classes: int) -> nn.Module:
    """The loss on embeddings of `dim` dimensions."""
    loss = losses.build_loss(config.name, config.keywords(), dim=dim, n_classes=n_classes, seed=seed)
    if config.n_subsets:
        loss = SubsampledLoss(loss, config.n_subsets, config.subset_size, seed=seed)
    return loss


def build_decay(loss: nn.Module, config: LossTable, *, steps_per_pass: int) -> MarginDecay | None:
    """The schedule of γ, for a loss that has one."""
    if not isinstance(innermost(loss), FacilityLocationLoss):
        return None
    return MarginDecay(loss, every=config.margin_decay_every or steps_per_pass, rate=config.margin_decay)


def innermost(loss: nn.Module) -> nn.Module:
    """The loss itself, without prefixes (of which it is the widest) and without the averaging over subsets."""
    if isinstance(loss, MatryoshkaLoss):
        return innermost(loss.losses[-1])
    return loss.loss if isinstance(loss, SubsampledLoss) else loss


def last_explanation(loss: nn.Module) -> BatchExplanation | SubsetsExplanation | None:
    """F, F̃, Δ, NMI and γ of the last batch, for the clustering loss; with subsets their means, as the loss itself is one."""
    if isinstance(loss, MatryoshkaLoss):
        return last_explanation(loss.losses[-1])
    return loss.last if isinstance(loss, FacilityLocationLoss | SubsampledLoss) else None
