"""The `facetric` command: thin, it parses, calls one function and prints."""

from facetric.cli.main import app

__all__ = ["app"]
