"""Clustering by facility location: medoids for a given number of clusters or a given opening cost, at any size."""

from facetric.clustering.calibration import Agreement, Calibration, calibrate
from facetric.clustering.estimator import FacilityLocation, PathStep

__all__ = ["Agreement", "Calibration", "FacilityLocation", "PathStep", "calibrate"]
