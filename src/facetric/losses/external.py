"""Losses from elsewhere: by dotted name in a configuration, and ours for the wrappers of pytorch-metric-learning."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn

from facetric.losses.batch import checked_loss

PREFIX = "pytorch_metric_learning."


def is_external(name: str) -> bool:
    """Whether this is a dotted name: "pytorch_metric_learning.ProxyAnchorLoss", or "my_module.MyLoss" of any module."""
    return "." in name


def external_loss(name: str, options: Mapping[str, Any], *, dim: int, n_classes: int) -> nn.Module:
    """The loss with these options; `embedding_size` and `num_classes` are filled in where it takes them.

    Its module is imported, from the installed packages or the current folder.
    """
    kind = _pytorch_metric_learning_class(name) if name.startswith(PREFIX) else _imported(name)
    parameters = inspect.signature(kind).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    known = [key for key in parameters if key not in ("self", "args", "kwargs")]
    accepted = {*known, *(("reducer", "distance") if name.startswith(PREFIX) else options)} if takes_any else {*known}
    for key in options:
        if key not in accepted:
            takes = ", ".join(known) or "no options"
            raise ValueError(f"{name} takes no {key!r}; it takes {takes}: leave loss.options.{key} out")
    sizes = {key: size for key, size in {"embedding_size": dim, "num_classes": n_classes}.items() if key in parameters}
    try:
        loss = kind(**{**sizes, **options})
    except TypeError as error:
        raise ValueError(f"{name} cannot be made ({error}): set its options, as in --set loss.options.margin=0.2") from error
    if not isinstance(loss, nn.Module):
        raise ValueError(f"{name} is not a torch.nn.Module but a {type(loss).__name__}: name a class of losses")
    return loss


def for_pytorch_metric_learning(loss: nn.Module) -> nn.Module:
    """The loss as `CrossBatchMemory`, `DistributedLossWrapper` and `SelfSupervisedLoss` of pytorch-metric-learning take one.

    With reference embeddings the loss is that of the batch and the references together; references that are copies of the batch
    itself, which a memory holds too, count once.
    """
    checked_loss(loss)
    try:
        from facetric.losses.adapter import ContrastiveLoss
    except ImportError:
        raise ValueError("pytorch-metric-learning is not installed: pip install pytorch-metric-learning") from None
    return ContrastiveLoss(loss)


def _imported(name: str) -> Any:
    """The class or function of this dotted name."""
    module_name, _, attribute = name.rpartition(".")
    here = str(Path.cwd())
    sys.path.append(here)  # last: it hides no installed package
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise ValueError(
            f"the loss {name!r} cannot be imported ({error}): install its package, or start in the folder that holds its module"
        ) from error
    finally:
        sys.path.remove(here)
    found = getattr(module, attribute, None)
    if not callable(found):
        near = get_close_matches(attribute, [key for key, value in vars(module).items() if callable(value)], n=1)
        hint = f"did you mean {module_name}.{near[0]}?" if near else "name a class of losses"
        raise ValueError(f"the module {module_name} has no loss {attribute!r}: {hint} (--set loss.name=…)")
    return found


def _pytorch_metric_learning_class(name: str) -> Any:
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
