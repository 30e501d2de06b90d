"""Clustering at any size: medoids by facility location, average linkage, and the choice of a threshold."""

from facetric.clustering.agreement import Agreement
from facetric.clustering.calibration import Calibration, CalibrationStep, calibrate
from facetric.clustering.estimator import FacilityLocation, PathStep
from facetric.clustering.linkage import AverageLinkage

__all__ = ["Agreement", "AverageLinkage", "Calibration", "CalibrationStep", "FacilityLocation", "PathStep", "calibrate"]
