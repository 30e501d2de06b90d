"""Errors of the library say `top=10`, which somebody in Python can type; the commands make `--top 10` of it."""

import ast
import re
from pathlib import Path

import pytest

import facetric
from facetric.cli.errors import _as_options

HOUSE = Path(facetric.__file__).parent
FILES = [
    *HOUSE.glob("photos/*.py"),
    *HOUSE.glob("service/*.py"),
    *(HOUSE / "embedder" / name for name in ("embedder.py", "vectors_file.py")),
]


def words(node):
    """A text in the code, with "…" for what is computed."""
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_no_error_of_python_names_an_option_of_a_command(file):
    """A whole command between backticks may have options."""
    raised = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Raise)]
    texts = [re.sub("`[^`]*`", "", words(node)) for error in raised for node in ast.walk(error)]
    assert [text for text in texts if re.search(r"(?<![\w-])--[a-z]", text)] == []


@pytest.mark.parametrize(
    ("command", "python", "shown"),
    [
        ("search", "got 0: top=10 shows ten photos", "got 0: --top 10 shows ten photos"),
        ("search", "try at_least=0.8", "try --at-least 0.8"),
        ("embed", "choose another file, or pass overwrite=True", "choose another file, or pass --overwrite"),
        ("embed", "leave device= out, or", "leave --device out, or"),
        ("cluster", "pass one of n_clusters=, finer= and coarser=", "pass one of --clusters, --finer and --coarser"),
        ("cluster", "or pass a number of groups (n_clusters=8)", "or pass a number of groups (--clusters 8)"),
        ("cluster", "pass a folder (copy_to=)", "pass a folder (--copy-to)"),
        ("serve", "got 0 requests: raise it (requests=)", "got 0 requests: raise it (--max-requests)"),
        ("index add", "pass label= or labels_from_folders=True, not", "pass --label or --labels-from-folders, not"),
        ("index status", "top=10 is of another command", "top=10 is of another command"),
        ("cluster", "as in --set data.output=x or my_output=y", "as in --set data.output=x or my_output=y"),
        ("no command", "top=10", "top=10"),
    ],
)
def test_arguments_become_the_options_of_the_command_that_runs(command, python, shown):
    assert _as_options(command, python) == shown
