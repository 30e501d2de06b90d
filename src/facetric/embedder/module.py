"""A network of your own, any torch module or function of images, as a `Network` that an `Embedder` runs."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from facetric.embedder.checkpoint import tensors_hash
from facetric.embedder.network import Network
from facetric.embedder.onnx_engine import WholeImages
from facetric.images import Prepared, Preprocessing

_one_at_a_time = threading.Lock()  # functions need not be made for several threads, modules are
_WHOLE_SIZE = 1 << 20  # no JPEG is decoded at a fraction of its size


@dataclass(frozen=True, kw_only=True)
class Transformed(Preprocessing):
    """What a function makes of an upright RGB image: floats (channels, height, width)."""

    transform: Callable[[Image.Image], Any]
    input_shape: tuple[int, ...] = field(init=False)  # that it gave

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "input_shape", self.pixels(Image.new("RGB", (320, 240), "gray")).shape)
        except (RuntimeError, TypeError, AttributeError) as error:  # of the function's own
            reason = " ".join(str(error).split())[:200]
            raise ValueError(f"transform fails on an image ({reason}): it takes a PIL image, as those of torchvision") from error

    @property
    def at_least(self) -> int:
        return _WHOLE_SIZE

    def pixels(self, image: Image.Image) -> NDArray[Any]:
        made = self.transform(image)
        values = np.asarray(made, dtype=np.float32) if isinstance(made, Tensor | np.ndarray) else np.empty(0)
        if values.ndim != 3:
            what = f"shape {values.shape}" if len(values) else type(made).__name__
            raise ValueError(f"transform gives a tensor (channels, height, width) for a PIL image; got {what}: change it")
        return values.view(Prepared)


class ModuleBackbone(nn.Module):
    """A module, its method or another function, as the backbone of a `Network`: what it gives are the features."""

    def __init__(self, module: Callable[..., Any]) -> None:
        super().__init__()
        self.owner = owner if isinstance(owner := owner_of(module), nn.Module) else None  # whose parameters these are
        self.run = module

    def forward_features(self, images: Tensor) -> Tensor:
        if self.owner is None:
            with _one_at_a_time:
                made = self.run(images)
        else:
            made = self.run(images)
        found = torch.as_tensor(made) if isinstance(made, Tensor | np.ndarray) else None
        if found is not None and found.ndim == 4 and found.shape[2:] == (1, 1):
            found = found.flatten(1)
        is_exported = torch.compiler.is_compiling()  # for any number of images
        if found is None or found.ndim != 2 or not (is_exported or len(found) == len(images)):
            got = type(made).__name__ if found is None else f"shape {tuple(found.shape)} for {len(images)} images"
            raise ValueError(f"a module gives a tensor (n, dim) for n images; got {got}: pass a function that does")
        return found.float()

    def forward_head(self, features: Tensor, *, pre_logits: bool) -> Tensor:
        return features


def owner_of(module: Callable[..., Any]) -> Any:
    """The object of a method, such as `model.encode_image`; else what was given."""
    return getattr(module, "__self__", module)


def module_network(
    module: Callable[..., Any],
    transform: Callable[[Image.Image], Any] | Preprocessing | None,
    name: str | None,
    fingerprint: str | None,
) -> tuple[Network, str]:
    """The network, in eval mode, and its fingerprint."""
    if not callable(module):
        raise ValueError(f"a network is a torch module or a function; got {type(module).__name__}: pass one of these")
    owner = owner_of(module)
    if transform is None:
        transform = _of_timm(owner) if hasattr(owner, "pretrained_cfg") else Preprocessing(crop=224, fit="crop")
    form = transform if isinstance(transform, Preprocessing) else Transformed(transform=transform)
    kind = getattr(module, "__qualname__", type(module).__qualname__)
    state = owner.state_dict() if isinstance(owner, nn.Module) else {}
    tensors = {key: value for key, value in state.items() if isinstance(value, Tensor)}
    if fingerprint is None and not tensors:
        raise ValueError(
            f"{kind} has no weights to be told by: pass fingerprint=, a text such as 'my-network-1', and another one whenever "
            "its vectors change"
        )
    if isinstance(owner, nn.Module):
        owner.eval()
    try:
        network = Network(ModuleBackbone(module), form, name=name or kind, dim=None).eval()
    except (RuntimeError, TypeError, AttributeError) as error:  # the module's own
        reason = " ".join(str(error).split())[:200]
        shape = (1, *getattr(form, "input_shape", (form.channels, form.crop, form.crop)))
        raise ValueError(f"{kind} fails on images of shape {shape} ({reason}): pass the transform= that it takes") from error
    if isinstance(form, Transformed):
        network.crop = WholeImages(form)
    about = {"kind": kind, "preprocessing": re.sub(r" at 0x[0-9a-f]+", "", repr(form))}
    return network, tensors_hash(tensors, about) if fingerprint is None else fingerprint


def _of_timm(module: Any) -> Callable[[Image.Image], Any]:
    """How the weights of one of timm's networks were evaluated."""
    from timm.data import create_transform, resolve_model_data_config  # type: ignore[attr-defined]

    settings = resolve_model_data_config(module)  # type: ignore[no-untyped-call]
    found: Callable[[Image.Image], Any] = create_transform(**settings, is_training=False)
    return found
