"""Run by test_core_install.py in an environment without the extra: what must work there does, the rest says what to install."""

import subprocess
import sys

import numpy as np
import torch

import facetric

LINE = "pip install 'facetric[photos]'"
NEED_PHOTOS = ["cli", "embedder", "images", "photos", "report", "runs", "service", "training", "load", "train", "open_collection"]
LABELS = np.arange(40) % 8
VECTORS = np.random.default_rng(0).normal(size=(8, 5))[LABELS] + 0.05 * np.random.default_rng(1).normal(size=(40, 5))


def every_loss_has_a_gradient():
    from facetric.losses import LOSSES

    for name, loss in LOSSES.items():
        embeddings = torch.tensor(VECTORS, dtype=torch.float32, requires_grad=True)
        loss()(embeddings, torch.from_numpy(LABELS)).backward()
        assert torch.isfinite(embeddings.grad).all(), name


def the_solver_finds_clear_clusters():
    from facetric import ClusteringProblem, solve
    from facetric.metrics import nmi

    distances = np.linalg.norm(VECTORS[:, None] - VECTORS, axis=2)
    assert nmi(LABELS, solve(ClusteringProblem(distances, LABELS, margin_weight=0.0)).assignment) > 0.999


def arrays_are_scored_and_clustered():
    from facetric.clustering import kmeans
    from facetric.evaluation import EvaluationReport, evaluate
    from facetric.metrics import recall_at_k

    report = evaluate(VECTORS, LABELS, n_restarts=2, facility=True)
    assert report.recall_at_k[1] == recall_at_k(VECTORS, LABELS, ks=(1,))[1] == 1.0
    assert report.facility_location.scores.nmi > 0.999
    assert "NMI" in str(report)
    assert EvaluationReport.from_json(report.to_json()) == report
    assert set(kmeans(VECTORS.astype(np.float32), 8, seed=0).labels) == set(range(8))


def the_clustering_engine_finds_clear_clusters():
    from facetric.clustering import FacilityLocation
    from facetric.metrics import nmi

    assert nmi(LABELS, FacilityLocation(n_clusters=8).fit_predict(VECTORS)) > 0.999


def rooms_and_names_that_need_the_extra_say_so():
    for name in NEED_PHOTOS:
        message = "no error"
        try:
            getattr(facetric, name)
        except ImportError as error:
            message = str(error)
        assert is_the_line(message), message


def the_command_says_so_too(*scripts):
    for command in ([sys.executable, "-I", "-m", "facetric"], *([script] for script in scripts)):
        done = subprocess.run([*command, "--help"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, ""), done
        assert done.stderr.startswith("facetric: ")
        assert is_the_line(done.stderr.removesuffix("\n")), done


def is_the_line(text):
    return text.endswith(LINE) and len(text.splitlines()) == 1


if __name__ == "__main__":
    every_loss_has_a_gradient()
    the_solver_finds_clear_clusters()
    arrays_are_scored_and_clustered()
    the_clustering_engine_finds_clear_clusters()
    rooms_and_names_that_need_the_extra_say_so()
    the_command_says_so_too(*sys.argv[1:])
    print("fine")
