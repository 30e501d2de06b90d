"""Clustering at any size: medoids by facility location, average linkage, and the choice of a threshold."""

from facetric.clustering.agreement import Agreement
from facetric.clustering.calibration import Calibration, CalibrationStep, calibrate
from facetric.clustering.estimator import FacilityLocation
from facetric.clustering.linkage import AverageLinkage
from facetric.clustering.promise import Estimate, Promise

__all__ = [
    "Agreement",
    "AverageLinkage",
    "Calibration",
    "CalibrationStep",
    "Estimate",
    "FacilityLocation",
    "Promise",
    "calibrate",
]
