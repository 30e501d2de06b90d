"""Vision transformers frozen up to a block: two parts that are the whole, with position embedding and tokens in the first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from facetric.embedder import Network, build_network
from facetric.embedder.activations import cached_activations
from facetric.embedder.checkpoint import load_network
from facetric.images import Arrays
from facetric.runs import open_run
from facetric.runs.config_file import parse_config
from facetric.training import train

TOKENS = ("pos_embed", "cls_token", "reg_token", "dist_token")


def transformer(name: str, through: str | None, size: int) -> Network:
    """With random weights that matter everywhere: fresh ones have tokens near 0 and blocks that hardly change their input."""
    embedder = build_network(name, weights="none", normalize=False, freeze_through=through, image_size=size, dim=8).eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for key, parameter in embedder.backbone.named_parameters():
            if key.endswith((*TOKENS, "gamma")):
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return embedder


def images_for(embedder: Network, n: int = 3) -> torch.Tensor:
    size = embedder.preprocessing.crop
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(1))


def uncut(embedder: Network, images: torch.Tensor) -> torch.Tensor:
    """The embeddings, from the backbone's own methods."""
    return embedder.head(embedder.backbone.forward_head(embedder.backbone.forward_features(images), pre_logits=True))


@pytest.mark.parametrize(
    ("name", "through", "size", "shape"),
    [
        ("vit_tiny_patch16_224", "blocks.5", 64, (16 + 1, 192)),
        ("vit_tiny_patch16_224", "patch_embed", 64, (16, 192)),
        pytest.param("deit_tiny_patch16_224", "blocks.0", 64, (16 + 1, 192), marks=pytest.mark.slow),  # as vit_tiny
        ("deit_tiny_distilled_patch16_224", "blocks.3", 64, (16 + 2, 192)),
        pytest.param("vit_small_patch14_dinov2", "blocks.5", 98, (49 + 1, 384), marks=pytest.mark.slow),  # as with registers
        ("vit_small_patch14_reg4_dinov2", "blocks.9", 98, (49 + 1 + 4, 384)),
        ("vit_small_patch16_dinov3", "blocks.5", 64, (16 + 1 + 4, 384)),  # rotary positions
        ("eva02_tiny_patch14_224", "blocks.5", 56, (16 + 1, 192)),  # rotary positions
        ("swin_tiny_patch4_window7_224", "layers.1", 64, (8, 8, 192)),
        ("test_vit", "blocks.2", 96, (36 + 1, 64)),
    ],
)
def test_both_parts_of_a_transformer_in_a_row_are_the_whole(name: str, through: str, size: int, shape: tuple[int, ...]) -> None:
    embedder = transformer(name, through, size)
    images = images_for(embedder)
    activations = embedder.trunk(images)
    assert activations.shape == (3, *shape)
    assert not activations.requires_grad
    with torch.no_grad():
        expected = uncut(embedder, images)
    assert torch.allclose(embedder.from_activations(activations), expected, rtol=1e-4, atol=1e-5)
    assert torch.allclose(embedder(images), expected, rtol=1e-4, atol=1e-5)
    assert torch.allclose(embedder.head(embedder.features(images)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "size"), [("vit_small_patch14_reg4_dinov2", 98), ("eva02_tiny_patch14_224", 56)])
def test_gradients_are_those_of_the_whole_network_and_reach_only_what_follows_the_cut(name: str, size: int) -> None:
    frozen, free = (transformer(name, through, size) for through in ("blocks.8", None))
    free.load_state_dict(frozen.state_dict())
    images = images_for(frozen)
    frozen.from_activations(frozen.trunk(images)).square().sum().backward()
    uncut(free, images).square().sum().backward()
    behind = ("backbone.blocks.9.", "backbone.blocks.10.", "backbone.blocks.11.", "backbone.norm.", "backbone.fc_norm.", "head.")
    expected = {key: parameter.grad for key, parameter in free.named_parameters() if key.startswith(behind)}
    given = {key: parameter.grad for key, parameter in frozen.named_parameters() if parameter.grad is not None}
    assert given.keys() == expected.keys()
    for key, gradient in expected.items():
        assert torch.allclose(given[key], gradient, rtol=1e-3, atol=1e-4 * float(gradient.abs().max())), key
    assert {key for key, parameter in frozen.named_parameters() if parameter.requires_grad} == expected.keys()


def test_position_embedding_and_tokens_belong_to_the_frozen_part() -> None:
    embedder = transformer("vit_small_patch14_reg4_dinov2", "blocks.1", 98)
    state = embedder.backbone.state_dict()
    first = ("patch_embed.", "blocks.0.", "blocks.1.")
    tokens = {"pos_embed", "cls_token", "reg_token"}
    assert set(embedder.trunk_state()) == tokens | {key for key in state if key.startswith(first)}
    images = images_for(embedder)
    for key in sorted(tokens):
        before = embedder.trunk(images)
        with torch.no_grad():
            embedder.backbone.get_parameter(key).add_(1)
        assert not torch.allclose(embedder.trunk(images), before), key


def test_a_cut_before_the_position_embedding_leaves_it_to_be_trained() -> None:
    embedder = transformer("vit_tiny_patch16_224", "patch_embed", 64)
    embedder(images_for(embedder)).square().sum().backward()
    assert embedder.backbone.pos_embed.grad is not None
    assert not embedder.backbone.patch_embed.proj.weight.requires_grad


