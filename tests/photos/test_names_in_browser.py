"""The page of names without photos, in a real Chromium: they are read and asked about, and no picture is looked for."""

import numpy as np

from browser_waiting import watched
from facetric.embedder import given_vectors
from facetric.photos import cluster_folder


def test_names_take_the_place_of_pictures_in_tiles_and_questions(browser, tmp_path):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(6, 16))[np.repeat(np.arange(6), 5)] + 0.8 * rng.normal(size=(30, 16))
    names = [f"what is <b>{row}</b>, and/or why?" for row in range(30)]
    groups = cluster_folder(None, None, tmp_path / "album", vectors=given_vectors(vectors, names=names))
    assert len(groups.questions)
    page_file = (tmp_path / "album" / "clusters.html").as_uri()
    with watched(browser, page_file, allows=lambda url: url == page_file) as page:
        shown = page.eval_on_selector_all("main .tile .text", "all => all.map(x => x.textContent)")
        assert sorted(shown) == sorted(names)
        page.keyboard.press("q")
        asked = page.eval_on_selector_all(".pair figure > .text", "all => all.map(x => x.textContent)")
        assert len(asked) == 2
        assert set(asked) <= set(names)
        page.keyboard.press("n")
        assert page.evaluate("decisions.length") == 1
        page.keyboard.press("Escape")
        page.locator("main .tile").first.click()
        assert page.locator("#original").get_attribute("href") is None
        assert page.locator("img").count() == 0
