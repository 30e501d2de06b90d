"""The pictures of docs/pictures.md: the report, the page of groups and the page of the service in a real Chromium.

    python docs/make_screenshots.py --run runs/demo [--folder docs/pictures]

The run must have a report (`facetric demo` writes one). The photos are 24 characters in many fonts on colored paper,
grouped and searched by the packaged network, without training. Needs the package playwright and an installed Chromium.
"""

import argparse
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

from facetric.images.readers import load_dataset

FACETRIC = (sys.executable, "-m", "facetric")


def write_photos(folder, n_classes=24, n_images=12):
    characters = load_dataset("glyphs", min_images=16)
    rng = np.random.default_rng(0)
    for label, name in enumerate(characters.class_names[40 : 40 + n_classes], start=40):
        (folder / name.split()[0]).mkdir(parents=True)
        for i, image_id in enumerate(np.flatnonzero(characters.labels == label)[:n_images]):
            side = int(rng.integers(100, 160))
            ink = Image.fromarray(characters.images[image_id]).resize((side, side))
            paper, color = (tuple(rng.integers(low, low + 100, 3).tolist()) for low in (0, 156))
            picture = Image.new("RGB", (240, 180), paper)
            picture.paste(Image.new("RGB", ink.size, color), tuple(rng.integers(0, [240 - side, 180 - side]).tolist()), mask=ink)
            picture.save(folder / name.split()[0] / f"{i:02}.jpg")


def shoot(browser, address, path, *, picture=None, scheme="light"):
    page = browser.new_page(viewport={"width": 1200, "height": 860}, color_scheme=scheme)
    page.goto(address)
    if picture is not None:
        page.set_input_files("#file", picture)
    page.wait_for_load_state("networkidle")
    time.sleep(4)  # pictures are decoded
    page.screenshot(path=path)
    page.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "pictures")
    options = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with TemporaryDirectory() as place, sync_playwright() as playwright:
        photos, groups, index = (Path(place) / name for name in ("photos", "groups", "characters.index"))
        write_photos(photos)
        subprocess.run([*FACETRIC, "cluster", photos, "--clusters", "24", "--output", groups], check=True)
        subprocess.run([*FACETRIC, "index", "add", index, photos, "--labels-from-folders"], check=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = subprocess.Popen([*FACETRIC, "serve", index, "--port", str(port)])
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        try:
            shoot(browser, (options.run / "report.html").resolve().as_uri(), options.folder / "page_report.png")
            shoot(browser, (groups / "clusters.html").as_uri(), options.folder / "page_groups.png", scheme="dark")
            for _ in range(120):
                try:
                    urlopen(f"http://127.0.0.1:{port}/health").close()
                    break
                except OSError:
                    time.sleep(1)
            query = sorted(photos.glob("*/03.jpg"))[7]
            shoot(browser, f"http://127.0.0.1:{port}/", options.folder / "page_search.png", picture=query)
        finally:
            browser.close()
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
