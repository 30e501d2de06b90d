"""Logistic regression that starts from what is known: coefficients in plain numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit  # type: ignore[import-untyped]

_CLIP = 4.0  # spreads around the mean: farther out a feature says no more


class Examples(NamedTuple):
    """What a model learns from."""

    features: NDArray[np.floating]  # (n, n_features)
    targets: NDArray[np.float64]  # (n,) in [0, 1]
    importance: NDArray[np.float64]  # (n,)

    @classmethod
    def joined(cls, parts: Sequence[Examples], weight: float) -> Examples:
        """All of them, weighing this much together."""
        features, targets, importance = (np.concatenate(part) for part in zip(*parts, strict=True))
        return cls(features, targets, importance * (weight / importance.sum()))


@dataclass(frozen=True, eq=False)
class Linear:
    """log-odds = weights · clip((features − mean) / spread, ±4) + constant"""

    mean: NDArray[np.float64]
    spread: NDArray[np.float64]
    weights: NDArray[np.float64]  # the constant is the last

    @classmethod
    def blank(cls, features: NDArray[np.floating]) -> Linear:
        """At the scale of these features, with weights of zero."""
        mean, spread = features.mean(axis=0, dtype=np.float64), features.std(axis=0, dtype=np.float64)
        return cls(mean, spread + 1e-6, np.zeros(features.shape[1] + 1))

    def log_odds(self, features: NDArray[np.floating]) -> NDArray[np.float64]:
        """(n,)"""
        found: NDArray[np.float64] = self._standardized(features) @ self.weights[:-1] + self.weights[-1]
        return found

    def fitted(self, examples: Examples, strength: float) -> Linear:
        """argmin of Σ importance · log-loss + strength / 2 · ‖weights − own weights‖², by Newton; the constant is freer."""
        features, targets, importance = examples
        z = np.column_stack([self._standardized(features), np.ones(len(features))])
        penalty = np.append(np.full(z.shape[1] - 1, strength), strength / 10)

        def loss(weights: NDArray[np.float64]) -> float:
            scores, change = z @ weights, weights - self.weights
            return float(importance @ (np.logaddexp(0, scores) - targets * scores) + penalty @ change**2 / 2)

        weights, before = self.weights, loss(self.weights)
        for _ in range(50):
            p = expit(z @ weights)
            gradient = z.T @ (importance * (p - targets)) + penalty * (weights - self.weights)
            hessian = (z * (importance * p * (1 - p))[:, None]).T @ z + np.diag(penalty)
            step = np.linalg.solve(hessian, gradient)
            while np.abs(step).max() > 1e-6 and (after := loss(weights - step)) > before:
                step /= 2
            if np.abs(step).max() <= 1e-6:
                break
            weights, before = weights - step, after
        return replace(self, weights=weights)

    def as_dict(self, names: Sequence[str]) -> dict[str, Any]:
        """Plain values: name, mean, spread and weight of every feature, and the constant."""
        columns = zip(names, self.mean.tolist(), self.spread.tolist(), self.weights.tolist(), strict=False)
        features = {name: {"mean": mean, "spread": spread, "weight": weight} for name, mean, spread, weight in columns}
        return {"features": features, "constant": float(self.weights[-1])}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], names: Sequence[str]) -> Linear:
        """What :meth:`as_dict` gave; a ValueError, KeyError or TypeError where it is damaged."""
        if sorted(record["features"]) != sorted(names):
            raise ValueError(f"its features are {', '.join(record['features'])}; this version knows {', '.join(names)}")
        terms = [record["features"][name] for name in names]
        mean, spread, weights = (
            np.array([term[key] for term in terms], dtype=np.float64) for key in ("mean", "spread", "weight")
        )
        found = cls(mean, spread, np.append(weights, np.float64(record["constant"])))
        if not (np.isfinite([*mean, *spread, *found.weights]).all() and (spread > 0).all()):
            raise ValueError("its numbers are not finite, or a spread is not above 0")
        return found

    def _standardized(self, features: NDArray[np.floating]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = np.clip((features - self.mean) / self.spread, -_CLIP, _CLIP)
        return found
