"""The paper's schedule for γ: exponential decay at rate 0.94 (Section on implementation details)."""

from __future__ import annotations

from typing import Protocol


class HasMarginWeight(Protocol):
    """Anything with a γ, such as `FacilityLocationLoss`."""

    margin_weight: float


class MarginDecay:
    """Multiplies a loss's γ by `rate` after every `every` steps. Call `step` once per training step.

    >>> from facetric.losses import FacilityLocationLoss
    >>> loss = FacilityLocationLoss(margin_weight=1.0)
    >>> decay = MarginDecay(loss, every=2)
    >>> for _ in range(4):
    ...     decay.step()
    >>> round(loss.margin_weight, 4)
    0.8836
    """

    def __init__(self, loss: HasMarginWeight, *, every: int, rate: float = 0.94) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1 step; got {every}: one pass over the training set is customary")
        if not 0 < rate <= 1:
            raise ValueError(f"rate must be in (0, 1]; got {rate}: the paper uses 0.94, 1 keeps γ constant")
        self.loss = loss
        self.every = every
        self.rate = rate
        self.initial = loss.margin_weight
        self.n_steps = 0

    def step(self) -> None:
        """One training step has been done."""
        self.n_steps += 1
        self.loss.margin_weight = self.initial * self.rate ** (self.n_steps // self.every)

    def state_dict(self) -> dict[str, float]:
        return {"initial": self.initial, "n_steps": self.n_steps}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.initial = state["initial"]
        self.n_steps = int(state["n_steps"])
        self.loss.margin_weight = self.initial * self.rate ** (self.n_steps // self.every)
