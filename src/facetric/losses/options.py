"""The options of a loss: names, types and defaults are those of its signature, descriptions the `Args:` of its docstring.

A configuration takes its [loss] keys from here, so a new loss brings its options along: write them into the constructor and
describe them under `Args:`.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

from torch import nn


@dataclass(frozen=True)
class Option:
    """One argument of a loss's constructor."""

    annotation: Any
    default: Any
    description: str  # empty if the docstring has none

    @property
    def is_required(self) -> bool:
        return self.default is inspect.Parameter.empty

    @property
    def may_be_none(self) -> bool:
        return type(None) in get_args(self.annotation)


def loss_options(loss: Callable[..., nn.Module]) -> dict[str, Option]:
    """The options of an entry of LOSSES, in the order of its signature. `seed` is not among them: a run has one seed for all.

    >>> from facetric.losses import NPairsLoss
    >>> {name: option.default for name, option in loss_options(NPairsLoss).items()}
    {'norm_weight': 0.002, 'normalize': False}
    """
    return dict(_options(loss))


@functools.cache
def _options(loss: Callable[..., nn.Module]) -> dict[str, Option]:
    descriptions = _argument_descriptions(inspect.getdoc(loss) or "")
    return {
        name: Option(parameter.annotation, parameter.default, descriptions.get(name, ""))
        for name, parameter in inspect.signature(loss, eval_str=True).parameters.items()
        if name != "seed" and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }


def _argument_descriptions(docstring: str) -> dict[str, str]:
    """What stands under `Args:`, by argument; continuation lines are joined."""
    section = re.search(r"^Args:\n((?: +.*\n?)+)", docstring, re.MULTILINE)
    if section is None:
        return {}
    entries = re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", section[1], re.MULTILINE)
    return {name: re.sub(r"\s*\n\s*", " ", text) for name, text in entries}
