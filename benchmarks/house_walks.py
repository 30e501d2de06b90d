"""One walk through the rooms, recorded: `python benchmarks/house_walks.py WALK FOLDER`, called by house.py.

Prints the distinct calls from one room into another as JSON: the caller's room and the callee's module and name. Preparations
that the walk needs (a run to evaluate, an index to serve) are made first and not recorded.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from PIL import Image

CALLS: set[tuple[str, str]] = set()
SMALL = (
    *("run.steps=2", "run.threads=1", "run.choose_minutes=0", "data.size=72", "data.options.test_fraction=0.5"),
    "model.image_size=64",
)


def room(frame: FrameType) -> str:
    """The top folder of a frame of ours; "" for others and for the helpers at the root."""
    parts = str(frame.f_globals.get("__name__", "")).split(".")
    return parts[1] if parts[0] == "facetric" and len(parts) > 2 else ""


def note(frame: FrameType, event: str, _: Any) -> None:
    if event != "call" or not (callee := room(frame)) or frame.f_code.co_name in ("<module>", "backward"):
        return  # torch calls backward, on a thread of its choice
    back = frame.f_back
    if back is not None and back.f_globals.get("__name__") == "logging":  # a message on its way to the handler of the command
        return
    while back is not None and not room(back):
        back = back.f_back
    if back is not None and room(back) != callee:
        module = frame.f_globals["__name__"].removeprefix("facetric.")
        CALLS.add((room(back), f"{module}.{frame.f_code.co_qualname}"))


@contextlib.contextmanager
def recorded() -> Iterator[None]:
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def facetric(*arguments: object) -> None:
    from facetric.cli.main import app

    try:
        app([str(argument) for argument in arguments], standalone_mode=False)
    except SystemExit as end:
        if end.code:
            raise RuntimeError(f"facetric {arguments} ended with {end.code}") from end


def photos(folder: Path, n_classes: int = 8, n: int = 8) -> Path:
    rng = np.random.default_rng(0)
    for label in range(n_classes):
        (folder / f"class {label}").mkdir(parents=True)
        color = rng.integers(0, 256, 3)
        for number in range(n):
            pixels = np.clip(color + rng.normal(0, 12, (80, 96, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"class {label}" / f"{number}.jpg")
    return folder


def train(place: Path) -> None:
    settings = [f"--set={setting}" for setting in SMALL]
    facetric("train", "--data", "folder", "--root", place / "photos", "--output", place / "run", "-q", *settings)


def step(place: Path) -> None:
    """From the end of one training step to the end of the next."""
    from facetric.runs import read_config
    from facetric.training import train as run

    settings = [
        "run.steps=6",
        f"run.folder={place}",
        "run.name=run",
        "run.threads=1",
        "run.log_every=1",
        "batches.size=24",
        "optimizer.warmup_steps=0",
    ]
    config = read_config(Path(__file__).parent.parent / "configs" / "glyphs.toml", overrides=settings)

    def on_step(number: int, _: float) -> None:
        sys.setprofile(note if number == 3 else None)
        threading.setprofile(note if number == 3 else None)  # type: ignore[arg-type]

    run(config, on_step=on_step)


def serve(place: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def ask() -> None:
        photo = next((place / "photos").rglob("*.jpg")).read_bytes()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/search", data=photo, headers={"Content-Type": "image/jpeg"})
        try:
            for _ in range(200):
                try:
                    print(urllib.request.urlopen(request).read()[:80], file=sys.stderr)
                    break
                except urllib.error.HTTPError as error:
                    print(error.read(), file=sys.stderr)
                    break
                except OSError:
                    threading.Event().wait(0.1)
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    asking = threading.Thread(target=ask)
    asking.start()
    with contextlib.suppress(KeyboardInterrupt):
        facetric("serve", place / "index", "--port", port)
    asking.join()


def main() -> None:
    walk, place = sys.argv[1], Path(sys.argv[2])
    os.environ["FACETRIC_CACHE"] = str(place / "cache")
    photos(place / "photos")
    query = place / "photos" / "class 0" / "0.jpg"
    with contextlib.redirect_stdout(sys.stderr):
        if walk == "step":
            step(place)
        elif walk == "train":
            with recorded():
                train(place)
        elif walk == "evaluate":
            train(place)
            with recorded():
                facetric("evaluate", place / "run")
        elif walk == "cluster":
            with recorded():
                facetric("cluster", place / "photos", "--output", place / "album")
        elif walk == "index":
            with recorded():
                facetric("index", "add", place / "index", place / "photos")
                facetric("search", place / "index", query)
        elif walk == "serve":
            facetric("index", "add", place / "index", place / "photos")
            with recorded():
                serve(place)
    print(json.dumps(sorted(CALLS)))


if __name__ == "__main__":
    main()
