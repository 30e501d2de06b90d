"""The embedder: what it gives, what it freezes, and how it is cut in two."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from facetric.embedder import Network, build_network
from facetric.images import Preprocessing
from facetric.runs import OptimizerTable
from facetric.training.step import parameter_groups


def rates(backbone_lr: float, head_lr: float, weight_decay: float = 0.0) -> OptimizerTable:
    return OptimizerTable(backbone_lr=backbone_lr, head_lr=head_lr, weight_decay=weight_decay)


def images_for(embedder: Network, n: int = 3) -> torch.Tensor:
    spec = embedder.preprocessing
    return torch.randn(n, spec.channels, spec.crop, spec.crop, generator=torch.Generator().manual_seed(1))


def uncut(embedder: Network, images: torch.Tensor) -> torch.Tensor:
    """The embeddings, from the backbone's own methods."""
    maps = embedder.backbone.forward_features(images)
    return embedder.head(embedder.backbone.forward_head(maps, pre_logits=True))


@pytest.mark.parametrize("normalize", [True, False])
def test_embeddings_have_length_one_only_when_asked(normalize: bool) -> None:
    embedder = build_network("glyphnet", dim=16, normalize=normalize).eval()
    embeddings = embedder(images_for(embedder))
    assert embeddings.shape == (3, 16)
    assert torch.allclose(embeddings.norm(dim=1), torch.ones(3)) == normalize


def test_glyphnet_has_1024_features() -> None:
    embedder = build_network("glyphnet", dim=16).eval()
    assert embedder.n_features == 1024
    with torch.no_grad():
        assert embedder(torch.zeros(2, 1, 36, 36)).shape == (2, 16)


@pytest.mark.parametrize("size", [32, 40, 48])
def test_glyphnet_takes_pictures_of_32_to_48_pixels(size: int) -> None:
    embedder = build_network("glyphnet").eval()
    assert embedder.features(torch.zeros(2, 1, size, size)).shape == (2, embedder.n_features)


def test_the_input_follows_the_backbone() -> None:
    half = (0.5, 0.5, 0.5)
    assert build_network("glyphnet").preprocessing == Preprocessing(size=32, crop=32, channels=1, mean=(0.5,), std=(0.5,))
    assert build_network("tf_efficientnet_lite0").preprocessing == Preprocessing(size=256, crop=224, mean=half, std=half)
    assert build_network("googlenet", weights="none").preprocessing == Preprocessing(size=256, crop=227, mean=half, std=half)


def test_googlenet_gives_torchvisions_features() -> None:
    from torchvision.models import googlenet

    embedder = build_network("googlenet", weights="none").eval()
    theirs = googlenet(weights=None, aux_logits=False, init_weights=False, transform_input=True).eval()
    theirs.fc, theirs.dropout = nn.Identity(), nn.Identity()
    theirs.load_state_dict(embedder.backbone.state_dict())
    pixels = torch.rand(1, 3, 227, 227, generator=torch.Generator().manual_seed(2))  # v / 255
    mean, std = (torch.tensor(v)[:, None, None] for v in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    with torch.no_grad():
        expected, given = theirs((pixels - mean) / std), embedder.features((pixels - 0.5) / 0.5)
    assert torch.allclose(given, expected, rtol=1e-3, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize(
    ("name", "through"),
    [
        ("glyphnet", "stem"),
        ("glyphnet", "stages.1"),
        ("googlenet", "inception4c"),
        ("resnet18", "layer3"),
        ("resnet18", "layer2.0"),
        ("tf_efficientnet_lite0", "blocks.4"),
        ("tf_efficientnet_lite0", "bn2"),
        ("mobilenetv3_small_050", "blocks.3"),
        ("test_convnext", "stages.2"),
        ("test_byobnet", "stages.1"),
    ],
)
def test_both_parts_in_a_row_are_the_whole(name: str, through: str) -> None:
    embedder = build_network(name, weights="none", normalize=False, freeze_through=through).eval()
    images = images_for(embedder, 2)
    activations = embedder.trunk(images)
    assert not activations.requires_grad
    with torch.no_grad():
        expected = uncut(embedder, images)
    assert torch.allclose(embedder.from_activations(activations), expected, rtol=1e-4, atol=1e-6)
    assert torch.allclose(embedder(images), expected, rtol=1e-4, atol=1e-6)
    assert torch.allclose(embedder.head(embedder.features(images)), expected, rtol=1e-4, atol=1e-6)


def test_the_trunk_of_the_default_backbone_is_small_enough_to_keep() -> None:
    embedder = build_network("tf_efficientnet_lite0", freeze_through="blocks.4")
    assert embedder.trunk(images_for(embedder, 1)).shape == (1, 112, 14, 14)


def test_an_unknown_place_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match=r"must name a module of the backbone; got 'stage.1': did you mean 'stages.1'\? .* stem, stages.0,"
    ):
        build_network("glyphnet", freeze_through="stage.1")


def test_a_place_inside_a_block_is_refused_with_places_that_work() -> None:
    with pytest.raises(ValueError, match=r"cannot be frozen through 'layer2.0.conv1'.*choose one of conv1.0, .*layer2.0, "):
        build_network("test_resnet", weights="none", freeze_through="layer2.0.conv1")


def test_a_network_of_parallel_branches_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"cannot be frozen through 'blocks.1'.*nor anywhere else: freeze 'all' of it, or nothing"
    ):
        build_network("crossvit_tiny_240", weights="none", freeze_through="blocks.1")


