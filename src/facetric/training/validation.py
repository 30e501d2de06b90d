"""What a run is watched by while it trains: scores on held-out classes, by the code that evaluates a finished run, and health.

Non-finite values stop a run, and a collapse is reported.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from facetric.evaluation import evaluate
from facetric.metrics import Metric
from facetric.runs import DivergedError

Scores = dict[str, float]

CALMER = "lower the learning rates, add optimizer.clip_norm or optimizer.warmup_steps, and train again under another name"
_LEAST_SPREAD = 1e-3
KS = (1, 2, 4, 8)


def scores_of(vectors: NDArray[np.float32], labels: NDArray[np.int64], *, metric: Metric) -> Scores:
    """Retrieval and clustering by name, as `facetric evaluate --split validation` prints them."""
    report = evaluate(vectors, labels, ks=KS, metric=metric, facility=False)
    assert report.map_at_r is not None
    assert report.nmi is not None
    recall = {f"recall_at_{k}": value for k, value in report.recall_at_k.items()}
    return {**recall, "map_at_r": report.map_at_r, "nmi": report.nmi}


def check_validation(labels: NDArray[np.int64], *, can_be_off: bool = True) -> None:
    """Refuse validation images that cannot be scored, before anything is trained."""
    others, off = "", ""
    if can_be_off:
        others, off = "others with --set data.validation_seed=…, ", ", or validate on none: --set run.validate_every=0"
    sizes = np.bincount(labels)
    n_images, n_classes = len(labels), int((sizes > 0).sum())
    if n_classes > 1 and sizes.max() == 1:
        raise ValueError(
            f"none of the {n_classes} validation classes has 2 images, so that nothing can be found again: hold out "
            f"{others}more with --set data.validation_fraction=…{off}"
        )
    if n_classes < 2 or n_images <= max(KS):
        raise ValueError(
            f"validation scores Recall@{max(KS)} and needs {max(KS) + 1} images of 2 classes or more; there are {n_images} of "
            f"{n_classes}: add images, or raise --set data.validation_fraction=…{off}"
        )


def refuse_non_finite_weights(network: nn.Module, step: int) -> None:
    """A non-finite gradient corrupts the weights a step before the loss shows it: never save such weights over good ones."""
    spoiled = [name for name, weights in network.named_parameters() if not bool(torch.isfinite(weights).all())]
    if spoiled:
        raise DivergedError(
            f"{len(spoiled)} tensors of the network ({spoiled[0]}, …) are not finite after step {step} and not saved: {CALMER}"
        )


def refuse_bad_embeddings(vectors: NDArray[np.float32], step: int, *, metric: Metric) -> None:
    """Weights that have overflowed, or a last layer that has died, give embeddings that cannot be compared."""
    comparable = np.isfinite(vectors).all(axis=1) & (vectors.any(axis=1) if metric == "cosine" else True)
    if n_bad := len(vectors) - int(comparable.sum()):
        raise DivergedError(
            f"after step {step} the embeddings of {n_bad:,} of {len(vectors):,} validation images are zero or not finite: "
            + CALMER
        )


class CollapseWatch:
    """Warns once when all embeddings coincide, and once when the loss has been 0 for `patience` steps."""

    def __init__(self, *, loss_name: str, patience: int = 200) -> None:
        self.loss_name, self.patience, self.n_idle = loss_name, patience, 0
        self._said: set[str] = set()

    def idle(self, active: bool) -> str | None:
        """Call in every step with whether the loss had a gradient."""
        self.n_idle = 0 if active else self.n_idle + 1
        if self.n_idle < self.patience or "idle" in self._said:
            return None
        self._said.add("idle")
        keys = "loss.margin_weight or loss.margin_decay" if self.loss_name.startswith("facility_location") else "loss.margin"
        return (
            f"nothing has been learned for {self.n_idle} steps: the loss is 0 because every batch is clustered as it should be. "
            f"To keep learning, raise {keys} or enlarge the batches; otherwise stop here"
        )

    @torch.no_grad()
    def spread(self, embeddings: Tensor) -> str | None:
        """Call from time to time with the embeddings of a batch (m, d): how far they are from their mean, by their length."""
        points = embeddings.detach().float()
        distance = torch.linalg.vector_norm(points - points.mean(dim=0), dim=1).mean()
        length = torch.linalg.vector_norm(points, dim=1).mean()
        spread = float(distance / length.clamp_min(torch.finfo(torch.float32).tiny))
        if spread >= _LEAST_SPREAD or "alike" in self._said:
            return None
        self._said.add("alike")
        return f"the embeddings have collapsed: their relative spread is {spread:.1e}, so all images look alike: {CALMER}"
