"""`build_network`: networks by name, any other of timm, torchvision's googlenet (the paper's Inception with batch normalization)
and our glyphnet.

All of them have timm's two methods: `forward_features(images)` gives maps, `forward_head(maps, pre_logits=True)` pools them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models import GoogLeNet as TorchvisionGoogLeNet  # type: ignore[import-untyped]

from facetric.embedder.hub import fetched
from facetric.embedder.network import Network, Pooling
from facetric.embedder.networks import NETWORKS, WEIGHTS, named_network
from facetric.embedder.weights import WeightsError, default_weights, load_weights
from facetric.images import Fit, Preprocessing

_WIDTHS = (32, 64, 128, 256)  # of glyphnet
_POOLS = {"average": "avg", "class token": "token", "attention": "map"}  # timm's names


def build_network(
    name: str = "tf_efficientnet_lite0",
    *,
    dim: int | None = 64,
    weights: str | Path | None = None,
    image_size: int | None = None,
    size: int | None = None,
    pad: int = 0,
    fit: Fit = "stretch",
    normalize: bool = True,
    freeze_through: str | None = None,
    normalize_features: bool = False,
    pooling: Pooling = "average",
    seed: int = 0,
) -> Network:
    """A network with `dim` dimensions, in training mode.

    * `name`: one of `NETWORKS` such as "lite1" or "dinov2-small", any other model of timm ("resnet18" or "timm:resnet18"), one of
      timm on the hub ("hf-hub:OWNER/NAME"), a file of weights beside timm's config.json ("model.safetensors"), "googlenet" (the
      paper's) or "glyphnet" (small grayscale images);
    * `dim`: the length of an embedding; None for the pooled features themselves, without a head. At 512 the head of "clip" is the
      projection that was trained with it;
    * `weights`: "packaged", "hub", a file (safetensors or a state dict), "none", or None for the backbone's own default;
    * `image_size`: the side of the square input in pixels, the backbone's own unless given; position embeddings in weights of
      another size are resampled;
    * `fit`, `size`, `pad`: images are stretched to size × size (256, or the input where that is larger), or with "crop" their
      central square is, and get `pad` black pixels on every side, before the input is cropped from them; glyphnet's are of the
      size of its input;
    * `normalize`: whether embeddings have length 1, as the facility location and triplet losses expect;
    * `freeze_through`: the module up to which the backbone is frozen, for example "blocks.4";
    * `normalize_features`: whether the head takes features of length one, as a whitened head does;
    * `pooling`: "average", the network's own, or "gem", a power mean over the image that fine-grained classes gain from;
    * `seed`: of the head, and of the backbone with weights "none"; torch's global generator is not touched.

    Batch-norm statistics are frozen unless the weights are "none".
    """
    trained: Mapping[str, Any] = {}  # with which normalization, where timm's record of the architecture does not say it
    if name.startswith("hf-hub:"):
        source = name.removeprefix("hf-hub:")
        name, own_size, trained = _published(source, fetched(source, "config.json"))
        image_size = image_size or own_size
        weights = fetched(source, WEIGHTS) if weights in (None, "hub") else weights
    elif name.endswith(".safetensors"):
        source, weights = name, name if weights is None else weights
        name, own_size, trained = _published(source, Path(source).with_name("config.json"))
        image_size = image_size or own_size
    elif row := NETWORKS.get(name):
        name, image_size = row.recorded, image_size or row.image_size
    name = name.removeprefix("timm:")
    weights = default_weights(name) if weights is None else weights
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        backbone, preprocessing = create_backbone(name, image_size=image_size)
        size = preprocessing.size if size is None else size
        preprocessing = replace(preprocessing, size=size, pad=pad, fit=fit, **trained)
        left = {} if weights == "none" else load_weights(backbone, name, weights)
        network = Network(
            backbone,
            preprocessing,
            name=name,
            dim=dim,
            normalize=normalize,
            freeze_through=freeze_through,
            freeze_batchnorm=weights != "none",
            normalize_features=normalize_features,
            pooling=pooling,
        )
    named = named_network(name)
    if named and named.is_projected and dim == named.dim and "head.weight" in left:
        network.head.load_state_dict({key: left[f"head.{key}"] for key in ("weight", "bias")})
    return network


def _published(source: str, path: Path) -> tuple[str, int, dict[str, Any]]:
    """What a config.json of timm says: the architecture, the size of its input, and the normalization."""
    import timm

    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        if "facetric" in config:
            raise WeightsError(f"{source} is of a model that facetric saved: load hf://OWNER/NAME, or its folder, as a whole")
        trained = config.get("pretrained_cfg", config)
        name, size = str(config["architecture"]), int(trained["input_size"][1])
        normalization = {key: tuple(map(float, trained[key])) for key in ("mean", "std")}
    except WeightsError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise WeightsError(
            f"{source} needs a config.json of timm, with its architecture and normalization ({reason}): choose a model of timm, "
            "or pass a file as weights of a network, build_network(NETWORK, weights=FILE)"
        ) from error
    if not timm.is_model(name) or config.get("model_args"):
        what = "arguments of its own" if timm.is_model(name) else "an architecture that this version of timm does not have"
        raise WeightsError(f"{source} has {what} ({name}): choose another model, or another version of timm")
    return name, size, normalization


class GlyphNet(nn.Module):
    """A small network for grayscale images of 32 to 48 pixels, to be trained from scratch on a CPU.

    A stem at full size, then three stages that double the channels and halve the image; pooled over its quarters, since where a
    stroke is tells characters apart. Images (m, 1, h, w) → features (m, 4 · 256).
    """

    feature_info = ({"reduction": 8},)  # as timm tells a network's stride

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(*_convolution(1, _WIDTHS[0]), *_convolution(_WIDTHS[0], _WIDTHS[0]))
        stages = ((nn.MaxPool2d(2), *_convolution(n, after), *_convolution(after, after)) for n, after in pairwise(_WIDTHS))
        self.stages = nn.Sequential(*(nn.Sequential(*stage) for stage in stages))
        self.pool = nn.AdaptiveAvgPool2d(2)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")  # the untrained network keeps its signal

    def forward_features(self, images: Tensor) -> Tensor:
        """(m, 1, h, w) → (m, 256, ⌊h/8⌋, ⌊w/8⌋)"""
        features: Tensor = self.stages(self.stem(images))
        return features

    def forward_head(self, maps: Tensor, *, pre_logits: bool = True) -> Tensor:
        """Pooled and flattened, (m, 4 · 256); `pre_logits` is there for timm's signature."""
        pooled: Tensor = self.pool(maps)
        return pooled.flatten(1)