def test_an_unknown_backbone_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"got 'resnt18': did you mean .*resnet18"):
        build_network("resnt18", weights="none")


def test_dim_must_be_positive() -> None:
    with pytest.raises(ValueError, match="dim, the length of an embedding, must be at least 1; got 0"):
        build_network("glyphnet", dim=0)


def step(embedder: Network) -> None:
    """One training step with large changes."""
    embedder.train()
    optimizer = torch.optim.SGD(parameter_groups(embedder, rates(1.0, 1.0, 0.1)))
    embedder(images_for(embedder, 8)).square().sum(dim=1)[:4].sum().backward()
    optimizer.step()


def changed(before: dict[str, torch.Tensor], embedder: Network) -> set[str]:
    return {name for name, tensor in embedder.state_dict().items() if not torch.equal(tensor, before[name])}


def test_a_step_leaves_the_frozen_part_and_all_statistics_alone() -> None:
    embedder = build_network("glyphnet", normalize=False, freeze_through="stages.0")
    embedder.freeze_batchnorm = True
    before = copy.deepcopy(embedder.state_dict())
    step(embedder)
    moved = changed(before, embedder)
    assert "head.weight" in moved
    assert "backbone.stages.2.2.weight" in moved  # what a norm learns is learned
    assert not [name for name in moved if name.startswith(("backbone.stem", "backbone.stages.0")) or "running" in name]
    frozen = [*embedder.backbone.stem.parameters(), *embedder.backbone.stages[0].parameters()]
    assert all(parameter.grad is None and not parameter.requires_grad for parameter in frozen)


def test_without_frozen_statistics_only_those_behind_the_cut_move() -> None:
    embedder = build_network("glyphnet", normalize=False, freeze_through="stages.0")
    before = copy.deepcopy(embedder.state_dict())
    step(embedder)
    moved = {name for name in changed(before, embedder) if "running" in name}
    assert moved
    assert all(name.startswith(("backbone.stages.1", "backbone.stages.2")) for name in moved)


def test_statistics_are_frozen_for_pretrained_weights_only() -> None:
    assert build_network("tf_efficientnet_lite0").freeze_batchnorm
    assert not build_network("glyphnet").freeze_batchnorm


def test_eval_and_train_switch_what_is_not_frozen() -> None:
    embedder = build_network("glyphnet", freeze_through="stages.0")
    assert (embedder.backbone.stem.training, embedder.backbone.stages[1].training, embedder.head.training) == (False, True, True)
    embedder.eval()
    assert not any(module.training for module in embedder.modules())
    assert embedder.train() is embedder
    assert embedder.backbone.stages[2].training


