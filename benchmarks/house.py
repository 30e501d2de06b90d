"""The size of the house: what a newcomer has to read, and how often one room calls another on the six walks.

    python benchmarks/house.py [TREE ...] [--walks] [--calls WALK]

Counts a checkout (this one unless told): lines, files, rooms, public definitions, names that doors offer, imports past a
door, file names that recur, words of docs, words that have a better one. With --walks it runs the six walks of ARCHITECTURE.md
on small photos and counts distinct calls from one room into another, and those into a room
that the caller may not import (upwards).
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
GONE = (
    "picture", "InputSpec", "ImageFormat", "PictureFormat", "OnnxNetwork", "TakesPictures", "PhotoIndex", "VectorStore",
    "PhotoStore", "PhotoVectors", "FolderEmbedding", "Embeddings", "dimensions", "n_workers", "n_jobs", "on_progress", "promise",
    "piles", "doubt", "foreign", "sealed",
)  # fmt: skip
WALKS = ("step", "train", "evaluate", "cluster", "index", "serve")


def count(tree: Path) -> dict[str, int]:
    source = tree / "src/facetric"
    files = sorted(source.rglob("*.py"))
    rooms = {path.parent.name for path in source.glob("*/__init__.py")}
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    parsed = {file: ast.parse(text) for file, text in texts.items()}
    names = Counter(f.name for f in files if not f.name.startswith("__") and "cli" not in f.relative_to(source).parts)
    docs = " ".join(page.read_text(encoding="utf-8") for page in (tree / "docs").glob("*.md"))
    return {
        "lines": sum(len(text.splitlines()) for text in texts.values()),
        "files": len(files),
        "rooms": len(rooms),
        "public definitions": sum(_public(node) for module in parsed.values() for node in module.body),
        "names that doors offer": sum(len(_offered(parsed[source / room / "__init__.py"])) for room in rooms),
        "imports past a door": sum(len(list(past_doors(source, file))) for file in files),
        "file names that recur": sum(n > 1 for n in names.values()),
        "names with a word that has a better one": sum(
            any(re.search(rf"(^|_){word}", name) for word in GONE) for module in parsed.values() for name in _names(module)
        ),
        "lines of tests": sum(len(file.read_text(encoding="utf-8").splitlines()) for file in (tree / "tests").rglob("*.py")),
        "words in docs": len(docs.split()),
    }


def past_doors(source: Path, file: Path) -> Iterator[str]:
    """Imports of this file that name a module inside another room."""
    parts = file.relative_to(source).parts
    own = parts[0] if len(parts) > 1 else ""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        modules: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        for module in modules:
            steps = module.split(".")
            is_ours = steps[0] == "facetric" and len(steps) > 2 and steps[1] != own and (source / steps[1]).is_dir()
            if is_ours and not _is_door(source, steps[1:]):
                yield module


def _is_door(source: Path, steps: list[str]) -> bool:
    """An inner room, or the second door of metrics."""
    return source.joinpath(*steps).is_dir() or steps == ["metrics", "kernels"]


def _names(module: ast.Module) -> Iterator[str]:
    """What the code calls its things; not the keywords of libraries, nor prose."""
    for node in ast.walk(module):
        for field in ("id", "arg", "attr", "name"):
            name = getattr(node, field, None)
            if isinstance(name, str) and not isinstance(node, ast.keyword):
                yield name


def _public(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")


def _offered(module: ast.Module) -> list[str]:
    for node in module.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
        ):
            return list(ast.literal_eval(node.value))
    return []


def allowed(tree: Path) -> dict[str, set[str]]:
    """Who may import whom, as the tree's own test says."""
    file = next(file for name in ("test_doors.py", "test_layers.py") if (file := tree / "tests" / name).is_file())
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "ALLOWED" for target in node.targets
        ):
            return eval(compile(ast.Expression(node.value), str(file), "eval"), {"set": set})  # type: ignore[no-any-return]
    raise ValueError(f"{file} has no ALLOWED")


def walk_calls(tree: Path, walk: str) -> list[list[str]]:
    """The distinct calls of one walk, in a process of its own with the modules of that tree: caller's room, callee."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(tree / "tests")]), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, str(Path(__file__).with_name("house_walks.py")), walk, place]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the walk {walk!r} failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def upwards(calls: list[list[str]], may: dict[str, set[str]]) -> list[list[str]]:
    """Calls into a room that the caller's room may not import."""
    return [
        [room, callee]
        for room, callee in calls
        if room != "cli" and callee.split(".")[0] not in may.get(room, set()) | {"metrics"}
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", nargs="*", type=Path, default=[HERE])
    parser.add_argument("--walks", action="store_true", help="also run the walks: minutes")
    parser.add_argument("--calls", choices=WALKS, help="list the calls of one walk")
    options = parser.parse_args()
    columns = []
    for tree in map(Path.resolve, options.trees):
        if options.calls:
            for room, callee in walk_calls(tree, options.calls):
                print(f"{room:12} → {callee}")
            continue
        column: dict[str, object] = dict(count(tree))
        if options.walks:
            for walk in WALKS:
                calls = walk_calls(tree, walk)
                column[f"calls: {walk}"] = f"{len(calls)} ({len(upwards(calls, allowed(tree)))} up)"
        columns.append(column)
    for name in columns[0] if columns else ():
        print(f"{name:34}" + "".join(f"{column.get(name, '–')!s:>16}" for column in columns))


if __name__ == "__main__":
    main()
