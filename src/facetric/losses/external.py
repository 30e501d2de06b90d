"""Losses of pytorch-metric-learning by their names, so that a comparison with them is one line of a configuration."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from torch import nn

PREFIX = "pytorch_metric_learning."


def is_external(name: str) -> bool:
    """Whether this is the name of a loss of pytorch-metric-learning, such as "pytorch_metric_learning.ProxyAnchorLoss"."""
    return name.startswith(PREFIX)


def external_loss(name: str, options: Mapping[str, Any], *, dim: int, n_classes: int) -> nn.Module:
    """The loss with these options; `embedding_size` and `num_classes` are filled in where it has weights of its own."""
    kind = _class_of(name)
    parameters = inspect.signature(kind).parameters
    known = [key for key in parameters if key not in ("self", "kwargs")]
    sizes = {"embedding_size": dim, "num_classes": n_classes}
    for key in options:
        if key not in parameters and not (key in ("reducer", "distance") and "kwargs" in parameters):
            raise ValueError(f"{name} takes no {key!r}; it takes {', '.join(known)}: leave loss.options.{key} out")
    loss: nn.Module = kind(**{key: size for key, size in sizes.items() if key in parameters}, **options)
    return loss


def _class_of(name: str) -> Any:
    try:
        from pytorch_metric_learning import losses
    except ImportError:
        raise ValueError(
            f"the loss {name!r} needs pytorch-metric-learning, which is not installed: pip install pytorch-metric-learning"
        ) from None
    short = name.removeprefix(PREFIX)
    kinds = [key for key, value in vars(losses).items() if key.endswith("Loss") and isinstance(value, type)]
    if short not in kinds:
        near = get_close_matches(short, kinds, n=1)
        hint = f"did you mean {PREFIX + near[0]!r}?" if near else f"it has {', '.join(kinds)}"
        raise ValueError(f"pytorch-metric-learning has no loss {short!r}; {hint}")
    return getattr(losses, short)
