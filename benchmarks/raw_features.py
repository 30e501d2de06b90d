"""The baseline: the features of a frozen backbone without training, on the test classes of a dataset.

    FACETRIC_DATA=path/to/datasets python benchmarks/raw_features.py [--dataset cub] [--backbone NAME] [--views 1]

Pooled features of length one, center crop of the 256×256 picture, cosine distance. The embeddings are kept in --out.
"""

import argparse
import os
import time
from pathlib import Path

from facetric.data import load_dataset
from facetric.evaluation import embed, evaluate
from facetric.models import build_embedder

FOLDERS = {"cub": "CUB_200_2011", "cars": "Cars196", "products": "Stanford_Online_Products"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="cub", choices=FOLDERS)
    parser.add_argument("--root", help="the dataset's folder; below FACETRIC_DATA when left out")
    parser.add_argument("--backbone", default="tf_efficientnet_lite0")
    parser.add_argument("--views", type=int, default=1)
    parser.add_argument("--restarts", type=int, default=5)
    parser.add_argument("--out", default="raw-features")
    options = parser.parse_args()
    root = options.root or Path(os.environ.get("FACETRIC_DATA", ".")) / FOLDERS[options.dataset]
    dataset = load_dataset(options.dataset, root=root).select("test")
    embedder = build_embedder(options.backbone)

    start = time.perf_counter()
    embeddings = embed(embedder, dataset, features=True, views=options.views, folder=options.out)
    embedded = time.perf_counter()
    embeddings.save(Path(options.out) / f"{options.dataset}.npz")
    ks = (1, 10, 100, 1000) if options.dataset == "products" else (1, 2, 4, 8)
    report = evaluate(embeddings.vectors, embeddings.labels, ks=ks, n_restarts=options.restarts, facility=True)
    scored = time.perf_counter()
    report = report.with_source(**embeddings.source, dataset=options.dataset, split="test", backbone=options.backbone)
    report.save(Path(options.out) / f"{options.dataset}.json")
    print(f"Frozen {options.backbone}, embedded in {embedded - start:.1f} s, scored in {scored - embedded:.1f} s")
    print(report)


if __name__ == "__main__":
    main()
