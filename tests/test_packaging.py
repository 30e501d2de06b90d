"""What is shipped: metadata that agree, commands that answer at once, and a wheel that works where it is installed."""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import typer

from facetric.cli.main import app

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HEAVY = ["matplotlib", "numba", "numpy", "openTSNE", "scipy", "sklearn", "timm", "torch", "torchvision"]


def run(*command, **options):
    """Standard output of a command that has to succeed."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_one_version_everywhere():
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)[1]
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1]
    assert PROJECT["version"] == cited == newest


def test_developers_get_the_photos_and_the_docs_too():
    extras = PROJECT["optional-dependencies"]
    assert {"dev", "docs", "photos", "reproduce", "tensorboard"} <= extras.keys()
    own = next(requirement for requirement in extras["dev"] if requirement.startswith("facetric["))
    assert {"docs", "photos", "reproduce"} <= set(own.removeprefix("facetric[").removesuffix("]").split(","))


def commands(command, words=()):
    yield [*words]
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*words, name))


def test_help_imports_nothing_heavy():
    script = f"""
import sys
from facetric.cli.main import app
for words in {list(commands(typer.main.get_command(app)))}:
    try:
        app([*words, "--help"])
    except SystemExit as stop:
        assert not stop.code, words
print("HEAVY", *sorted(set({HEAVY}) & set(sys.modules)))
"""
    assert run(sys.executable, "-c", script).splitlines()[-1] == "HEAVY"


def test_the_shell_learns_the_commands():
    bash = dict(os.environ, _FACETRIC_COMPLETE="complete_bash", COMP_WORDS="facetric tra", COMP_CWORD="1")
    facetric = Path(sysconfig.get_path("scripts")) / "facetric"
    assert run(facetric, env=bash).split() == ["train"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)  # the wheel is built from the sdist
    return next(folder.glob("*.tar.gz")), next(folder.glob("*.whl"))


@pytest.mark.slow
def test_the_archives_hold_what_they_should_and_no_more(built):
    sdist, wheel = built
    with tarfile.open(sdist) as archive:
        source = {name.partition("/")[2] for name in archive.getnames()}
    package = set(zipfile.ZipFile(wheel).namelist())
    code = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    assert code | {"facetric/py.typed", "facetric/report/template/page.html"} <= package
    assert {name.partition("/")[0] for name in package} == {"facetric", f"facetric-{PROJECT['version']}.dist-info"}
    assert {"mkdocs.yml", "docs/overview.svg", "configs/glyphs.toml", "tests/test_packaging.py", "LICENSE"} <= source
    junk = re.compile(r"__pycache__|\.(nbi|nbc|pyc|safetensors|log)$|^(runs|site|dist|\.venv)/")
    assert [name for name in source | package if junk.search(name)] == []


@pytest.mark.slow
def test_the_wheel_works_where_it_is_installed(built, tmp_path):
    home = tmp_path / "home"
    venv.create(home, with_pip=True)
    python, facetric = home / "bin" / "python", home / "bin" / "facetric"
    run(python, "-m", "pip", "install", "--no-deps", "--no-index", built[1])
    here = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (here / "dependencies.pth").write_text(sysconfig.get_path("purelib"))  # after its own: facetric comes from the wheel
    assert run(facetric, "--version", cwd=tmp_path) == f"facetric {PROJECT['version']}\n"
    script = """
import facetric, torch
from facetric import FacilityLocationLoss
print(facetric.__file__)
print(FacilityLocationLoss()(torch.randn(24, 4, generator=torch.Generator().manual_seed(0)), torch.arange(24) % 6).item() > 0)
"""
    where, positive = run(python, "-I", "-c", script, cwd=tmp_path).split()
    assert Path(where).is_relative_to(here)
    assert positive == "True"
