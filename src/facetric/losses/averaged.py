"""Means of a loss: over random subsets of the batch, as the paper's conclusion proposes, or over prefixes of the embedding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from facetric.losses.batch import BatchLoss, batch_pairs, checked_loss, is_degenerate, warn_once
from facetric.losses.facility_location import BatchExplanation, FacilityLocationLoss
from facetric.losses.solver.problem import whole


@dataclass(frozen=True, eq=False)
class SubsetsExplanation:
    """The explanations of all subsets of a batch, and the means of their terms."""

    subsets: tuple[BatchExplanation, ...]
    facility_score: float  # F
    oracle_score: float  # F̃
    margin: float  # Δ
    nmi: float  # of the clusterings found against the classes
    value: float  # the loss
    margin_weight: float  # γ, the same for all subsets
    active: bool  # whether the hinge of any subset is, that is, whether there is any gradient

    @classmethod
    def of(cls, subsets: Sequence[BatchExplanation]) -> SubsetsExplanation:
        terms = ("facility_score", "oracle_score", "margin", "nmi", "value")
        means = {term: float(sum(getattr(subset, term) for subset in subsets)) / len(subsets) for term in terms}
        active = any(subset.active for subset in subsets)
        return cls(subsets=tuple(subsets), margin_weight=subsets[0].margin_weight, active=active, **means)


class SubsampledLoss(BatchLoss):
    """The mean of a loss over random subsets of the batch, `FacilityLocationLoss` unless another is given.

        ℓ(X, y) = 1/n · Σₛ ℓ(X[Bₛ], y[Bₛ]),   B₁ … Bₙ random subsets of the batch, drawn without replacement

    "Cluster several random subsets of the data within the training batch and then average the loss gradient", in the spirit of
    the Bag of Little Bootstraps. Each image gets its gradient from many clusterings instead of one, and a network learns faster:
    this is the loss that we recommend. A subset that is trivial for the loss (one class, say) contributes 0 to the mean.

    Args:
        loss: what is averaged, any `loss(embeddings, labels)`; None is `FacilityLocationLoss()`.
        n_subsets: how many random subsets of the batch are drawn.
        subset_size: images in a subset; None is half of the batch. A smaller batch is taken whole, with one warning.
        seed: of the generator that draws the subsets.

    ``last`` explains the last batch: every subset, and the means of F, F̃, Δ and NMI. It is None before the first batch and for
    losses that explain nothing. The generator is in ``state_dict()``. In ``eval()`` mode it rests: the subsets are always the
    first that its seed draws.

    Reference: A. Kleiner, A. Talwalkar, P. Sarkar, M. I. Jordan. A Scalable Bootstrap for Massive Data. JRSS B 2014.

    Examples:
        >>> embeddings, labels = torch.eye(8), torch.arange(8) % 2
        >>> loss = SubsampledLoss(n_subsets=4)
        >>> state = loss.state_dict()
        >>> first = loss(embeddings, labels)
        >>> loss.load_state_dict(state)
        <All keys matched successfully>
        >>> bool(loss(embeddings, labels) == first)  # the same subsets
        True
    """

    last: SubsetsExplanation | None

    def __init__(
        self, loss: nn.Module | None = None, n_subsets: int = 16, subset_size: int | None = None, *, seed: int = 0
    ) -> None:
        super().__init__()
        self.loss = FacilityLocationLoss() if loss is None else checked_loss(loss)
        self.n_subsets = whole("n_subsets", n_subsets, at_least=1, hint="each subset is one clustering")
        if subset_size is not None:
            subset_size = whole("subset_size", subset_size, at_least=2, hint="None is half of the batch")
        self.subset_size = subset_size
        self.generator = torch.Generator().manual_seed(whole("seed", seed, at_least=0, hint="the default is 0"))
        self.last = None

    def get_extra_state(self) -> dict[str, Tensor]:
        return {"generator": self.generator.get_state()}

    def set_extra_state(self, state: dict[str, Tensor]) -> None:
        self.generator.set_state(state["generator"].cpu())

    def batch_loss(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The mean over the subsets; in eval mode over those that the seed draws first, and the generator stays as it is."""
        is_degenerate(self.loss, batch_pairs(labels))  # warns once, in the name of the loss that the subsets go to
        m = len(embeddings)
        size = max(m // 2, 2) if self.subset_size is None else self.subset_size
        if self.subset_size is not None and size > m:
            warn_once(self, "subset_size", f"subset_size ({size}) exceeds the batch ({m}), which is taken whole")
        generator = self.generator if self.training else torch.Generator().manual_seed(self.generator.initial_seed())
        values, explanations = [], []
        for _ in range(self.n_subsets):
            subset = torch.randperm(m, generator=generator)[:size].to(embeddings.device)
            values.append(self.loss(embeddings[subset], labels[subset]))
            if isinstance(self.loss, FacilityLocationLoss) and self.loss.last is not None:
                explanations.append(self.loss.last)
        self.last = SubsetsExplanation.of(explanations) if explanations else None
        return torch.stack(values).mean()


class MatryoshkaLoss(BatchLoss):
    """The mean of a loss over prefixes of the embedding, so that its first dimensions also serve alone.

        ℓ(X, y) = 1/k · Σ_w ℓ_w(X[:, :w], y),   widths w₁ < … < w_k, of which the largest is usually the whole embedding

    Args:
        losses: width → the loss on that many dimensions. Each normalizes its prefix itself, if it normalizes at all.

    ``last`` is the explanation of the widest one, where it explains its batches.

    Reference: A. Kusupati et al. Matryoshka Representation Learning. NeurIPS 2022.

    Examples:
        >>> from facetric.losses import AffinityLoss
        >>> embeddings, labels = torch.eye(4), torch.tensor([0, 0, 1, 1])
        >>> MatryoshkaLoss({2: AffinityLoss(), 4: AffinityLoss()})(embeddings, labels)  # (0.375 + 0.25) / 2
        tensor(0.3125)
    """

    def __init__(self, losses: Mapping[int, nn.Module]) -> None:
        super().__init__()
        if not isinstance(losses, Mapping) or not losses:
            raise ValueError(f"a matryoshka loss needs at least one width; got {losses!r}: pass {{64: loss, 512: another_loss}}")
        hint = "a width is a number of dimensions"
        self.widths = sorted(whole("width", width, at_least=1, hint=hint) for width in losses)
        self.losses = nn.ModuleList(checked_loss(losses[width]) for width in self.widths)

    @property
    def last(self) -> object:
        return getattr(self.losses[-1], "last", None)

    def extra_repr(self) -> str:
        return f"widths={self.widths}"

    def batch_loss(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The mean over the prefixes."""
        if self.widths[-1] > embeddings.shape[1]:
            raise ValueError(f"width {self.widths[-1]} exceeds the embedding ({embeddings.shape[1]}): lower it")
        parts = zip(self.widths, self.losses, strict=True)
        return torch.stack([loss(embeddings[:, :width], labels) for width, loss in parts]).mean()
