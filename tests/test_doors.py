"""The doors: a room is entered by what its __init__ lists, and only from above (see ARCHITECTURE.md)."""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import facetric

ALLOWED = {
    "metrics": set(),
    "images": set(),
    "clustering": {"metrics"},
    "losses": {"metrics"},
    "evaluation": {"metrics", "clustering"},
    "embedder": {"metrics", "images", "clustering"},
    "photos": {"metrics", "images", "embedder", "clustering"},
    "runs": {"metrics", "losses", "images", "embedder", "clustering", "evaluation"},
    "training": {"metrics", "losses", "images", "embedder", "evaluation", "runs"},
    "report": {"metrics", "evaluation", "images", "runs"},
    "service": {"metrics", "photos", "embedder", "images"},
}
PACKAGE = Path(facetric.__file__).parent
INNER = {"metrics.kernels", "losses.solver", "training.study"}  # doors of their own
NO_TORCH = ("metrics", "clustering", "evaluation", "images")
FILES = sorted(PACKAGE.rglob("*.py"))


def imported(source):
    """Modules of ours that a source names, and the names taken from them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from ((node.module, alias.name) for alias in node.names)


def offered(module):
    found = __import__(module, fromlist=["__all__"])
    return set(found.__all__)


def violations(room, source):
    for module, name in imported(source):
        parts = module.split(".")
        if parts[0] != "facetric" or len(parts) == 1 or parts[1] not in {*ALLOWED, "cli"} or parts[1] == room:
            continue
        if room != "cli" and parts[1] not in ALLOWED[room]:
            yield f"upwards: {module}"
        elif len(parts) > 2 and ".".join(parts[1:]) not in INNER:
            yield f"past a door: {module}"
        elif name and name not in offered(module):
            yield f"not offered: {module}.{name}"


@pytest.mark.parametrize("room", [*ALLOWED, "cli"])
def test_a_room_is_entered_by_its_door_and_from_above(room):
    files = [file for file in FILES if file.relative_to(PACKAGE).parts[0] == room]
    assert files
    found = {str(file.relative_to(PACKAGE)): list(violations(room, file.read_text(encoding="utf-8"))) for file in files}
    assert not {file: names for file, names in found.items() if names}


def test_the_rule_can_fail():
    assert list(violations("clustering", "from facetric.losses import LOSSES")) == ["upwards: facetric.losses"]
    assert list(violations("losses", "from facetric.metrics.agreement import nmi")) == ["past a door: facetric.metrics.agreement"]
    assert list(violations("losses", "from facetric.metrics import contingency_kernel")) == [
        "not offered: facetric.metrics.contingency_kernel"
    ]
    assert not list(violations("losses", "import facetric.metrics\nfrom facetric.metrics import nmi"))


def test_every_folder_is_a_room_of_the_map():
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == {*ALLOWED, "cli"}
    drawn = (PACKAGE.parent.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert not [room for room in ALLOWED if f"`{room}`" not in drawn]


def test_file_names_are_unique():
    names = Counter(file.name for file in FILES if file.name[0] != "_" and file.parent.name != "cli")
    assert not [name for name, count in names.items() if count > 1]


def test_the_package_shows_what_is_meant():
    shown = {name for name in dir(facetric) if not name.startswith("_")}
    assert shown == {*facetric.__all__, *ALLOWED, "cli"} - {"__version__"}


def test_the_rooms_of_pure_arrays_do_not_load_torch():
    program = f"import sys, {', '.join(f'facetric.{room}' for room in NO_TORCH)}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
