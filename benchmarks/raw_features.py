"""The baselines: the features of a frozen backbone, and a closed-form head on them, on the test classes of a dataset.

    FACETRIC_DATA=path/to/datasets python benchmarks/raw_features.py [--dataset cub] [--pooling gem] [--dims 64 512]

Pooled features of length one, center crop of the 256×256 picture, cosine distance. The head is fitted to the training classes,
without a gradient step. The embeddings are kept in --out.
"""

import argparse
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import get_args

from facetric.embedder import Vectors, build_network, encode
from facetric.embedder.heads import closed_form_head
from facetric.embedder.network import Pooling
from facetric.evaluation import evaluate
from facetric.images.readers import load_dataset

FOLDERS = {"cub": "CUB_200_2011", "cars": "Cars196", "products": "Stanford_Online_Products"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="cub", choices=FOLDERS)
    parser.add_argument("--root", help="the dataset's folder; below FACETRIC_DATA when left out")
    parser.add_argument("--backbone", default="tf_efficientnet_lite0")
    parser.add_argument("--pooling", default="average", choices=get_args(Pooling))
    parser.add_argument("--restarts", type=int, default=5)
    parser.add_argument("--dims", type=int, nargs="*", default=[64, 512], help="of the closed-form head; none for features only")
    parser.add_argument("--out", type=Path, default=Path("raw-features"))
    options = parser.parse_args()
    root = options.root or Path(os.environ.get("FACETRIC_DATA", ".")) / FOLDERS[options.dataset]
    dataset = load_dataset(options.dataset, root=root)
    network = build_network(options.backbone, dim=None, pooling=options.pooling)

    start = time.perf_counter()
    splits = ("test", "train") if options.dims else ("test",)
    found = {}
    for split in splits:
        part = dataset.select(split)
        found[split] = Vectors(encode(network, part.source), tuple(map(str, part.images)), part.labels)
    print(f"Frozen {options.backbone}, {options.pooling} pooling, embedded in {time.perf_counter() - start:.1f} s")
    test = found["test"]
    options.out.mkdir(parents=True, exist_ok=True)
    test.save(options.out / f"{options.dataset}.npz")
    ks = (1, 10, 100, 1000) if options.dataset == "products" else (1, 2, 4, 8)

    def scored(title, vectors, **source):
        report = evaluate(vectors, test.labels, ks=ks, n_restarts=options.restarts, facility=True)
        about = {**test.source, "dataset": options.dataset, "split": "test", "backbone": options.backbone, **source}
        report = replace(report, source=about)
        print(f"\n{title}\n{report}", flush=True)
        return report

    scored("Features", test.vectors).save(options.out / f"{options.dataset}.json")
    for dim in options.dims:
        head = closed_form_head(found["train"].vectors, found["train"].labels, dim)
        report = scored(f"Closed-form head, d = {dim}", head(test.vectors), shrinkage=head.shrinkage)
        report.save(options.out / f"{options.dataset}-{dim}.json")


if __name__ == "__main__":
    main()
