"""The structured clustering loss of "Deep Metric Learning via Facility Location": the only place where torch meets the solver."""

from __future__ import annotations

import json
import logging
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from facetric.losses.batch import BatchLoss, batch_pairs, checked_batch, flag, is_degenerate, unit_vectors, zero_loss
from facetric.losses.solver import ClusteringProblem, Solution, oracle_medoids, solve
from facetric.losses.solver.problem import MarginFunction, check_margin, nonnegative, whole
from facetric.losses.solver.solve import Inference, Refinement, check_solver_options, inference_for, score_gap
from facetric.metrics import nmi

_log = logging.getLogger("facetric")

Reduction = Literal["sum", "mean"]
Inferred = tuple[Solution, NDArray[np.int64]]  # S_PAM, and the oracle medoids


@dataclass(frozen=True, eq=False)
class BatchExplanation(Solution):
    """The full story of one batch under the loss: the most violating clustering that was found, and the terms of the loss."""

    oracle_medoids: NDArray[np.int64]  # (n_classes,) the best medoid of each class, classes in ascending order
    oracle_score: float  # F̃(X, y*)
    margin_weight: float  # γ of this batch
    nmi: float  # of g(S) against y*, whatever the margin
    value: float  # the loss: [A(S) − F̃]₊, divided by m if reduction="mean"
    active: bool  # whether the hinge is active, that is, whether there is any gradient


