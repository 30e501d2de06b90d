"""An index of synthetic vectors: building, updating 1%, searching, memory and disk, beside other engines, in one run.

python benchmarks/index.py [--vectors 1000000] [--dimensions 64] [--queries 200] [--lance] [--milvus]

Vectors are noisy copies of random centers, of length one. Every engine finds the 10 nearest of the same queries, one at a time,
and its answers are compared with those of brute force in float64. Memory is how much the process grew while an engine was open.
LanceDB and Milvus Lite search exactly too (no index; FLAT). Each engine runs in a process of its own.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

TOP = 10


def made(n, d, seed=0):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(1000, d)).astype(np.float32)
    vectors = centers[rng.integers(0, len(centers), n)] + 0.5 * rng.normal(size=(n, d)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def memory():
    """Megabytes that this process holds, file mappings left out."""
    fields = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) / 1000


def disk(place):
    return sum(file.stat().st_size for file in place.rglob("*") if file.is_file()) / 1e6


class Facetric:
    def __init__(self, place, d):
        from facetric.index.sqlite_store import SqliteStore

        self._open = lambda read_only: SqliteStore(
            place / "index.sqlite", fingerprint="f" * 64, dimensions=d, read_only=read_only
        )
        self.store = self._open(False)

    def write(self, rows, vectors):
        from facetric.photos.store import EmbeddedPhoto

        for start in range(0, len(rows), 10_000):
            part = list(zip(rows[start : start + 10_000], vectors[start : start + 10_000], strict=True))
            self.store.add(
                EmbeddedPhoto(name(row), "", hashlib.blake2b(vector.tobytes(), digest_size=16).digest(), vector)
                for row, vector in part
            )

    def ready(self):
        """Close, open for reading, load into memory."""
        self.store.close()
        self.store = self._open(True)
        self.store.search(np.ones((1, self.store.dimensions), dtype=np.float32), top=1)

    def search(self, query):
        (hits,) = self.store.search(query[None], top=TOP)
        return [int(Path(hit.entry.path).stem) for hit in hits]


class Faiss:
    """Vectors in memory, written to a file once; it keeps no paths and cannot replace a vector, so an update builds it again."""

    def __init__(self, place, d):
        import faiss

        self.faiss, self.file, self.d, self.vectors = faiss, str(place / "flat.faiss"), d, np.empty((0, d), dtype=np.float32)

    def write(self, rows, vectors):
        if len(self.vectors):
            self.vectors[rows] = vectors
        else:
            self.vectors = vectors.copy()
        index = self.faiss.IndexFlatIP(self.d)
        index.add(self.vectors)
        self.faiss.write_index(index, self.file)

    def ready(self):
        self.index = self.faiss.read_index(self.file)

    def search(self, query):
        return self.index.search(query[None], TOP)[1][0].tolist()


class Lance:
    def __init__(self, place, d):
        import lancedb

        self.base, self.table = lancedb.connect(str(place)), None

    def write(self, rows, vectors):
        import pyarrow as pa

        flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
        table = pa.table({"row": pa.array(np.asarray(rows, dtype=np.int64)), "vector": flat})
        if self.table is None:
            self.table = self.base.create_table("photos", table)
        else:
            self.table.merge_insert("row").when_matched_update_all().when_not_matched_insert_all().execute(table)

    def ready(self):
        pass

    def search(self, query):
        found = self.table.search(query).distance_type("dot").limit(TOP).to_arrow()
        return found["row"].to_pylist()


class MilvusLite:
    def __init__(self, place, d):
        from pymilvus import DataType, MilvusClient

        self.client = MilvusClient(str(place / "milvus.db"))
        schema = self.client.create_schema(auto_id=False)
        schema.add_field("row", DataType.INT64, is_primary=True)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=d)
        index = self.client.prepare_index_params()
        index.add_index("vector", index_type="FLAT", metric_type="IP")
        self.client.create_collection("photos", schema=schema, index_params=index)

    def write(self, rows, vectors):
        for start in range(0, len(rows), 5000):
            part = zip(rows[start : start + 5000], vectors[start : start + 5000], strict=True)
            self.client.upsert("photos", [{"row": int(row), "vector": vector} for row, vector in part])

    def ready(self):
        self.client.load_collection("photos")

    def search(self, query):
        (hits,) = self.client.search("photos", [query], limit=TOP)
        return [hit["row"] for hit in hits]


ENGINES = {"facetric": Facetric, "faiss": Faiss, "lance": Lance, "milvus": MilvusLite}


def name(row):
    return Path(f"/photos/{row // 1000:06}/{row:09}.jpg")


def timed(work, *arguments):
    start = time.perf_counter()
    result = work(*arguments)
    return time.perf_counter() - start, result


def measured(engine, options):
    n, d = options.vectors, options.dimensions
    vectors, queries = made(n, d), made(options.queries, d, seed=1)
    changed = np.random.default_rng(2).choice(n, n // 100, replace=False)
    new = made(len(changed), d, seed=3)
    found = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        place = Path(folder)
        opened = ENGINES[engine](place, d)
        found["build s"], _ = timed(opened.write, np.arange(n), vectors)
        found["update 1% s"], _ = timed(opened.write, changed, new)
        vectors[changed] = new
        before = memory()
        found["open s"], _ = timed(opened.ready)
        found["memory MB"] = memory() - before
        times, right = [], 0
        for query in queries:
            seconds, rows = timed(opened.search, query)
            times.append(1000 * seconds)
            right += rows == brute_force(vectors, query)
        found["query p50 ms"], found["query p99 ms"] = np.quantile(times, [0.5, 0.99])
        found["as brute force"] = right / len(queries)
        found["disk MB"] = disk(place)
    return found


def brute_force(vectors, query):
    exact = np.empty(len(vectors))
    for start in range(0, len(vectors), 50_000):
        exact[start : start + 50_000] = vectors[start : start + 50_000].astype(np.float64) @ query.astype(np.float64)
    best = np.argpartition(-exact, TOP)[: TOP + 1]
    return best[np.lexsort((best, -exact[best]))][:TOP].tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--dimensions", type=int, default=64)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--lance", action="store_true", help="also LanceDB (pip install lancedb)")
    parser.add_argument("--milvus", action="store_true", help="also Milvus Lite (pip install pymilvus milvus-lite)")
    parser.add_argument("--folder", default=None, help="where the files are written; the system's temporary folder")
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine:
        print(json.dumps(measured(options.engine, options)))
        return
    print(f"{options.vectors:,} × {options.dimensions} float32, {options.queries} queries, top {TOP}")
    for engine in ["facetric", "faiss", *["lance"] * options.lance, *["milvus"] * options.milvus]:
        command = [sys.executable, __file__, *sys.argv[1:], "--engine", engine]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        values = json.loads(done.stdout.splitlines()[-1])
        print(f"{engine:9}", "  ".join(f"{key} {value:,.2f}" for key, value in values.items()), flush=True)


if __name__ == "__main__":
    main()
