"""The side of the input: any that the backbone can take, position embeddings resampled, kept in the file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file

from facetric.embedder import Network, WeightsError, build_network, save_network
from facetric.embedder.checkpoint import load_network
from facetric.images import Preprocessing
from facetric.runs.config_file import parse_config
from facetric.training import train

DINO = "vit_small_patch14_dinov2"
WITH_REGISTERS = "vit_small_patch14_reg4_dinov2"


def embeddings(embedder: Network) -> torch.Tensor:
    size = embedder.preprocessing.crop
    with torch.no_grad():
        return embedder.eval()(torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1)))


@pytest.mark.parametrize(
    ("name", "size"),
    [("test_resnet", 96), ("googlenet", 64), ("glyphnet", 48), (DINO, 98), ("test_vit", 64), ("test_convnext", 200)],
)
def test_the_crop_is_as_large_as_asked(name: str, size: int) -> None:
    embedder = build_network(name, weights="none", image_size=size, dim=4).eval()
    default = build_network(name, weights="none", dim=4) if name != DINO else None
    assert embedder.preprocessing.crop == size
    assert default is None or default.preprocessing == replace(
        embedder.preprocessing, size=default.preprocessing.size, crop=default.preprocessing.crop
    )
    assert embedder(torch.zeros(1, embedder.preprocessing.channels, size, size)).shape == (1, 4)


def dino_state(name: str = DINO, size: int = 518) -> dict[str, torch.Tensor]:
    """timm's tensors, with a position embedding that is linear in row and column."""
    torch.manual_seed(4)
    state = dict(timm.create_model(name, num_classes=0, img_size=size).state_dict())
    side = size // 14
    n_prefix = state["pos_embed"].shape[1] - side * side
    state["pos_embed"] = torch.cat([torch.full((1, n_prefix, 384), 7.0), linear_positions(side)], dim=1)
    return state


def linear_positions(side: int) -> torch.Tensor:
    """(1, side², 384): where the middle of each patch is, from 0 to 1, times a slope per dimension."""
    middle = (torch.arange(side) + 0.5) / side
    rows, columns = torch.meshgrid(middle, middle, indexing="ij")
    slopes = torch.linspace(-1, 1, 384)
    return (rows[..., None] * slopes + columns[..., None] * slopes.flip(0)).reshape(1, side * side, 384)


@pytest.mark.parametrize(("name", "n_prefix"), [(DINO, 1), (WITH_REGISTERS, 0)])
def test_the_position_embedding_of_another_size_is_resampled(name: str, n_prefix: int, tmp_path: Path) -> None:
    state = dino_state(name)
    save_file(state, tmp_path / "weights.safetensors")
    embedder = build_network(name, weights=tmp_path / "weights.safetensors", image_size=224)
    given = embedder.backbone.pos_embed
    assert given.shape == (1, 256 + n_prefix, 384)
    assert torch.equal(given[:, :n_prefix], state["pos_embed"][:, :n_prefix])
    inside = (slice(None), slice(2, -2), slice(2, -2))  # at its border an image has no neighbors to interpolate from
    grid, expected = (positions.reshape(1, 16, 16, 384) for positions in (given[:, n_prefix:], linear_positions(16)))
    assert torch.allclose(grid[inside], expected[inside], atol=2e-3)
    others = {key: tensor for key, tensor in embedder.backbone.state_dict().items() if key != "pos_embed"}
    assert all(torch.equal(tensor, state[key]) for key, tensor in others.items())


def test_weights_are_loaded_as_timm_loads_them(tmp_path: Path) -> None:
    save_file(dino_state(size=140), tmp_path / "weights.safetensors")
    ours = build_network(DINO, weights=tmp_path / "weights.safetensors", image_size=98)
    source = {"file": str(tmp_path / "weights.safetensors"), "num_classes": 0}
    theirs = timm.create_model(DINO, pretrained=True, pretrained_cfg_overlay=source, num_classes=0, img_size=98)
    for key, tensor in theirs.state_dict().items():
        assert torch.equal(ours.backbone.state_dict()[key], tensor), key


def test_weights_of_the_same_size_are_not_resampled(tmp_path: Path) -> None:
    state = dino_state(size=98)
    save_file(state, tmp_path / "weights.safetensors")
    loaded = build_network(DINO, weights=tmp_path / "weights.safetensors", image_size=98).backbone.state_dict()
    assert all(torch.equal(loaded[key], state[key]) for key in loaded)


