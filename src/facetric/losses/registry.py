"""Losses by name: `LOSSES`, any other by dotted name, and their options, which are the arguments of their constructors.

A new loss is one class plus one line in `LOSSES`. Types and defaults of its options come from the signature; configurations take
and check them from here.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import torch
from torch import Tensor, nn

from facetric.losses.batch import checked_loss
from facetric.losses.facility_location import FacilityLocationLoss
from facetric.losses.pair_losses import (
    AffinityLoss,
    ContrastiveLoss,
    LiftedStructureLoss,
    NPairsLoss,
    TripletLoss,
    TripletSemihardLoss,
)
from facetric.text import did_you_mean

LOSSES: dict[str, Callable[..., nn.Module]] = {
    "facility_location": FacilityLocationLoss,
    "triplet_semihard": TripletSemihardLoss,
    "lifted_structure": LiftedStructureLoss,
    "npairs": NPairsLoss,
    "contrastive": ContrastiveLoss,
    "triplet": TripletLoss,
    "affinity": AffinityLoss,
}

Parameters = Mapping[str, inspect.Parameter]
PYTORCH_METRIC_LEARNING = "pytorch_metric_learning"
_PLAIN = {"float": float, "int": int, "bool": bool, "str": str}
NONE = "none"  # stands for None, which TOML lacks


def build_loss(
    name: str, options: Mapping[str, Any] | None = None, *, dim: int | None = None, n_classes: int | None = None, seed: int = 0
) -> nn.Module:
    """The loss of this name with these options.

    Args:
        name: a key of `LOSSES`, or a dotted name: "pytorch_metric_learning.ProxyAnchorLoss", "my_module.MyLoss": a class, a
            function that makes a loss, or a function loss(embeddings, labels) itself, whose first two arguments have no default.
            A module is imported from the installed packages or the current folder.
        options: arguments by their names, checked against the signature and its annotations.
        dim: length of an embedding, for a loss that takes `embedding_size`.
        n_classes: number of training classes, for a loss that takes `num_classes`.
        seed: of the loss's own weights (proxies, say), and of its generator if it takes a `seed`.

    Examples:
        >>> build_loss("triplet", {"margin": 0.2})
        TripletLoss(margin=0.2, normalize=True)
        >>> build_loss("triplet", {"margn": 0.2})
        Traceback (most recent call last):
        ValueError: loss 'triplet' takes no margn; it takes margin, normalize: leave loss.margn out
    """
    make = _constructor(name)
    parameters = _parameters(make)
    given = {"embedding_size": dim, "num_classes": n_classes, "seed": seed}
    sizes = {key: value for key, value in given.items() if value is not None and key in parameters}
    if is_plain := _is_the_loss(make, parameters, {**sizes, **(options or {})}):
        parameters = dict(list(parameters.items())[2:])
    arguments = {**sizes, **_checked_options(name, parameters, options or {}, filled_in=sizes)}
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            loss = FunctionLoss(name, make, arguments) if is_plain else make(**arguments)
    except ValueError as error:
        raise ValueError(f"loss {name!r}: {error}") from None
    except TypeError as error:
        way_out = f"set its options, as in --set {_key(name, 'margin')}=0.2"
        raise ValueError(f"loss {name!r} cannot be made ({error}): {way_out}") from error
    if not isinstance(loss, nn.Module):
        raise ValueError(
            f"{name} is not a torch.nn.Module but a {type(loss).__name__}: name a class of losses, a function that makes one, or "
            "a function loss(embeddings, labels)"
        )
    return loss


class FunctionLoss(nn.Module):
    """A function loss(embeddings, labels, **options) as a module."""

    def __init__(self, name: str, function: Callable[..., Any], options: dict[str, Any]) -> None:
        super().__init__()
        self.name, self.function, self.options = name, function, options

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Scalar loss of embeddings (m, d) with integer labels (m,)"""
        value = self.function(embeddings, labels, **self.options)
        if not isinstance(value, Tensor) or value.ndim:
            raise ValueError(
                f"{self.name}(embeddings, labels) must return a scalar tensor; got {' '.join(repr(value).split()):.60}: return "
                "one, or, in a function that makes a loss, give the arguments defaults"
            )
        return value


def _is_the_loss(make: Callable[..., Any], parameters: Parameters, given: Mapping[str, Any]) -> bool:
    """Whether this is a function of embeddings and labels: its first two arguments have no value, and are no numbers or text."""
    first = [option for option in list(parameters.values())[:2] if option.default is option.empty and option.name not in given]
    tensors = [each for each in first if each.kind <= each.POSITIONAL_OR_KEYWORD and each.annotation not in _PLAIN.values()]
    return not inspect.isclass(make) and len(tensors) == 2