class FacilityLocationLoss(BatchLoss):
    """The clustering loss: the true clustering must outscore every other one by the structured margin.

        ℓ(X, y*) = [ max_{S ⊂ V, |S| = |Y|} { F(X, S) + γ·Δ(g(S), y*) } − F̃(X, y*) ]₊

    with F(X, S) = −Σᵢ min_{j∈S} ‖f(Xᵢ) − f(Xⱼ)‖ the facility-location score of the medoids S, F̃ the score of the true classes
    with their best medoids, g(S) the assignment to the nearest medoid, and Δ = 1 − NMI by default.

    The gradient goes through F at the medoids found and through F̃ at the oracle medoids. None goes through the choice of the
    medoids or through Δ; it is zero when the hinge is inactive. A batch of one class, or of all distinct classes, is trivial:
    its loss is 0 with zero gradient.

    `SubsampledLoss`, the mean of this loss over random halves of the batch, learns faster: we recommend it for training.

    Args:
        margin_weight: γ; None is half of the number of images in the batch (of the subset inside `SubsampledLoss`).
        margin: the score behind Δ: "nmi", "vmeasure", "ami", "ari", "f1", "zero_one" or a callable on a contingency table.
        inference: "greedy" (Algorithm 1), "stochastic" (greedy on random samples of candidates), "random", or "auto":
            "greedy" as long as m·ln|Y| ≤ 7,000 (1,024 images of 900 classes), "stochastic" for larger batches.
        refine: "pam" (Algorithm 2), "local_search" (Lemma 2) or None.
        max_sweeps: T, the most sweeps of "pam".
        normalize: l2-normalize the embeddings first, as the paper does for this loss.
        squared: squared Euclidean distances instead of the paper's plain ones.
        reduction: "sum" (the paper) or "mean": the whole hinge, F − F̃ and γ·Δ alike, divided by the batch size.
        seed: of the generator behind "stochastic" and "random" inference.

    ``margin_weight`` is a plain attribute: change it at will. γ is ``margin_weight`` times ``margin_scale``, which is 1 until
    a schedule such as `MarginDecay` sets it. ``last`` is the explanation of the last batch that went through the loss, None
    before the first. ``share`` is called with the inference and gives its result: where many processes see the same batch
    (`GlobalBatch`), one infers and hands the medoids to the rest. γ and the generator are in ``state_dict()``.

    Reference: H. O. Song, S. Jegelka, V. Rathod, K. Murphy. Deep Metric Learning via Facility Location. CVPR 2017.

    Examples:
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1], [0.1, 1.0]])
        >>> loss = FacilityLocationLoss(margin_weight=1.0)
        >>> loss(embeddings, torch.tensor([0, 1, 0, 1]))  # the best clustering is the true one
        tensor(0.)
        >>> loss(embeddings, torch.tensor([0, 0, 1, 1])).item() > 1  # the classes lie across the clusters
        True
    """

    last: BatchExplanation | None
    share: Callable[[Callable[[], Inferred]], Inferred]

    def __init__(
        self,
        margin_weight: float | None = None,
        *,
        margin: str | MarginFunction = "nmi",
        inference: Inference = "greedy",
        refine: Refinement | None = "pam",
        max_sweeps: int = 5,
        normalize: bool = True,
        squared: bool = False,
        reduction: Reduction = "sum",
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_margin(margin)
        check_solver_options(inference, refine, max_sweeps)
        if reduction not in get_args(Reduction):
            raise ValueError(f"reduction must be 'sum' or 'mean'; got {reduction!r}: choose one of these")
        hint = "None is half of the batch, 0 no margin"
        self.margin_weight = None if margin_weight is None else nonnegative("margin_weight (γ)", margin_weight, hint=hint)
        self.margin_scale = 1.0
        self.margin = margin
        self.inference = inference
        self.refine = refine
        self.max_sweeps = max_sweeps
        self.normalize = flag("normalize", normalize)
        self.squared = flag("squared", squared)
        self.reduction = reduction
        self.seed = whole("seed", seed, at_least=0, hint="the default is 0")
        self.rng = np.random.default_rng(self.seed)
        self.last = None
        self._said_stochastic = False
        self.share = operator.call

    def get_extra_state(self) -> dict[str, Any]:
        generator = json.dumps(self.rng.bit_generator.state)  # its integers have 128 bits
        return {"margin_weight": self.margin_weight, "margin_scale": self.margin_scale, "generator": generator}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.margin_weight, self.margin_scale = state["margin_weight"], state["margin_scale"]
        self.rng.bit_generator.state = json.loads(state["generator"])

    def batch_loss(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The equation above; `last` explains it."""
        value, self.last = self._evaluate(embeddings, labels)
        return value

    @torch.no_grad()
    def explain(self, embeddings: Tensor, labels: Tensor) -> BatchExplanation:
        """The medoids, the clustering and every term of the loss on one batch: what the next forward pass would find.

        The generator behind "stochastic" and "random" inference is left as it was.
        """
        embeddings, labels = checked_batch(self, embeddings, labels)
        state = self.rng.bit_generator.state
        try:
            return self._evaluate(embeddings, labels)[1]
        finally:
            self.rng.bit_generator.state = state

    def gamma(self, n_images: int) -> float:
        """γ for a batch of this many images."""
        weight = n_images / 2 if self.margin_weight is None else self.margin_weight
        return weight * self.margin_scale

    def _evaluate(self, embeddings: Tensor, labels: Tensor) -> tuple[Tensor, BatchExplanation]:
        with torch.autocast(embeddings.device.type, enabled=False):
            points = unit_vectors(embeddings) if self.normalize else embeddings
            on_host = np.ascontiguousarray(points.detach().cpu().numpy())  # (m, d)
            problem = ClusteringProblem.from_points(
                on_host, labels.cpu().numpy(), margin_weight=self.gamma(len(points)), margin=self.margin, squared=self.squared
            )
            solution, oracle = self.share(lambda: self._infer(problem))
            oracle_of = oracle[problem.classes]  # (m,)
            oracle_score = problem.facility_score(oracle_of)
            trivial = problem.n_clusters in (1, problem.n_points) and is_degenerate(self, batch_pairs(labels))
            active = not trivial and solution.objective - oracle_score > problem.tolerance
            if active:
                medoid_of = solution.medoids[solution.assignment]  # (m,)
                value = self._hinge(points, on_host, medoid_of, oracle_of, problem.margin_weight * solution.margin)
            else:
                value = zero_loss(embeddings)
        return value, BatchExplanation(
            **vars(solution),
            oracle_medoids=oracle,
            oracle_score=oracle_score,
            margin_weight=problem.margin_weight,
            nmi=1.0 - solution.margin if self.margin == "nmi" else nmi(problem.labels, solution.assignment),
            value=float(value.detach()),
            active=active,
        )

    def _infer(self, problem: ClusteringProblem) -> Inferred:
        sizes = problem.n_points, problem.n_clusters
        if self.inference == "auto" and not self._said_stochastic and inference_for(*sizes) == "stochastic":
            self._said_stochastic = True
            _log.warning(
                'inference "auto" is stochastic for batches such as this one, of %d images in %d classes; '
                'for exact inference set inference="greedy"',
                *sizes,
            )
        rng = self.rng if self.training else np.random.default_rng(self.seed)
        solution = solve(problem, inference=self.inference, refine=self.refine, max_sweeps=self.max_sweeps, rng=rng)
        return solution, oracle_medoids(problem)

    def _hinge(
        self,
        points: Tensor,
        on_host: NDArray[np.floating],
        medoid_of: NDArray[np.int64],
        oracle_of: NDArray[np.int64],
        margin: float,
    ) -> Tensor:
        """[F − F̃ + γΔ]₊ with gradient; γΔ, a constant, is `margin`."""
        gap, gradient = score_gap(on_host, medoid_of, oracle_of, self.squared)
        if gap + margin <= 0.0:
            return zero_loss(points)
        scale = 1.0 / len(points) if self.reduction == "mean" else 1.0

        def recompute(points: Tensor) -> Tensor:
            return scale * (self._distances_to(points, oracle_of) - self._distances_to(points, medoid_of)).sum()

        value: Tensor = _KnownGradient.apply(points, scale * (gap + margin), scale * gradient, recompute)
        return value

    def _distances_to(self, points: Tensor, medoid_of: NDArray[np.int64]) -> Tensor:
        """The distance of each point to its medoid; at distance zero all its derivatives are zero. (m,)"""
        square = (points - points[torch.from_numpy(medoid_of).to(points.device)]).square().sum(dim=1)
        if self.squared:
            return square
        apart = square > 0
        return torch.where(apart, torch.where(apart, square, 1.0).sqrt(), 0.0)


class MarginDecay(nn.Module):
    """The paper's schedule: multiplies a loss's γ by `rate` after every `every` steps. Call `step` once per optimizer step.

    The loss is a `FacilityLocationLoss`, alone or inside `SubsampledLoss` and `GlobalBatch`. The decay sets its `margin_scale`.
    The number of steps is in ``state_dict()``: γ goes on where it was with whatever module the decay is a part of.

    Args:
        loss: the loss whose γ decays.
        every: steps between decays; by default as many as the paper takes to see the images of CUB once.
        rate: what γ is multiplied by.
        floor: γ stays at this fraction of its first value, and a line in the log says when it gets there.

    Examples:
        >>> loss = FacilityLocationLoss()
        >>> decay = MarginDecay(loss, every=2)
        >>> loss.gamma(n_images=128)
        64.0
        >>> for _ in range(4):
        ...     decay.step()
        >>> round(loss.gamma(n_images=128), 4)  # 64 · 0.94²
        56.5504
    """

    PAPER_PASS = 5864 // 128  # steps: the training images of CUB in the paper's batches

    def __init__(self, loss: nn.Module, *, every: int = PAPER_PASS, rate: float = 0.94, floor: float = 0.05) -> None:
        super().__init__()
        self.every = whole("every", every, at_least=1, hint=f"the paper's pass over CUB has {self.PAPER_PASS}")
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 1:
            raise ValueError(f"rate must be in (0, 1]; got {rate!r}: the paper uses 0.94, 1 keeps γ constant")
        self.rate, self.floor = rate, nonnegative("floor", floor, hint="0 lets γ vanish")
        self._loss = (loss,)  # a tuple: the loss is no part of this module
        if not any(hasattr(part, "margin_scale") for part in loss.modules()):
            raise ValueError(f"MarginDecay needs a loss with a γ; got {loss}: pass a FacilityLocationLoss")
        self.n_steps = 0

    @staticmethod
    def scale(loss: nn.Module, n_steps: int, *, every: int, rate: float, floor: float = 0.05) -> None:
        """Set γ of a loss, if it has one, to what it is after so many training steps."""
        n_decays = n_steps // every
        parts = [part for part in loss.modules() if isinstance(part, FacilityLocationLoss)]
        for part in parts:
            part.margin_scale = max(rate**n_decays, floor)
        if parts and n_steps == n_decays * every > 0 and rate**n_decays <= floor < rate ** (n_decays - 1):
            _log.warning("γ has decayed to %g of its first value after %d steps, and stays there", floor, n_steps)

    def step(self) -> None:
        """One training step has been done."""
        self.set_extra_state({"n_steps": self.n_steps + 1})

    def get_extra_state(self) -> dict[str, int]:
        return {"n_steps": self.n_steps}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.n_steps = state["n_steps"]
        self.scale(*self._loss, self.n_steps, every=self.every, rate=self.rate, floor=self.floor)

    def extra_repr(self) -> str:
        return f"every={self.every}, rate={self.rate}, floor={self.floor}"


class _KnownGradient(torch.autograd.Function):
    """A function of the points whose value and gradient have been found on the host, from the copy that the solver works on.

    Only for a gradient of the gradient (`create_graph=True`) is it computed in torch, by `recompute`, up to a constant.
    """

    @staticmethod
    def forward(
        ctx: Any, points: Tensor, value: float, gradient: NDArray[np.floating], recompute: Callable[[Tensor], Tensor]
    ) -> Tensor:
        ctx.save_for_backward(points)
        ctx.gradient, ctx.recompute = gradient, recompute
        return points.new_tensor(value)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None, None]:
        (points,) = ctx.saved_tensors
        if torch.is_grad_enabled():
            (gradient,) = torch.autograd.grad(ctx.recompute(points), points, create_graph=True)
        else:
            gradient = torch.from_numpy(ctx.gradient).to(points.device)
        return upstream[0] * gradient, None, None, None


def compile_kernels() -> None:
    """Compile the solver for losses of float32 embeddings, if numba's cache on disk does not have it: about half a minute."""
    generator = torch.Generator().manual_seed(0)
    FacilityLocationLoss()(torch.randn(32, 4, generator=generator), torch.arange(32) // 4)
