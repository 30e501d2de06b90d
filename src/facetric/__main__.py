"""The `facetric` command and `python -m facetric`. Without the extra that brings the commands, one line names it."""

import sys

from facetric.extras import MissingExtraError


def main() -> None:
    """Run the command line."""
    try:
        from facetric.cli.main import app
    except MissingExtraError as error:
        sys.exit(f"facetric: {error}")
    app()


if __name__ == "__main__":
    main()
