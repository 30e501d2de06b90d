"""`python -m facetric` is the `facetric` command."""

from facetric.cli.main import app

app()
