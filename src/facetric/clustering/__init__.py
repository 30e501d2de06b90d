"""Which points belong together: medoids by facility location, average linkage, k-means, and the choice of a threshold."""

from facetric.clustering.calibration import Calibration, calibrate
from facetric.clustering.expected import Estimate, ExpectedPrecision
from facetric.clustering.facility_clustering import FacilityLocation
from facetric.clustering.kmeans import KMeans, kmeans
from facetric.clustering.linkage import AverageLinkage

__all__ = ["AverageLinkage", "Calibration", "Estimate", "ExpectedPrecision", "FacilityLocation", "KMeans", "calibrate", "kmeans"]
