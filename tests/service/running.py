"""A service on a free port of this machine: in a thread, about photos whose neighbors and groups a test can foresee."""

import io
import threading
from contextlib import closing, contextmanager

import httpx
import numpy as np
from PIL import Image

from facetric.clustering import PairModel
from facetric.images import Preprocessing
from facetric.photos import open_collection
from facetric.service.app import guarded_app
from facetric.service.server import address_of, bound_socket, new_server
from facetric.service.service import Service

COLORS = {"red": (210, 40, 40), "green": (40, 200, 60), "<b>blue</b>": (40, 60, 220)}


class ColorEncoder:
    """The mean color of a picture, as a direction."""

    fingerprint, dim, run, preprocessing = "c" * 64, 3, None, Preprocessing(size=8, crop=8)
    name, pair_model, fitted_to = "colors", PairModel.packaged(), ""

    def prepare(self, n_images):
        pass

    def encode(self, pixels):
        mean = np.array(pixels).reshape(-1, 64, 3).mean(axis=1).astype(np.float32) + 1
        return mean / np.linalg.norm(mean, axis=1, keepdims=True)


def color_photo(color, seed=0, size=(160, 120)):
    noise = np.random.default_rng(seed).normal(0, 12, (6, 8, 3)) + color
    return Image.fromarray(np.clip(noise, 0, 255).astype(np.uint8)).resize(size, Image.Resampling.BICUBIC)


def write_colors(root, n_each=10):
    """Photos in a folder for each color."""
    for label, color in COLORS.items():
        folder = root / label.replace("/", "_")
        folder.mkdir(parents=True)
        for i in range(n_each):
            color_photo(color, seed=i).save(folder / f"{i:02}.jpg", quality=90)


def color_index(place, n_each=10):
    """An index of colors in this folder; its label with a `/` is given by hand, as folders cannot have it."""
    write_colors(place / "photos", n_each)
    index = opened(place)
    for label in COLORS:
        index.add(place / "photos" / label.replace("/", "_"), label=label)
    return index


def opened(place):
    return open_collection(place / "colors.index", ColorEncoder())


def color_service(place, *, encoder=None, **options):
    return Service(place / "colors.index", encoder or ColorEncoder(), **options)


@contextmanager
def served(service, *, token=None, hosts=()):
    """The address of a running service. It is stopped as by a signal."""
    service.start()
    server = new_server(guarded_app(service, token=token, hosts=hosts), service.limits)
    with closing(bound_socket("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, args=[[listening]])
        thread.start()
        try:
            yield address_of(listening)
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def client(address, **options):
    with httpx.Client(base_url=address, trust_env=False, timeout=300, **options) as made:
        yield made


def jpeg(color=(210, 40, 40), seed=100, **options):
    buffer = io.BytesIO()
    color_photo(color, seed, **options).save(buffer, "JPEG")
    return buffer.getvalue()