def test_parameter_groups_hold_every_trainable_parameter_once() -> None:
    embedder = build_network("glyphnet", freeze_through="stages.0")
    groups = {group["name"]: group for group in parameter_groups(embedder, rates(1e-4, 1e-2, 0.05))}
    assert list(groups) == ["backbone", "backbone_no_decay", "head", "head_no_decay"]
    assert [group["lr"] for group in groups.values()] == [1e-4, 1e-4, 1e-2, 1e-2]
    assert [group["weight_decay"] for group in groups.values()] == [0.05, 0, 0.05, 0]
    assert groups["head"]["params"] == [embedder.head.weight]
    norms = [p for m in embedder.modules() if isinstance(m, nn.BatchNorm2d) for p in m.parameters() if p.requires_grad]
    assert {id(p) for p in groups["backbone_no_decay"]["params"]} == {id(p) for p in norms}
    given = [id(parameter) for group in groups.values() for parameter in group["params"]]
    assert sorted(given) == sorted(id(parameter) for parameter in embedder.parameters() if parameter.requires_grad)


def test_a_backbone_frozen_to_its_end_leaves_the_head() -> None:
    embedder = build_network("test_resnet", weights="none", freeze_through="layer4")
    assert [group["name"] for group in parameter_groups(embedder, rates(1, 1))] == ["head", "head_no_decay"]


def test_the_seed_decides_and_the_global_generator_is_left_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, again, other = (build_network("glyphnet", seed=seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["head.weight"], other["head.weight"])
    assert not torch.equal(first["backbone.stem.0.weight"], other["backbone.stem.0.weight"])


@pytest.mark.parametrize("how", [copy.deepcopy, lambda embedder: pickle.loads(pickle.dumps(embedder))])
def test_a_copy_has_weights_of_its_own(how) -> None:
    embedder = build_network("glyphnet", normalize=False, freeze_through="stages.0").eval()
    images = images_for(embedder)
    before = embedder(images)
    twin = how(embedder)
    assert torch.equal(twin(images), before)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert torch.equal(embedder(images), before)
    assert not torch.equal(twin(images), before)


def test_trunk_state_is_what_decides_the_activations() -> None:
    embedder = build_network("glyphnet", freeze_through="stages.0")
    names = set(embedder.trunk_state())
    assert names == {name for name in embedder.backbone.state_dict() if name.startswith(("stem.", "stages.0."))}
    assert build_network("glyphnet").trunk_state() == {}
    images = images_for(embedder)
    assert build_network("glyphnet").trunk(images) is images


@pytest.mark.parametrize(("size", "mean", "std"), [(0, (0.5,), (1.0,)), (9, (0.5, 0.5), (1.0,)), (9, (0.5,), (0.0,))])
def test_an_impossible_input_is_refused(size: int, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"pass th|at least 1"):
        Preprocessing(size=32, crop=size, channels=1, mean=mean, std=std)


def test_features_are_finite_on_a_black_picture() -> None:
    embedder = build_network("glyphnet").eval()
    with torch.no_grad():
        assert np.isfinite(embedder(torch.zeros(2, 1, 32, 32)).numpy()).all()


def test_with_everything_frozen_the_activations_are_the_pooled_features_and_only_the_head_is_trained() -> None:
    embedder = build_network("glyphnet", dim=16, freeze_through="all")
    images = images_for(embedder)
    activations = embedder.trunk(images)
    assert activations.shape == (3, embedder.n_features)
    assert torch.equal(embedder.features_from_activations(activations), activations)
    free = build_network("glyphnet", dim=16).eval()
    assert torch.allclose(embedder(images), free(images), atol=1e-6)
    embedder(images).sum().backward()
    assert [name for name, weights in embedder.named_parameters() if weights.grad is not None] == ["head.weight", "head.bias"]
    assert {group["name"] for group in parameter_groups(embedder, rates(1, 1))} == {"head", "head_no_decay"}
    assert embedder.trunk_state().keys() == embedder.backbone.state_dict().keys()
