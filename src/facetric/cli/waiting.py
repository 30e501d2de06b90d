"""Progress of long work: a bar on a terminal, a line elsewhere."""

from __future__ import annotations

from facetric.cli.errors import said_if_slow
from facetric.progress import steps_shown

__all__ = ["said_if_slow", "steps_shown"]