def _convolution(n_before: int, n_after: int) -> list[nn.Module]:
    return [nn.Conv2d(n_before, n_after, 3, padding=1, bias=False), nn.BatchNorm2d(n_after), nn.ReLU()]


class GoogLeNet(TorchvisionGoogLeNet):
    """torchvision's, without the classifiers, at the paper's crop of 227.

    Images are normalized as (v/255 − 0.5) / 0.5, which is what torchvision's `transform_input` does inside the network.
    """

    feature_info = ({"reduction": 32},)  # as timm tells a network's stride

    def __init__(self) -> None:
        super().__init__(num_classes=1, aux_logits=False, transform_input=False, init_weights=True)
        del self.fc, self.dropout

    def forward_features(self, images: Tensor) -> Tensor:
        """(m, 3, h, w) → (m, 1024, ⌈h/32⌉, ⌈w/32⌉)"""
        for name, module in self.named_children():  # which are in the order in which they run
            if name != "avgpool":
                images = module(images)
        return images

    def forward_head(self, maps: Tensor, *, pre_logits: bool = True) -> Tensor:
        """Averaged over the image, (m, 1024); `pre_logits` is there for timm's signature."""
        pooled: Tensor = self.avgpool(maps)
        return pooled.flatten(1)


_OWN: dict[str, tuple[type[nn.Module], Preprocessing]] = {
    "glyphnet": (GlyphNet, Preprocessing(size=32, crop=32, channels=1, mean=(0.5,), std=(0.5,))),
    "googlenet": (GoogLeNet, Preprocessing(size=256, crop=227, channels=3, mean=(0.5,) * 3, std=(0.5,) * 3)),
}


