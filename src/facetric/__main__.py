"""The `facetric` command and `python -m facetric`. Without the extra that brings the commands, one line names it."""

import sys

import facetric


def main() -> None:
    """Run the command line."""
    try:
        app = facetric.cli.app
    except ImportError as error:
        sys.exit(f"facetric: {error}")
    app()


if __name__ == "__main__":
    main()
