from facetric import cli, clustering, embedder, evaluation, images, losses, metrics, photos, report, runs, service, training
from facetric.clustering import AverageLinkage, FacilityLocation, PairLinkage, PairModel, calibrate
from facetric.embedder import Embedder, Embedding, build_network, load
from facetric.evaluation import evaluate
from facetric.losses import LOSSES, ClassBalancedBatches, FacilityLocationLoss, GlobalBatch, SubsampledLoss
from facetric.losses.solver import ClusteringProblem, Solution, solve
from facetric.photos import open_collection
from facetric.runs import compare_runs, open_run, read_config
from facetric.training import resume, train

__all__ = [
    "LOSSES",
    "AverageLinkage",
    "ClassBalancedBatches",
    "ClusteringProblem",
    "Embedder",
    "Embedding",
    "FacilityLocation",
    "FacilityLocationLoss",
    "GlobalBatch",
    "PairLinkage",
    "PairModel",
    "Solution",
    "SubsampledLoss",
    "__version__",
    "build_network",
    "calibrate",
    "cli",
    "clustering",
    "compare_runs",
    "embedder",
    "evaluate",
    "evaluation",
    "images",
    "load",
    "losses",
    "metrics",
    "open_collection",
    "open_run",
    "photos",
    "read_config",
    "report",
    "resume",
    "runs",
    "service",
    "solve",
    "train",
    "training",
]

__version__: str
