"""`import facetric` is light, and everything public can be found and completed from there."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import facetric

ROOMS = sorted(path.parent.name for path in Path(facetric.__file__).parent.glob("*/__init__.py"))


def in_a_new_process(script, **options):
    """What it prints; this process has imported everything already."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_bare_import_shows_everything_and_loads_nothing():
    script = "import sys, facetric; print(*dir(facetric)); print({'torch', 'numpy', 'numba', 'pydantic'} & set(sys.modules))"
    names, loaded = in_a_new_process(script)
    assert set(names.split()) == {*facetric.__all__, *ROOMS}
    assert {"GlobalBatch", "SubsampledLoss", "load", "solve", "train"} <= set(facetric.__all__)
    assert loaded == "set()"


# One process for the tests below: to import everything takes it seconds.
NEW = """
import os, sys, facetric

def ours():
    return {name: value for name, value in os.environ.items() if name.startswith(("OMP_", "NUMBA_"))}

print(facetric.metrics.nmi([0, 0, 1], [1, 1, 0]), "torch" in sys.modules)
print(facetric.losses.FacilityLocationLoss is facetric.FacilityLocationLoss, "torch" in sys.modules)
print(*(getattr(facetric, name).__name__ for name in dir(facetric) if name in ROOMS))
print(ours(), flush=True)

os.environ["NUMBA_NUM_THREADS"] = "2"
import numba, numpy as np, torch
from facetric.metrics.retrieval import retrieval_by_class
from facetric.training.session import torch_settings

numba.config.reload_config()
torch.set_num_threads(3)
if os.fork() == 0:  # numba's threads start once in a process
    with torch_settings(threads=1):
        numba.get_num_threads()  # as a kernel of somebody else does
        during = torch.get_num_threads()
    print("in a run", during, numba.get_num_threads(), torch.get_num_threads(), flush=True)
else:
    assert os.wait()[1] == 0
    retrieval_by_class(np.eye(4, dtype=np.float32), [0, 0, 1, 1], metric="cosine")
    print("by a score", numba.get_num_threads(), torch.get_num_threads())
"""


@pytest.fixture(scope="module")
def said():
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "NUMBA_"))}
    return in_a_new_process(f"ROOMS = {ROOMS}\n{NEW}", env=clean)


def test_subpackages_and_names_are_loaded_on_first_use(said):
    assert said[:3] == [
        "1.0 False",
        "True True",
        "facetric.cli facetric.clustering facetric.embedder facetric.evaluation facetric.images facetric.losses facetric.metrics "
        "facetric.photos facetric.report facetric.runs facetric.service facetric.training",
    ]


def test_importing_the_library_changes_nothing(said):
    assert said[3] == "{}"


def test_the_start_of_numbas_threads_leaves_torchs_number_as_it_is(said):
    assert said[4:] == ["in a run 1 2 3", "by a score 2 3"]


def test_type_checkers_are_told_the_same_names():
    stub = ast.parse(Path(facetric.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    (listed,) = (node.value for node in stub.body if isinstance(node, ast.Assign))
    assert sorted(ast.literal_eval(listed)) == sorted([*facetric.__all__, *ROOMS])


def test_a_name_that_is_not_there_is_an_attribute_error_with_those_that_are():
    with pytest.raises(AttributeError, match="no attribute 'FacilityLoss'; it has AverageLinkage, "):
        facetric.FacilityLoss  # noqa: B018
    assert not hasattr(facetric, "__wrapped__")
