"""Progress of long work: a bar on a terminal, a line elsewhere."""

from __future__ import annotations

from facetric.cli.errors import said_if_slow
from facetric.progress import OnStep, steps_shown

__all__ = ["indented", "said_if_slow", "steps_shown"]


def indented(on_step: OnStep, title: str = "") -> OnStep:
    """The same steps, as parts of a stage that has been announced."""
    return lambda name, done, total: on_step(f"  {title}{name.lower()}", done, total)