def test_dinov2s_own_files_are_read(tmp_path: Path) -> None:
    """Its authors' names: a mask token, and with registers another name for these and a position for the class token."""
    plain = dino_state()
    torch.save({**plain, "mask_token": torch.zeros(1, 384)}, tmp_path / "plain.pth")
    loaded = build_network(DINO, weights=tmp_path / "plain.pth", image_size=98).backbone.state_dict()
    assert torch.equal(loaded["blocks.3.attn.qkv.weight"], plain["blocks.3.attn.qkv.weight"])
    state = dino_state(WITH_REGISTERS)
    state["mask_token"], state["register_tokens"] = torch.zeros(1, 384), state.pop("reg_token")
    state["pos_embed"] = torch.cat([torch.full((1, 1, 384), 5.0), state["pos_embed"]], dim=1)
    torch.save(state, tmp_path / "registers.pth")
    loaded = build_network(WITH_REGISTERS, weights=tmp_path / "registers.pth", image_size=98).backbone.state_dict()
    assert torch.equal(loaded["reg_token"], state["register_tokens"])
    assert torch.equal(loaded["cls_token"], state["cls_token"] + 5.0)
    assert loaded["pos_embed"].shape == (1, 49, 384)


def test_a_swin_of_another_size_keeps_its_names(tmp_path: Path) -> None:
    """timm's conversion takes a swin without a classifier for an old one and would move its downsampling layers."""
    name = "swin_tiny_patch4_window7_224"
    save_network(build_network(name, weights="none", image_size=96), tmp_path / "embedder.safetensors")
    saved = load_network(tmp_path / "embedder.safetensors").backbone.state_dict()
    loaded = build_network(name, weights=tmp_path / "embedder.safetensors", image_size=224).backbone.state_dict()
    tables = {key for key in loaded if loaded[key].shape != saved[key].shape}
    assert tables
    assert all(key.endswith("relative_position_bias_table") for key in tables)
    assert all(torch.equal(loaded[key], saved[key]) for key in loaded.keys() - tables)


def test_patches_of_another_size_are_refused(tmp_path: Path) -> None:
    network = timm.create_model("vit_small_patch32_224", num_classes=0)
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    with pytest.raises(
        WeightsError, match=r"'patch_embed.proj.weight' has shape \(384, 3, 32, 32\), the network needs .*16, 16\)"
    ):
        build_network("vit_small_patch16_224", weights=tmp_path / "weights.safetensors")


@pytest.mark.parametrize(("name", "size"), [(DINO, 98), ("test_vit", 64), ("test_resnet", 96)])
def test_a_saved_embedder_keeps_its_size(name: str, size: int, tmp_path: Path) -> None:
    embedder = build_network(name, weights="none", image_size=size, dim=5)
    save_network(embedder, tmp_path / "embedder.safetensors")
    loaded = load_network(tmp_path / "embedder.safetensors")
    assert loaded.preprocessing == embedder.preprocessing
    assert torch.equal(embeddings(loaded), embeddings(embedder))


def test_training_refuses_a_crop_larger_than_data_size_before_it_reads_an_image(tmp_path: Path) -> None:
    for name in "abcdef":
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(3):
            (tmp_path / "photos" / name / f"{number}.jpg").write_bytes(b"no picture")  # reading it would fail
    data = {"name": "folder", "root": str(tmp_path / "photos")}
    model = {"backbone": "test_resnet", "weights": "none", "image_size": 288}
    run = {"folder": str(tmp_path / "runs"), "validate_every": 0}
    config = parse_config({"run": run, "data": data, "model": model, "batches": {"size": 4}})
    with pytest.raises(ValueError, match=r"images of 256 pixels are smaller than the backbone's crop \(288\): .*data.size=330"):
        train(config)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("name", "size", "reason"),
    [
        (DINO, 100, r"not a multiple of its patch size 14 \(98 or 112 would be\)"),
        (DINO, 7, r"not a multiple of its patch size 14 \(14 would be\)"),
        ("vit_tiny_patch16_224", 250, r"not a multiple of its patch size 16 \(240 or 256 would be\)"),
        ("resnet18", 16, "below its stride 32"),
        ("googlenet", 31, "below its stride 32"),
        ("glyphnet", 4, "below its stride 8"),
        ("maxvit_nano_rw_256", 200, "must be divisible by window"),
        ("swin_tiny_patch4_window7_224", 12, ".+"),
    ],
)
def test_an_impossible_size_is_refused_in_one_line(name: str, size: int, reason: str) -> None:
    with pytest.raises(
        ValueError, match=rf"^{name} cannot take images of {size} pixels, .*{reason}.*: choose .* \(--set model.image_size=…\)$"
    ) as caught:
        build_network(name, weights="none", image_size=size)
    assert "\n" not in str(caught.value)


def test_a_crop_larger_than_the_images_is_refused_with_both_ways_out() -> None:
    with pytest.raises(
        ValueError, match=r"images of 256 pixels .* crop \(518\): .*--set data.size=592\) or .*model.image_size=224"
    ):
        Preprocessing(size=256, crop=518)
    with pytest.raises(ValueError, match=r"images of 38 pixels .*--set data.pad=…\) or .*--set model.image_size=36"):
        Preprocessing(size=36, pad=1, crop=48, channels=1, mean=(0.5,), std=(0.5,))
