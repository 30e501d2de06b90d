"""Loss-augmented inference: max over S of F(X, S) + γ·Δ(g(S), y*). NumPy and numba, never torch."""

from facetric.solver.oracle import oracle_medoids
from facetric.solver.problem import ClusteringProblem, Solution
from facetric.solver.solve import assign, solve

__all__ = ["ClusteringProblem", "Solution", "assign", "oracle_medoids", "solve"]
