"""`pip install facetric` brings torch, numpy, numba, scikit-learn, tabulate: the loss, the scores and k-means work there."""

import re
import subprocess
import sys
import tomllib
import venv
from importlib.metadata import distribution
from pathlib import Path

import pytest

import facetric

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def run(*command, **options):
    """Standard output of a command that has to succeed."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def names(requirements):
    return {re.match(r"[\w.-]+", requirement)[0] for requirement in requirements}


def test_a_plain_install_brings_five_packages():
    assert names(PROJECT["dependencies"]) == {"torch", "numpy", "numba", "scikit-learn", "tabulate"}


def with_dependencies(names):
    """The installed distributions of these names and of all that they need, without their extras."""
    found, left = {}, list(names)
    while left:
        name = re.sub(r"[-_.]+", "-", left.pop()).lower()
        if name in found:
            continue
        found[name] = distribution(name)
        for requirement in found[name].requires or ():
            needed, _, marker = requirement.partition(";")
            if "extra" not in marker and applies(marker):
                left.append(re.match(r"[\w.-]+", needed)[0])
    return found


def applies(marker):
    from packaging.markers import Marker  # pytest needs it

    return not marker.strip() or Marker(marker).evaluate()


@pytest.fixture(scope="module")
def core_only(tmp_path_factory):
    """A Python that sees the core's dependencies and this source tree, by links, and nothing else."""
    home = tmp_path_factory.mktemp("core")
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    for found in with_dependencies(names(PROJECT["dependencies"])).values():
        for top in {file.parts[0] for file in found.files} - {"..", "__pycache__"}:
            source = Path(found.locate_file(top))
            if source.exists() and not (site / top).exists():
                (site / top).symlink_to(source)
    (site / "facetric").symlink_to(Path(facetric.__file__).parent)
    metadata = site / f"facetric-{PROJECT['version']}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: facetric\nVersion: {PROJECT['version']}\n")
    return python


def test_the_core_works_alone_and_names_the_extra_where_it_is_missing(core_only, tmp_path):
    assert run(core_only, "-I", ROOT / "tests" / "core_only.py", cwd=tmp_path) == "fine\n"


def test_the_environment_of_that_test_has_nothing_of_the_extra(core_only, tmp_path):
    modules = ["PIL", "filelock", "pydantic", "rich", "safetensors", "scipy", "timm", "tqdm", "typer"]
    script = f"from importlib.util import find_spec; print(*[name for name in {modules} if find_spec(name)])"
    assert set(run(core_only, "-I", "-c", script, cwd=tmp_path).split()) == {"filelock", "scipy"}  # torch's and scikit-learn's


@pytest.mark.slow
def test_pip_installs_the_core_and_nothing_of_the_extra(tmp_path):
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path, ROOT)
    home = tmp_path / "home"
    venv.create(home, with_pip=True)
    run(home / "bin" / "pip", "install", "--quiet", next(tmp_path.glob("*.whl")))
    installed = set(run(home / "bin" / "pip", "list", "--format=freeze").replace("==", " ").split()[::2])
    assert {"facetric", "torch", "numpy", "numba", "scikit-learn"} <= installed
    extra = names(PROJECT["optional-dependencies"]["photos"]) - names(PROJECT["dependencies"])  # both name torch
    assert not installed & (extra - {"filelock", "scipy"})
    script, command = ROOT / "tests" / "core_only.py", home / "bin" / "facetric"
    assert run(home / "bin" / "python", "-I", script, command, cwd=tmp_path) == "fine\n"
