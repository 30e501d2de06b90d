"""`Embedder.from_module`: torchvision's and timm's networks, methods and plain functions do what a trained run does."""

import pickle

import numpy as np
import pytest
import timm
import torch
from torch import nn
from torch.nn.functional import normalize
from torchvision import models, transforms

import facetric
from facetric.embedder import Embedder
from facetric.images import Preprocessing
from facetric.photos import cluster_folder, open_collection
from photos.photo_files import photo, write_photos

TRANSFORM = transforms.Compose(
    [transforms.Resize(72), transforms.CenterCrop(64), transforms.ToTensor(), transforms.Normalize([0.5] * 3, [0.2] * 3)]
)
WIDE = transforms.Compose([transforms.Resize((48, 96)), transforms.ToTensor()])


def resnet():
    torch.manual_seed(0)
    network = models.resnet18()
    network.fc = nn.Identity()
    return network


class TwoTowers(nn.Module):
    """As CLIP: images are embedded by a method."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 8)

    def encode_image(self, images):
        return self.head(images.mean(dim=(2, 3)))


def direct(network, transform, images):
    with torch.no_grad():
        return normalize(network(torch.stack([transform(image) for image in images])), dim=1).numpy()


@pytest.mark.parametrize("transform", [TRANSFORM, WIDE])
def test_vectors_are_those_of_the_module_behind_its_transform(transform):
    images, network = [photo(seed) for seed in range(5)], resnet()
    model = Embedder.from_module(network, transform, name="ours")
    assert (model.name, model.dim) == ("ours", 512)
    np.testing.assert_allclose(model.encode(images), direct(network, transform, images), atol=1e-5)


def test_a_network_of_timm_knows_its_own_transform():
    torch.manual_seed(0)
    network = timm.create_model("vit_tiny_patch16_224", num_classes=0)
    own = timm.data.create_transform(**timm.data.resolve_model_data_config(network))
    images = [photo(seed) for seed in range(2)]
    np.testing.assert_allclose(Embedder.from_module(network).encode(images), direct(network, own, images), atol=1e-5)


def test_the_fingerprint_is_that_of_weights_and_transform():
    def known(network, transform):
        return Embedder.from_module(network, transform).fingerprint

    other = resnet()
    with torch.no_grad():
        other.conv1.weight[0, 0, 0, 0] += 1e-3
    assert known(resnet(), TRANSFORM) == known(resnet(), TRANSFORM)
    assert len({known(resnet(), TRANSFORM), known(other, TRANSFORM), known(resnet(), WIDE)}) == 3


def test_a_method_is_told_by_the_weights_of_its_module():
    towers = TwoTowers()
    model = Embedder.from_module(towers.encode_image)
    assert model.dim == 8
    assert model.fingerprint == Embedder.from_module(towers.encode_image).fingerprint
    assert model.fingerprint != Embedder.from_module(TwoTowers().encode_image).fingerprint


def test_a_plain_function_embeds_and_needs_a_fingerprint():
    def means(images):
        return images.mean(dim=(2, 3)).numpy()

    model = Embedder.from_module(means, transforms.ToTensor(), fingerprint="means-1")
    assert (model.fingerprint, model.dim) == ("means-1", 3)
    expected = normalize(transforms.ToTensor()(photo(1)).mean(dim=(1, 2)), dim=0).numpy()
    np.testing.assert_allclose(model.encode(photo(1))[0], expected, atol=1e-6)
    with pytest.raises(ValueError, match="has no weights to be told by: pass fingerprint="):
        Embedder.from_module(means)


def test_a_collection_is_filled_searched_and_grouped_by_it(tmp_path):
    paths = write_photos(tmp_path / "photos", 12)
    model = Embedder.from_module(resnet(), WIDE)
    index = open_collection(tmp_path / "index", model)
    assert index.add(tmp_path / "photos").n_new == 12
    for match in index.search(tmp_path / "photos", top=1):
        assert match.hits[0].entry.path == match.photo
        assert match.hits[0].similarity > 0.9999
    groups = cluster_folder(tmp_path / "photos", model, tmp_path / "album")
    assert sorted(map(str, groups.photos)) == paths
    np.testing.assert_array_equal(groups.clusters, index.cluster().clusters)


def test_what_torch_can_export_gives_the_same_vectors_in_onnxruntime(tmp_path):
    model = Embedder.from_module(resnet(), Preprocessing(size=72, crop=64, fit="crop"))
    model.export(tmp_path / "own.onnx")
    again = facetric.load(tmp_path / "own.onnx")
    images = [photo(seed) for seed in range(4)]
    assert again.fingerprint == model.fingerprint
    np.testing.assert_allclose(again.encode(images), model.encode(images), atol=1e-5)


def test_what_cannot_be_written_to_a_file_says_so_in_one_line(tmp_path):
    model = Embedder.from_module(resnet(), TRANSFORM)
    with pytest.raises(ValueError, match="the transform of ResNet is a function, which cannot be written to a file"):
        model.export(tmp_path / "own.onnx")
    with pytest.raises(ValueError, match="a module of yours, which cannot be built again"):
        model.save(tmp_path / "own.safetensors")
    assert not list(tmp_path.iterdir())


def test_it_survives_a_pickle():
    model = Embedder.from_module(resnet(), TRANSFORM)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.encode(photo(0)), model.encode(photo(0)))
    assert again.fingerprint == model.fingerprint


@pytest.mark.parametrize(
    ("module", "transform", "said"),
    [
        (3, None, "a network is a torch module or a function; got int"),
        (nn.Linear(3, 4), None, r"Linear fails on images of shape \(1, 3, 224, 224\)"),
        (nn.Conv2d(3, 4, 3), None, r"gives a tensor \(n, dim\) for n images; got shape \(1, 4, 222, 222\)"),
        (resnet(), lambda image: image, r"transform gives a tensor \(channels, height, width\) for a PIL image; got Image"),
        (resnet(), lambda image: image.missing, "transform fails on an image"),
    ],
)
def test_what_does_not_fit_is_one_clear_line(module, transform, said):
    with pytest.raises(ValueError, match=said) as error:
        Embedder.from_module(module, transform)
    assert "\n" not in str(error.value)
