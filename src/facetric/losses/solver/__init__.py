"""Loss-augmented inference: max over S of F(X, S) + γ·Δ(g(S), y*). NumPy and numba, never torch."""

from facetric.losses.solver.exchange import sweeps
from facetric.losses.solver.problem import ClusteringProblem, Solution
from facetric.losses.solver.solve import assign, oracle_medoids, solve

__all__ = ["ClusteringProblem", "Solution", "assign", "oracle_medoids", "solve", "sweeps"]