def _checked_options(
    name: str, parameters: Parameters, options: Mapping[str, Any], *, filled_in: Mapping[str, Any]
) -> dict[str, Any]:
    """These options, each of the type that the signature of the loss says; the text "none" is None where that is allowed.

    `seed` is none of them: a run has one seed for all.
    """
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    known = {key: option for key, option in parameters.items() if key != "seed" and option.kind in kinds}
    is_open = any(option.kind is option.VAR_KEYWORD for option in parameters.values())
    others = ("reducer", "distance") if name.startswith(PYTORCH_METRIC_LEARNING) else options
    for key in options:
        if key not in known and not (is_open and key in others):
            takes = ", ".join(known) or "no options"
            raise ValueError(f"loss {name!r} takes no {key}; it takes {takes}: leave {_key(name, key)} out")
    for key, option in known.items():
        if option.default is option.empty and key not in {**options, **filled_in}:
            raise ValueError(f"loss {name!r} needs {key}: set it, as in --set {_key(name, key)}=…")
    return {key: _checked(name, known[key], value) if key in known else value for key, value in options.items()}


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


def _constructor(name: str) -> Callable[..., nn.Module]:
    """The class or function of this name."""
    if isinstance(name, str) and name in LOSSES:
        return LOSSES[name]
    if not isinstance(name, str) or "." not in name:
        hint = did_you_mean(str(name), LOSSES)
        raise ValueError(
            f"loss.name must be one of {', '.join(LOSSES)}, or a dotted name such as my_module.MyLoss; got {name!r}{hint}"
        )
    module_name, _, attribute = name.rpartition(".")
    is_theirs = module_name == PYTORCH_METRIC_LEARNING
    here = str(Path.cwd())
    sys.path.append(here)  # last: it hides no installed package
    try:
        module = import_module(f"{module_name}.losses" if is_theirs else module_name)
    except ImportError as error:
        own = "install its package, or start in the folder that holds its module"
        way_out = "pip install pytorch-metric-learning" if is_theirs else own
        raise ValueError(f"the loss {name!r} cannot be imported ({error}): {way_out}") from error
    finally:
        sys.path.remove(here)
    found = {key: make for key, make in vars(module).items() if callable(make) and (not is_theirs or key.endswith("Loss"))}
    if attribute not in found:
        near = get_close_matches(attribute, found, n=1)
        hint = f"; did you mean '{module_name}.{near[0]}'?" if near else f"; it has {', '.join(found)}"
        raise ValueError(f"{module_name} has no loss {attribute!r}{hint} (--set loss.name=…)")
    return found[attribute]  # type: ignore[no-any-return]


def _parameters(loss: Callable[..., nn.Module]) -> Parameters:
    try:
        return inspect.signature(loss, eval_str=True).parameters
    except NameError:  # a type that is imported for type checkers only
        options = inspect.signature(loss).parameters
        known: dict[Any, Any] = {**_PLAIN, inspect.Parameter.empty: inspect.Parameter.empty}
        return {key: option.replace(annotation=known.get(option.annotation, Any)) for key, option in options.items()}


def _checked(name: str, option: inspect.Parameter, value: Any) -> Any:
    kind_of_default = bool if isinstance(option.default, bool) else float if isinstance(option.default, int | float) else Any
    annotation = kind_of_default if option.annotation is option.empty else option.annotation
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    is_text, is_flag = isinstance(value, str), isinstance(value, bool)
    if NoneType in kinds and (value is None or (is_text and value == NONE)):
        return None
    fits = {
        float: ("a finite number", isinstance(value, int | float) and not is_flag and math.isfinite(value)),
        int: ("a whole number", isinstance(value, int) and not is_flag),
        bool: ("true or false", is_flag),
        str: ("text", is_text),
    }
    wanted = []
    for kind in (each for each in kinds if each is not NoneType):
        choices = get_args(kind) if get_origin(kind) is Literal else ()
        if (kind not in fits and not choices) or (kind in fits and fits[kind][1]) or value in choices:
            # What is no plain type the constructor knows. A number of images, say, is to stay whole.
            return float(value) if kind is float and not isinstance(option.default, int) else value
        wanted.append("one of " + ", ".join(map(str, choices)) if choices else fits[kind][0])
    key, usual = _key(name, option.name), NONE if option.default is None else option.default
    default = f"change it, as in --set {key}=…"
    if option.default is not option.empty:
        default = f"the default is {usual}, as in --set {key}={usual}"
    raise ValueError(f"{key} of {name!r} must be {' or '.join(wanted)}; got {value!r}: {default}")


def _key(name: str, option: str) -> str:
    """The key of the configuration that holds an option."""
    return f"loss.options.{option}" if "." in name else f"loss.{option}"