def create_backbone(name: str, *, image_size: int | None = None) -> tuple[nn.Module, Preprocessing]:
    """The network with random weights (torch's global generator draws them) and how images become its input.

    `image_size`, the side of its square input, is the network's own unless given; a ValueError if it cannot take that.
    """
    import timm

    if name not in _OWN and name not in NETWORKS and not timm.is_model(name):
        near = get_close_matches(name, [*_OWN, *NETWORKS, *timm.list_models()], n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "`facetric models` lists some, timm.list_models() all"
        raise ValueError(
            "a network must be one that `facetric models` lists, a model of timm, googlenet or glyphnet; "
            f"got {name!r}: {hint} (--model NAME, or model.backbone of a run)"
        )
    if image_size is None:
        return _built(name)
    try:
        network, preprocessing = _built(name, image_size)
        reason = _misfit(network, preprocessing)
    except Exception as error:  # a network can raise nearly anything at a size that it was not made for
        reason = str(error).split("\n", maxsplit=1)[0] or type(error).__name__
    if reason:
        raise ValueError(
            f"{name} cannot take images of {image_size} pixels, {reason}: choose another size (--set model.image_size=…)"
        )
    return network, preprocessing


def _built(name: str, image_size: int | None = None) -> tuple[nn.Module, Preprocessing]:
    if name in _OWN:
        network, own = _OWN[name]
        crop = image_size or own.crop
        return network(), replace(own, size=crop if name == "glyphnet" else max(256, crop), crop=crop)
    import timm

    row = NETWORKS.get(name)
    name = row.timm if row else name
    settings = timm.get_pretrained_cfg(name)
    # Where position embeddings, windows and the like depend on the size, timm has to know it.
    depends = image_size is not None and settings is not None and settings.fixed_input_size
    options: dict[str, Any] = {"img_size": image_size} if depends else {}
    if row and row.differs:
        options["global_pool"] = _POOLS[row.pooling]
    made: nn.Module = timm.create_model(name, pretrained=False, num_classes=0, **options)
    expected = made.pretrained_cfg
    assert isinstance(expected, dict)
    channels, own_crop, _ = expected["input_size"]
    crop = image_size or own_crop
    return made, Preprocessing(
        size=max(256, crop), crop=crop, channels=channels, mean=tuple(expected["mean"]), std=tuple(expected["std"])
    )


def _misfit(network: nn.Module, preprocessing: Preprocessing) -> str | None:
    """Why the network cannot take these images; None if it can, an exception of its own if it fails on them."""
    crop = preprocessing.crop
    patches: Any = getattr(network, "patch_embed", None)
    patch = patches.patch_size[0] if type(patches).__name__ == "PatchEmbed" else 1  # timm's; others may pad, or overlap
    if rest := crop % patch:
        multiples = " or ".join(str(side) for side in (crop - rest, crop - rest + patch) if side)
        return f"which is not a multiple of its patch size {patch} ({multiples} would be)"
    stages = getattr(network, "feature_info", ())
    stride = max((int(stage["reduction"]) for stage in stages), default=1)
    if crop < stride:
        return f"which is below its stride {stride}"
    forward_features: Callable[[Tensor], Tensor] = network.eval().forward_features  # type: ignore[assignment]
    with torch.no_grad():
        forward_features(torch.zeros(1, preprocessing.channels, crop, crop))
    return None
