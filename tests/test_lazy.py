"""`import facetric` is light, and everything public can be found and completed from there."""

import subprocess
import sys
from pathlib import Path

import pytest

import facetric


def in_a_new_process(script):
    """What it prints; this process has imported everything already."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_bare_import_shows_everything_and_loads_nothing():
    script = "import sys, facetric; print(*dir(facetric)); print({'torch', 'numpy', 'numba', 'pydantic'} & set(sys.modules))"
    names, loaded = in_a_new_process(script)
    packages = {path.parent.name for path in Path(facetric.__file__).parent.glob("*/*.py")}
    assert {*facetric.__all__, *packages} <= set(names.split())
    assert {"GlobalBatch", "SubsampledLoss", "metrics", "losses", "runs"} <= set(names.split())
    assert loaded == "set()"


def test_subpackages_and_names_are_loaded_on_first_use():
    script = """
import sys, facetric
print(facetric.metrics.nmi([0, 0, 1], [1, 1, 0]), "torch" in sys.modules)
print(facetric.losses.FacilityLocationLoss is facetric.FacilityLocationLoss, "torch" in sys.modules)
print(*(getattr(facetric, name).__name__ for name in dir(facetric) if name in facetric._PACKAGES))
"""
    assert in_a_new_process(script) == [
        "1.0 False",
        "True True",
        "facetric.cli facetric.clustering facetric.config facetric.data facetric.evaluation facetric.export "
        "facetric.figures facetric.groups facetric.index facetric.inference facetric.losses facetric.metrics facetric.models "
        "facetric.photos facetric.runs facetric.service facetric.solver facetric.studies facetric.training",
    ]


def test_other_packages_with_lazy_names_show_them_without_loading_them():
    packages = ["data", "evaluation", "export", "figures", "groups", "index", "inference", "photos", "service"]
    script = f"""
import sys, importlib
for name in {packages}:
    print(*dir(importlib.import_module("facetric." + name)))
    print(name, "torch" in sys.modules)
"""
    lines = in_a_new_process(script)
    for package, names, loaded in zip(packages, lines[::2], lines[1::2], strict=True):
        assert set(getattr(facetric, package).__all__) <= set(names.split())
        assert loaded == f"{package} False"


def test_a_name_that_is_not_there_is_an_attribute_error_with_those_that_are():
    with pytest.raises(AttributeError, match="no attribute 'FacilityLoss'; it has LOSSES, "):
        facetric.FacilityLoss  # noqa: B018
    assert not hasattr(facetric, "__wrapped__")
