"""Which points belong together: learned links, medoids by facility location, average linkage and k-means."""

from facetric.clustering.facility_clustering import FacilityLocation, facility_clusters
from facetric.clustering.kmeans import KMeans, kmeans
from facetric.clustering.linkage import AverageLinkage
from facetric.clustering.pair_linkage import Estimate, ExpectedPrecision, PairLinkage
from facetric.clustering.pair_model import PairModel, calibrate
from facetric.clustering.pile import Pile

__all__ = [
    "AverageLinkage",
    "Estimate",
    "ExpectedPrecision",
    "FacilityLocation",
    "KMeans",
    "PairLinkage",
    "PairModel",
    "Pile",
    "calibrate",
    "facility_clusters",
    "kmeans",
]
