"""The import rule: who may import whom (see ARCHITECTURE.md)."""

import ast
from pathlib import Path

import pytest

import facetric

ALLOWED = {
    "metrics": set(),
    "images": set(),
    "clustering": {"metrics"},
    "losses": {"metrics"},
    "evaluation": {"metrics", "clustering"},
    "embedder": {"images", "metrics", "clustering"},
    "photos": {"images", "embedder", "clustering", "metrics"},
    "runs": {"losses", "images", "embedder", "clustering", "evaluation", "metrics"},
    "training": {"losses", "images", "embedder", "evaluation", "runs", "metrics"},
    "report": {"metrics", "images", "evaluation", "runs", "embedder"},
    "service": {"photos", "embedder", "images", "runs"},
}
PACKAGE = Path(facetric.__file__).parent
EXTERNAL_BANS = {layer: {"torch", "torchvision", "timm"} for layer in ("metrics", "clustering")}


def imported_names(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def violations(layer, source):
    for name in imported_names(source):
        parts = name.split(".")
        if parts[0] == "facetric" and len(parts) > 1 and parts[1] in {*ALLOWED, "cli"} - ALLOWED[layer] - {layer}:
            yield name
        if parts[0] in EXTERNAL_BANS.get(layer, set()):
            yield name


@pytest.mark.parametrize("layer", [name for name in ALLOWED if (PACKAGE / name).is_dir()])
def test_layer_imports_only_what_it_may(layer):
    files = sorted((PACKAGE / layer).rglob("*.py"))
    assert files
    found = {str(file.relative_to(PACKAGE)): list(violations(layer, file.read_text())) for file in files}
    assert not {file: names for file, names in found.items() if names}


def test_every_package_is_a_known_layer():
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert folders <= {*ALLOWED, "cli"}


def test_the_rule_can_fail():
    assert list(violations("clustering", "from facetric.losses import LOSSES\nimport torch")) == [
        "facetric.losses.LOSSES",
        "torch",
    ]
    assert list(violations("losses", "import facetric.metrics")) == []


def test_every_room_is_on_the_map():
    drawn = (PACKAGE.parent.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert not [room for room in ALLOWED if f"`{room}`" not in drawn]
