"""The `facetric` command: thin, it parses, calls one function and prints."""
