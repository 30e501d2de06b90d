"""Clustering by facility location: medoids for a given number of clusters or a given opening cost, at any size."""

from facetric.clustering.estimator import FacilityLocation, PathStep

__all__ = ["FacilityLocation", "PathStep"]
