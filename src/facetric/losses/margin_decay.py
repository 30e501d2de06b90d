"""The paper's schedule for γ: exponential decay at rate 0.94 (Section on implementation details)."""

from __future__ import annotations

from torch import nn

from facetric.losses.solver.problem import whole


class MarginDecay:
    """Multiplies a loss's γ by `rate` after every `every` steps. Call `step` once per training step.

    The loss is a `FacilityLocationLoss`, alone or inside `SubsampledLoss` and `GlobalBatch`. The decay sets its `margin_scale`.

    >>> from facetric.losses import FacilityLocationLoss
    >>> loss = FacilityLocationLoss()
    >>> decay = MarginDecay(loss, every=2)
    >>> loss.gamma(n_images=128)
    64.0
    >>> for _ in range(4):
    ...     decay.step()
    >>> round(loss.gamma(n_images=128), 4)  # 64 · 0.94²
    56.5504
    """

    def __init__(self, loss: nn.Module, *, every: int, rate: float = 0.94) -> None:
        self.every = whole("every", every, at_least=1, hint="one pass over the training set is customary")
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 1:
            raise ValueError(f"rate must be in (0, 1]; got {rate!r}: the paper uses 0.94, 1 keeps γ constant")
        self.rate = rate
        self.losses = [part for part in loss.modules() if hasattr(part, "margin_scale")]
        if not self.losses:
            raise ValueError(f"MarginDecay needs a loss with a γ; got {loss}: pass a FacilityLocationLoss")
        self.n_steps = 0

    def step(self) -> None:
        """One training step has been done."""
        self._set(self.n_steps + 1)

    def state_dict(self) -> dict[str, int]:
        return {"n_steps": self.n_steps}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._set(int(state["n_steps"]))

    def _set(self, n_steps: int) -> None:
        self.n_steps = n_steps
        for loss in self.losses:
            loss.margin_scale = self.rate ** (n_steps // self.every)  # type: ignore[assignment]
