"""An index of synthetic vectors: building, updating 1%, searching, memory and disk, beside other engines, in one run.

    python benchmarks/index.py [--vectors 1000000] [--dim 64] [--queries 200] [--engines facetric faiss …]

    python benchmarks/index.py --photos path/to/CUB_200_2011/images [--queries 200]

Vectors are noisy copies of random centers, of length one. Every engine finds the 10 nearest of the same queries, one at a time,
and its answers are compared with those of brute force in float64. "CPU" is the processor time of all threads: it hardly changes
when others use the machine. Memory is how much the process grew while an engine was open. LanceDB and Milvus Lite search exactly
too (no index; FLAT); an engine that is not installed is skipped, and named. Each engine runs in a process of its own. With
--folder the files are kept, and the same command again only searches.

With photos: how many `facetric index add` embeds a second with the packaged network, in one process.
"""

import argparse
import hashlib
import importlib.util
import json
import shutil
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
        from facetric.photos.sqlite_store import SqliteStore
        from facetric.photos.store import Model

        place.mkdir(parents=True, exist_ok=True)
        self._open = lambda read_only: SqliteStore(str(place), Model("f" * 64, d, None), read_only=read_only)
        self.store = None

    def write(self, rows, vectors):
        from facetric.photos.store import NewPhoto

        self.store = self.store or self._open(False)
        for start in range(0, len(rows), 10_000):
            part = list(zip(rows[start : start + 10_000], vectors[start : start + 10_000], strict=True))
            self.store.add(
                NewPhoto(name(row), "", hashlib.blake2b(vector.tobytes(), digest_size=16).digest(), vector)
                for row, vector in part
            )

    def ready(self):
        """Close, open for reading, load into memory."""
        if self.store:
            self.store.close()
        self.store = self._open(True)
        self.store.search(np.ones((1, self.store.model.dim), dtype=np.float32), top=1)

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

        self.base = lancedb.connect(str(place))
        self.table = self.base.open_table("photos") if (place / "photos.lance").exists() else None

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
        if self.client.has_collection("photos"):
            return
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


ENGINES = {"facetric": Facetric, "faiss": Faiss, "lancedb": Lance, "milvus_lite": MilvusLite}  # by the package that it needs


def name(row):
    return Path(f"/photos/{row // 1000:06}/{row:09}.jpg")


def timed(work, *arguments):
    start = time.perf_counter()
    result = work(*arguments)
    return time.perf_counter() - start, result


def changes(options):
    """The rows that change, and their new vectors."""
    rows = np.random.default_rng(2).choice(options.vectors, options.vectors // 100, replace=False)
    return rows, made(len(rows), options.dim, seed=3)


def built(engine, place, options):
    """Write the files of an engine; how long it took."""
    opened = ENGINES[engine](place, options.dim)
    vectors = made(options.vectors, options.dim)
    cpu = time.process_time()
    build, _ = timed(opened.write, np.arange(len(vectors)), vectors)
    cpu = time.process_time() - cpu
    update, _ = timed(opened.write, *changes(options))
    return {"build s": build, "build CPU s": cpu, "update 1% s": update}


def searched(engine, place, options):
    queries, exact = made(options.queries, options.dim, seed=1), np.load(options.exact)
    opened = ENGINES[engine](place, options.dim)
    before = memory()
    seconds, _ = timed(opened.ready)
    times, right, cpu = [], 0, time.process_time()
    for query, expected in zip(queries, exact.tolist(), strict=True):
        duration, rows = timed(opened.search, query)
        times.append(1000 * duration)
        right += rows == expected
    cpu = 1000 * (time.process_time() - cpu) / len(queries)
    p50, p99 = np.quantile(times, [0.5, 0.99])
    return {
        "open s": seconds,
        "memory MB": memory() - before,
        "query p50 ms": p50,
        "query p99 ms": p99,
        "query CPU ms": cpu,
        "as brute force": right / len(queries),
    }


def brute_force(options):
    """(queries, TOP) rows, the most similar first, in float64."""
    vectors, queries = made(options.vectors, options.dim), made(options.queries, options.dim, seed=1)
    changed, new = changes(options)
    vectors[changed] = new
    rows, values = np.empty((len(queries), 0), dtype=np.int64), np.empty((len(queries), 0))
    for start in range(0, len(vectors), 50_000):
        part = queries.astype(np.float64) @ vectors[start : start + 50_000].astype(np.float64).T
        best = np.argpartition(-part, TOP, axis=1)[:, : TOP + 1]
        rows = np.concatenate([rows, best + start], axis=1)
        values = np.concatenate([values, np.take_along_axis(part, best, axis=1)], axis=1)
    order = np.lexsort((rows, -values))[:, :TOP]
    return np.take_along_axis(rows, order, axis=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--photos", type=Path, help="measure embedding: a folder of photos, of which --queries are embedded")
    parser.add_argument("--folder", type=Path, help="keep the files in this folder")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--exact", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        print(json.dumps(STEPS[options.step](options.engines[0], options.folder, options)))
        return
    if options.photos:
        embedded(options.photos, options.queries)
        return
    print(f"{options.vectors:,} × {options.dim} float32, {options.queries} queries, top {TOP}")
    with tempfile.TemporaryDirectory() as temporary:
        compare(options, options.folder or Path(temporary))


def embedded(folder, n_photos):
    """Photos a second, from files to rows of an index."""
    import facetric

    model = facetric.load()
    photos = sorted(folder.rglob("*.jpg"))
    photos = [photos[i] for i in np.linspace(0, len(photos) - 1, n_photos).astype(int)]
    with tempfile.TemporaryDirectory() as temporary:
        for i, photo in enumerate(photos):
            shutil.copy(photo, Path(temporary) / f"{i:05}.jpg")
        model.encode(photos[:32])  # whatever happens once
        cpu = time.process_time()
        seconds, _ = timed(facetric.open_collection(Path(temporary) / "index", model).add, temporary)
        cpu = time.process_time() - cpu
    print(f"{n_photos} photos: {n_photos / seconds:.1f} a second, {n_photos / cpu:.1f} in a second of processor time")


def compare(options, folder):
    size = ["--vectors", options.vectors, "--dim", options.dim, "--queries", options.queries]
    exact = folder / f"exact-{options.vectors}-{options.dim}-{options.queries}.npy"
    if not exact.exists():
        folder.mkdir(parents=True, exist_ok=True)
        np.save(exact, brute_force(options))
    for engine in options.engines:
        if importlib.util.find_spec(engine) is None:
            print(f"{engine:12} skipped: it is not installed", flush=True)
            continue
        place = folder / f"{engine}-{options.vectors}-{options.dim}"
        record = place.with_suffix(".json")
        if not record.exists():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            record.write_text(json.dumps(step("built", engine, place, size)))
        values = (
            json.loads(record.read_text()) | {"disk MB": disk(place)} | step("searched", engine, place, [*size, "--exact", exact])
        )
        print(f"{engine:12}", "  ".join(f"{key} {value:,.2f}" for key, value in values.items()), flush=True)


def step(name, engine, place, options):
    """One step in a process of its own."""
    command = [sys.executable, __file__, "--step", name, "--engines", engine, "--folder", place, *options]
    done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


STEPS = {"built": built, "searched": searched}


if __name__ == "__main__":
    main()
