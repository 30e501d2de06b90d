"""The service under load: searches per second and latency for 1, 8 and 64 clients beside the bare model call, and memory.

python benchmarks/service.py [--vectors 100000] [--dim 64] [--requests 400] [--memory 10000]

A process serves an index of synthetic vectors with the packaged network and an untrained head; clients in this process send
JPEG pictures of 640 × 480 over connections that stay open. The bare call is what one request needs, in a loop in this process:
decode, embed, search. The server runs at a time when the bare call does not.
"""

import argparse
import asyncio
import io
import os
import signal
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

import numpy as np
from PIL import Image

from facetric.machine import prepare_process

FINGERPRINT = "f" * 64


def network(dim):
    import torch

    from facetric.embedder import Embedder, build_network

    torch.manual_seed(0)
    embedder = build_network("tf_efficientnet_lite0", dim=dim, weights="packaged")
    return Embedder(embedder, fingerprint=FINGERPRINT)


def write_index(place, n, d):
    """Noisy copies of 200 centers, labeled by center; there are no files."""
    from facetric.photos.sqlite_store import SqliteStore
    from facetric.photos.store import Model, NewPhoto

    rng = np.random.default_rng(0)
    centers = rng.normal(size=(200, d)).astype(np.float32)
    classes = rng.integers(0, len(centers), n)
    vectors = centers[classes] + 0.5 * rng.normal(size=(n, d)).astype(np.float32)
    place.mkdir(parents=True)
    paths = [f"/photos/{label:03}/{i:07}.jpg" for i, label in enumerate(classes)]
    with SqliteStore(str(place), Model(FINGERPRINT, d, None)) as store:
        for start in range(0, n, 10_000):
            rows = range(start, min(start + 10_000, n))
            store.add(NewPhoto(Path(paths[i]), "", i.to_bytes(16, "big"), vectors[i]) for i in rows)
        store.set_labels({path: path.split("/")[2] for path in paths})
        store.make_current()


def pictures(n=32):
    found = []
    for seed in range(n):
        small = np.random.default_rng(seed).integers(0, 256, (9, 12, 3), dtype=np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(small).resize((640, 480), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=90)
        found.append(buffer.getvalue())
    return found


def bare(options, place, n):
    """Milliseconds of each call, one after the other."""
    from facetric.photos import open_collection
    from facetric.service.engine import N_VOTERS
    from facetric.service.service import image_pixels

    model = network(options.dim)
    index, data, times = open_collection(place, model), pictures(), []
    for i in range(n + 5):
        start = time.perf_counter()
        pixels = image_pixels(data[i % len(data)], model, 50_000_000)
        hits = index.nearest(model.encode([pixels]), top=10)
        index.matched("", hits[0], N_VOTERS, None, N_VOTERS)
        times.append(1000 * (time.perf_counter() - start))
    return np.array(times[5:])


async def one_client(port, data, numbers, n, times):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while (number := next(numbers)) < n:
        body = data[number % len(data)]
        start = time.perf_counter()
        writer.write(f"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert head.startswith("http/1.1 200 "), head
        await reader.readexactly(int(head.partition("content-length: ")[2].split()[0]))
        times.append(1000 * (time.perf_counter() - start))
    writer.close()


async def load(port, n_clients, n):
    """Requests per second, and the milliseconds of each."""
    data, numbers, times = pictures(), count(), []
    start = time.perf_counter()
    await asyncio.gather(*(one_client(port, data, numbers, n, times) for _ in range(n_clients)))
    return n / (time.perf_counter() - start), np.array(times)


def memory(process):
    fields = dict(line.split(":") for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) / 1000


def serve_index(options):
    from facetric.service import Limits, serve

    serve(
        network(options.dim),
        options.serve,
        port=0,
        limits=Limits(seconds=120, requests=128),
        on_ready=lambda x: print(x, flush=True),
    )


def started(options, place):
    sizes = ["--dim", str(options.dim)]
    process = subprocess.Popen([sys.executable, __file__, *sizes, "--serve", str(place)], stdout=subprocess.PIPE, text=True)
    return process, int(process.stdout.readline().rpartition(":")[2])


def line(name, rate, times, base):
    p50, p99 = np.quantile(times, [0.5, 0.99])
    print(f"{name:>12}: {rate:7.1f} per second ({rate / base:4.2f} × bare), p50 {p50:7.1f} ms, p99 {p99:7.1f} ms", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--requests", type=int, default=400, help="for each number of clients")
    parser.add_argument("--memory", type=int, default=0, help="requests over which memory is watched")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve_index(options)
        return
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "synthetic.index"
        write_index(place, options.vectors, options.dim)
        print(f"{options.vectors:,} × {options.dim} vectors, {os.cpu_count()} cores, JPEG of 640 × 480")
        times = bare(options, place, max(20, options.requests // 4))
        base = 1000 / times.mean()
        line("bare call", base, times, base)
        process, port = started(options, place)
        asyncio.run(load(port, 8, 32))
        for n_clients in (1, 8, 64):
            line(f"{n_clients} clients", *asyncio.run(load(port, n_clients, options.requests)), base)
        if options.memory:
            held = [memory(process.pid)]
            for _ in range(5):
                asyncio.run(load(port, 64, options.memory // 5))
                held.append(memory(process.pid))
            print(f"memory over {options.memory:,} requests: " + " → ".join(f"{one:,.0f}" for one in held) + " MB")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM


if __name__ == "__main__":
    prepare_process()
    main()
