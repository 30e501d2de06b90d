"""The table of networks: every row is what timm builds and what timm's record of the weights says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import timm
import torch

import facetric
from facetric.embedder.networks import DEFAULT, NETWORKS, is_network_name, named_network, unknown_network

POOLINGS = {"average": "avg", "class token": "token", "attention": "map"}


@pytest.mark.parametrize("row", NETWORKS.values(), ids=NETWORKS)
def test_a_row_is_what_timm_builds(row) -> None:
    settings = timm.get_pretrained_cfg(row.timm)
    with torch.device("meta"):
        network = timm.create_model(row.timm, num_classes=row.dim if row.is_projected else 0)
    pooling = getattr(network.global_pool, "pool_type", network.global_pool)
    assert (row.dim, row.repository, row.license) == (
        network.num_classes or network.num_features,
        settings.hf_hub_id,
        settings.license,
    )
    assert row.megabytes == pytest.approx(sum(4e-6 * values.numel() for values in network.parameters()), abs=0.06)
    assert not row.is_projected or settings.num_classes == row.dim
    assert row.differs == (POOLINGS[row.pooling] != pooling)
    assert row.image_size == settings.input_size[1] or "dinov2" in row.name  # evaluated at 224 by its authors
    assert network.get_submodule(row.freeze_through)


def test_names_are_unique_and_found_by_timms_too() -> None:
    assert DEFAULT in NETWORKS
    assert all(name == row.name for name, row in NETWORKS.items())
    assert named_network("resnet18") is None
    for row in NETWORKS.values():
        assert named_network(row.name) is named_network(row.timm) is named_network(row.recorded) is row


def test_a_pinned_revision_or_checksum_is_a_whole_one() -> None:
    for row in NETWORKS.values():
        assert row.revision is None or re.fullmatch("[0-9a-f]{40}", row.revision)
        assert row.sha256 is None or re.fullmatch("[0-9a-f]{64}", row.sha256)


@pytest.mark.parametrize("name", ["lite1", "timm:resnet18", "hf-hub:owner/name"])
def test_a_name_is_a_network_and_a_path_is_not(name: str) -> None:
    assert is_network_name(name)
    assert not any(map(is_network_name, (f"./{name}", Path(name), None, "runs/photos", "lite1.onnx")))


@pytest.mark.parametrize(
    ("name", "way_out"), [("dinov2-smal", "did you mean dinov2-small?"), ("xyzzy", "`facetric models` lists the networks")]
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, way_out: str) -> None:
    line = f"there is no network and no run folder {name}: {way_out} "
    assert str(unknown_network(name)).startswith(line)
    with pytest.raises(ValueError, match=f"^{re.escape(line)}"):
        facetric.load(name)
