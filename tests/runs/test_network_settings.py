"""What is set for a network, and what stays when another one takes its place."""

import pytest

from facetric.runs import TrainConfig, parse_config
from facetric.runs.config_file import ConfigError
from facetric.runs.network_settings import network_settings, networks_to_compare, with_network
from facetric.runs.recipes import recipe


def tables(backbone):
    settings = network_settings(backbone, 500)
    return settings["model"], settings["optimizer"]["backbone_lr"]


def test_the_last_blocks_of_a_transformer_train_at_a_tenth_of_the_rate_of_a_convolutional_network():
    for backbone, place, rate in (
        ("tf_efficientnet_lite0", "blocks.3", 1e-4),
        ("lite2", "blocks.3", 1e-4),
        ("resnet18", "layer3", 1e-4),
        ("vit_tiny_patch16_224", "blocks.9", 1e-5),
        ("mvitv2_tiny", "all", 1e-5),  # it cannot be cut
    ):
        model, found = tables(backbone)
        assert (model["freeze_through"], found) == (place, rate), backbone


def test_a_named_network_has_the_size_and_the_weights_that_its_row_says():
    assert tables("dinov2-small")[0]["image_size"] == 224  # timm's own is 518
    assert network_settings("lite2", 500)["data"]["size"] == 298  # a crop of 260 fits in
    assert [tables(name)[0]["weights"] for name in ("lite1", "dinov2-small", "resnet18")] == ["packaged", None, None]
    assert [tables(name)[0]["pooling"] for name in ("lite1", "dinov2-small")] == ["gem", "average"]


def test_many_images_get_fewer_views_and_a_shorter_vector():
    few, many = (network_settings("vit_tiny_patch16_224", n)["model"] for n in (500, 100_000))
    assert (few["cached_views"], many["cached_views"]) == (2, 1)
    assert [network_settings("lite0", n)["model"]["dim"] for n in (500, 2000)] == [1280, 256]


def own(**model):
    settings = network_settings("lite0", 500)
    first = {"data": {"name": "folder", "root": "photos"}, "optimizer": settings["optimizer"]}
    return parse_config({**first, "data": {**first["data"], **settings["data"]}, "model": {**settings["model"], **model}})


def test_another_network_brings_its_own_settings_and_leaves_those_of_the_user():
    other = with_network(own(), "vit_tiny_patch16_224", 500)
    assert other.model.backbone == "vit_tiny_patch16_224"
    assert (other.model.dim, other.model.freeze_through, other.model.pooling) == (192, "blocks.9", "average")
    assert (other.model.weights, other.optimizer.backbone_lr) == (None, 1e-5)
    mine = with_network(own(image_size=64, dim=100, freeze_through="all", cached_views=1), "vit_tiny_patch16_224", 500).model
    assert (mine.image_size, mine.dim, mine.freeze_through, mine.cached_views) == (64, 100, "all", 1)
    assert with_network(other, "lite0", 500) == own()


def test_networks_are_compared_from_the_smallest_on_and_a_set_backbone_is_compared_with_none():
    assert networks_to_compare({}, ["lite2", "dinov2-small", "lite0"]) == ("lite0", "lite2", "dinov2-small")
    assert networks_to_compare({"backbone": "lite2"}, ["lite0"]) == ("lite2", "lite0")
    assert networks_to_compare({"backbone": "resnet18"}, None) == ("resnet18",)
    assert networks_to_compare({"freeze_through": "blocks.2"}, None) == ("tf_efficientnet_lite0",)
    assert networks_to_compare({}, None)[0] == "lite0"


def test_networks_need_time_to_be_compared_in(tmp_path):
    with pytest.raises(ConfigError, match=r"run\.choose_networks \(lite0, lite2\) .*--set run\.choose_minutes=10"):
        parse_config({"run": {"choose_networks": ["lite0", "lite2"]}, "data": {"name": "folder", "root": "photos"}})
    for label in range(8):
        (tmp_path / f"{label}").mkdir()
        for i in range(8):
            (tmp_path / f"{label}" / f"{i}.jpg").touch()
    config = recipe("folder", tmp_path, overrides=["run.choose_minutes=0"]).config
    assert (config.run.choose_networks, config.model.backbone) == ((), "tf_efficientnet_lite0")
    named = recipe("folder", tmp_path, overrides=['run.choose_networks=["lite2", "lite0"]'], gpu=True)
    assert (named.config.run.choose_minutes, named.config.model.backbone) == (10, "tf_efficientnet_lite0")
    assert "recipe: the network (lite2, lite0), and pretrained features" in named.reasons[1]
    assert "up to 10 minutes (" in named.reasons[1]
    brief = recipe("folder", tmp_path, overrides=["run.choose_minutes=1"], gpu=True)
    assert "up to 1 minute (" in brief.reasons[1]
    assert isinstance(named.config, TrainConfig)