def test_a_parameter_that_both_parts_use_is_frozen() -> None:
    embedder = transformer("vit_srelpos_small_patch16_224", "blocks.1", 64)  # one table of relative positions for all blocks
    shared = [key for key in embedder.backbone.state_dict() if key.startswith("shared_rel_pos.mlp")]
    assert shared
    assert not any(embedder.backbone.get_parameter(key).requires_grad for key in shared)
    assert set(shared) <= embedder.trunk_state().keys()


def test_the_frozen_blocks_stay_in_eval_mode() -> None:
    embedder = transformer("vit_tiny_patch16_224", "blocks.5", 64)
    assert embedder.train() is embedder
    blocks = embedder.backbone.blocks
    assert not any(module.training for block in blocks[:6] for module in block.modules())
    assert all(module.training for block in blocks[6:] for module in block.modules())
    assert not embedder.backbone.patch_embed.training
    blocks[2].attn.attn_drop.p = blocks[2].mlp.drop1.p = 0.5
    images = images_for(embedder)
    assert torch.equal(embedder.trunk(images), embedder.trunk(images))


def test_a_place_inside_a_transformer_block_is_refused_with_the_blocks() -> None:
    with pytest.raises(
        ValueError, match=r"cannot be frozen through 'blocks.2.norm1'.*blocks.1, blocks.2, .*--set model.freeze_thr"
    ):
        build_network("test_vit", weights="none", freeze_through="blocks.2.norm1")


def test_cached_tokens_are_those_of_the_live_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FACETRIC_CACHE", str(tmp_path))
    embedder = transformer("vit_small_patch14_reg4_dinov2", "blocks.5", 56)
    pictures = np.random.default_rng(0).integers(0, 256, (5, 64, 64, 3), dtype=np.uint8)
    cache = cached_activations(embedder, Arrays(pictures), n_views=2, center=True)
    assert cache.values.shape == (5, 3, 16 + 5, 384)
    assert cache.values.dtype == np.float16
    crops = torch.from_numpy(embedder.crop(pictures))
    kept = torch.from_numpy(cache.inputs(np.arange(5)))
    assert torch.allclose(kept, embedder.trunk(crops), rtol=2**-10, atol=1e-3)
    with torch.no_grad():
        expected = uncut(embedder, crops)
    assert torch.allclose(embedder.from_activations(kept), expected, atol=0.01 * float(expected.abs().max()))


def test_another_position_embedding_gives_another_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FACETRIC_CACHE", str(tmp_path))
    embedder = transformer("vit_tiny_patch16_224", "blocks.0", 32)
    pictures = np.zeros((2, 32, 32, 3), dtype=np.uint8)
    for _ in range(2):
        cached_activations(embedder, Arrays(pictures), n_views=1)
        with torch.no_grad():
            embedder.backbone.pos_embed.add_(1)
    assert len(list(tmp_path.glob("*.rows"))) == 2


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Six classes of six pictures each, of noise: nothing to learn, so that there is always a loss."""
    rng = np.random.default_rng(0)
    for name in "abcdef":
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(6):
            pixels = rng.integers(0, 256, (9, 10, 3), dtype=np.uint8)
            Image.fromarray(pixels).resize((80, 72)).save(tmp_path / "photos" / name / f"{number}.png")
    return tmp_path / "photos"


@pytest.mark.parametrize("cached_views", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_a_frozen_dinov2_trains_and_is_evaluated(photos: Path, tmp_path: Path, monkeypatch, cached_views: int) -> None:
    monkeypatch.setenv("FACETRIC_CACHE", str(tmp_path / "cache"))
    model = {"backbone": "vit_small_patch14_reg4_dinov2", "weights": "none", "dim": 8, "head_init": "orthogonal"}
    config = parse_config(
        {
            "run": {"folder": str(tmp_path / "runs"), "steps": 2, "validate_every": 0, "log_every": 1, "threads": 1},
            "data": {"name": "folder", "root": str(photos), "size": 64},
            "model": {**model, "image_size": 56, "freeze_through": "blocks.9", "cached_views": cached_views},
            "loss": {"margin_weight": 8.0},
            "batches": {"size": 8},
            "optimizer": {"name": "adamw", "backbone_lr": 1e-2, "head_lr": 1e-2},
        }
    )
    fresh = build_network(
        "vit_small_patch14_reg4_dinov2", weights="none", dim=8, image_size=56, freeze_through="blocks.9", seed=config.run.seed
    )
    folder = train(config).folder
    trained = load_network(folder / "checkpoints" / "last.safetensors")
    assert (trained.preprocessing.crop, trained.freeze_through) == (56, "blocks.9")
    before, after = fresh.backbone.state_dict(), trained.backbone.state_dict()
    moved = {key for key in before if not torch.equal(before[key], after[key])}
    behind = ("blocks.10.", "blocks.11.", "norm.")
    assert moved
    assert all(key.startswith(behind) for key in moved)
    assert {key.split(".")[1] for key in moved if key.startswith("blocks.")} == {"10", "11"}
    assert open_run(folder).evaluate(checkpoint="last", n_restarts=1) is not None
