"""The table of docs/backbones.md is that of `benchmarks/backbones.py --places`."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest
import torch

from facetric.embedder.split import working_places

ROOT = Path(__file__).parents[2]
ROWS = re.findall(
    r"^\| `(\w+)` \| (\d+) \| (\d+) \| (\w+) \| (.+?) \| [\d.]+ \| [\d.]+ \|$", (ROOT / "docs/backbones.md").read_text(), re.M
)


@pytest.fixture(scope="module")
def benchmark():
    sys.path.append(str(ROOT / "benchmarks"))  # where it finds the others
    spec = importlib.util.spec_from_file_location("backbones_benchmark", ROOT / "benchmarks" / "backbones.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_backbone_of_the_benchmark_has_its_row(benchmark) -> None:
    assert [row[0] for row in ROWS] == [name for name, _ in benchmark.TRIED]


@pytest.mark.parametrize(
    "name", ["mobilenetv3_small_100", "resnet18", "convnext_atto", "deit_tiny_patch16_224", "crossvit_tiny_240"]
)
def test_the_row_is_true(benchmark, name: str) -> None:
    size, n_features, weights, places = next(row[1:] for row in ROWS if row[0] == name)
    embedder, used = benchmark.built(name, None)
    probe = torch.randn(1, 3, int(size), int(size), generator=torch.Generator().manual_seed(0))
    assert (embedder.preprocessing.crop, embedder.n_features, used) == (int(size), int(n_features), weights)
    assert benchmark.shown(working_places(embedder.backbone, probe), embedder) == places
