"""The page of `facetric cluster` in a real Chromium, opened from disk: looked at, corrected by keyboard, reloaded, saved."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from browser_waiting import load, until, watched
from facetric.clustering import PairModel
from facetric.images import Preprocessing
from facetric.photos import Decisions, PhotoGroups, cluster_folder
from facetric.photos.pages import write_page

GRID = np.stack(np.meshgrid(*[np.linspace(0, 1, 6)] * 3), axis=-1).reshape(-1, 3)  # of colors


class ColorEncoder:
    """How near the mean color of a picture is to the colors of a grid, and details of its own: groups that a test can foresee."""

    fingerprint, dim, run, preprocessing = "c" * 64, 2 * len(GRID), None, Preprocessing(size=8, crop=8)
    name, pair_model, fitted_to = "colors", PairModel.packaged(), ""

    def prepare(self, n_images):
        pass

    def encode(self, pixels):
        colors = np.array(pixels).reshape(-1, 64, 3).mean(axis=1) / 255
        near = np.exp(-((colors[:, None] - GRID) ** 2).sum(axis=-1) / 0.03)
        own = [np.random.default_rng(int(image.sum())).normal(size=len(GRID)) for image in np.array(pixels, dtype=int)]
        return np.hstack([near / np.linalg.norm(near, axis=1, keepdims=True), 0.05 * np.array(own).reshape(near.shape)]).astype(
            np.float32
        )


def write_colors(root, n, n_kinds):
    """n photos of n_kinds colors, and two that are alone."""
    root.mkdir()
    rng = np.random.default_rng(0)
    levels = np.linspace(20, 235, int(np.ceil(n_kinds ** (1 / 3))))
    kinds = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(-1, 3)[:n_kinds]
    for i in range(n):
        block = rng.normal(0, 12, (6, 8, 3)) + kinds[i % n_kinds]
        picture = Image.fromarray(np.clip(block, 0, 255).astype(np.uint8)).resize((160, 120), Image.Resampling.BICUBIC)
        picture.save(root / f"IMG {i:03}.jpg", quality=85)
    for name, color in (("<b>.jpg", (128, 128, 128)), ("alone.jpg", (130, 250, 128))):
        Image.new("RGB", (160, 120), color).save(root / name)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """300 photos of 8 colors."""
    place = tmp_path_factory.mktemp("groups")
    write_colors(place / "photos", 298, 8)
    found = clustered(place)
    assert (found.n_groups, found.n_alone) == (8, 2)
    return place


def clustered(place, decisions=None):
    return cluster_folder(place / "photos", ColorEncoder(), place / "groups", decisions=decisions)


def opened(browser, place, *, seconds=30, **options):
    """The page, which asks for nothing but files beside it."""
    allows = lambda url: url.startswith((place.as_uri(), "blob:"))  # noqa: E731
    return watched(browser, page_of(place), allows=allows, seconds=seconds, **options)


def page_of(place):
    return (place / "groups" / "clusters.html").as_uri()


def sizes(page):
    return page.eval_on_selector_all("#groups section", "all => all.map(x => x.querySelectorAll('.tile').length)")


def alone(page):
    return page.locator("#alone .tile").count()


def saved(page):
    with page.expect_download() as download:
        page.keyboard.press("s")
    return Decisions.from_dict(json.loads(download.value.path().read_text()))


def test_all_photos_are_there_the_medoid_first_then_by_ambiguity(browser, place):
    with opened(browser, place) as page:
        assert sum(sizes(page)) + alone(page) == 300
        assert page.locator("#alone .size").text_content() == "2"
        about = page.evaluate("about")
        for group in range(8):
            photos = page.eval_on_selector_all(f"[data-group='{group}'] .tile", "all => all.map(x => Number(x.dataset.photo))")
            assert photos[0] == about["medoids"][group]
            ambiguitys = [about["ambiguity"][photo] for photo in photos[1:]]
            assert ambiguitys == sorted(ambiguitys, reverse=True)
        until(page, "[...document.querySelectorAll('#groups img')].slice(0, 20).every(x => x.naturalWidth > 0)")
        assert page.locator("#alone").inner_html().count("&lt;b&gt;.jpg") > 0  # a name is text


def test_questions_are_answered_by_keys_undone_and_survive_a_reload(browser, place):
    with opened(browser, place) as page:
        page.keyboard.press("q")
        until(page, "[...document.querySelectorAll('.pair figure > img')].every(x => x.naturalWidth > 0)")
        before = sizes(page), alone(page)
        first = page.locator("#question-about").inner_text()
        page.keyboard.press("n")
        assert page.evaluate("decisions.length") == 1
        page.keyboard.press("u")
        assert page.evaluate("decisions.length") == 0
        assert (sizes(page), alone(page)) == before
        assert page.locator("#question-about").inner_text() == first
        page.keyboard.press("y")
        page.keyboard.press("n")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("n")
        page.keyboard.press("Escape")
        after = sizes(page), alone(page)
        kept = saved(page)
        assert [decision.do for decision in kept.decisions] == ["same", "different", "different"]
        load(page, page_of(place))
        assert (sizes(page), alone(page)) == after
        assert saved(page) == kept


def test_name_merge_move_out_confirm_and_reject_by_keyboard_alone_and_the_next_run_keeps_to_them(browser, place, tmp_path):
    shutil.copytree(place, tmp_path / "copy")
    copy = tmp_path / "copy"
    clustered(copy)
    with opened(browser, copy) as page:
        n = sizes(page)
        page.keyboard.press("j")  # the first photo of the first group
        page.keyboard.press("e")
        page.keyboard.type("robin")
        page.keyboard.press("Enter")
        page.keyboard.press("m")
        page.keyboard.press("j")
        page.keyboard.press("m")  # the second group is merged with it
        assert sizes(page)[0] == n[0] + n[1]
        page.keyboard.press("k")
        page.keyboard.press("j")
        assert page.evaluate("now.of[current]") == 2
        page.keyboard.press("ArrowRight")
        out = page.evaluate("about.paths[current][0]")
        page.keyboard.press("x")
        assert alone(page) == 3
        page.keyboard.press("C")
        page.keyboard.press("j")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        rejected = page.evaluate("about.paths[current][0]")
        page.keyboard.press("r")
        assert page.locator("#rejected .tile").count() == 1
        groups = page.evaluate("[...now.groups.values()].map(x => x.map(i => about.paths[i][0]).sort())")
        made = saved(page)
    found = clustered(copy, made)
    again = [{path.as_posix() for path in found.members(cluster)} for cluster in range(len(found.medoids))]
    assert all(any(set(group) <= own for own in again) for group in groups if group != [rejected])  # answers teach: one may join
    assert len(groups) - 3 <= len(again) < len(groups)
    assert list(found.names.values()) == ["robin"]
    assert max(len(own) for own in again if out in own) <= 2  # what is alone may be with another one
    assert found.photos[np.flatnonzero(found.clusters < 0)[0]].as_posix() == rejected
    with opened(browser, copy) as page:  # the decisions are in the new page, and nothing is decided twice
        assert page.evaluate("decisions.length") == len(made.decisions)
        assert saved(page) == made


def test_a_photo_that_is_alone_gets_a_name_by_keyboard(browser, place):
    with opened(browser, place) as page:
        n = len(sizes(page))
        page.locator("#alone .tile").first.focus()
        page.keyboard.press("e")
        assert (len(sizes(page)), alone(page)) == (n + 1, 1)  # a group of one while it gets a name
        page.keyboard.press("Escape")
        until(page, "document.querySelectorAll('#alone .tile').length == 2")
        page.keyboard.press("e")
        page.keyboard.type("rare sparrow")
        page.keyboard.press("Enter")
        until(page, "naming === null")
        assert (len(sizes(page)), alone(page)) == (n + 1, 1)
        assert [(one.do, one.name) for one in saved(page).decisions] == [("name", "rare sparrow")]


def test_what_contradicts_is_refused_with_a_line_and_can_be_removed(browser, place):
    with opened(browser, place) as page:
        page.evaluate("confirmGroup(0)")
        page.evaluate("moveOut(now.groups.get(0).find(photo => photo !== medoidOf(0)))")
        assert page.evaluate("decisions.length") == 1
        assert "Not possible" in page.locator("#status").inner_text()
        page.click("#list")
        page.click("#decisions-list button")
        assert page.evaluate("decisions.length") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_nothing_is_wider_than_the_screen_and_a_finger_is_enough(browser, place, scheme):
    options = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True, "color_scheme": scheme}
    with opened(browser, place, **options) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.locator("#groups .tile").nth(2).tap()
        page.locator("#bar [data-key=x]").tap()
        assert alone(page) == 3
        page.locator("#ask").tap()
        page.locator("#question [data-key=y]").tap()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.evaluate("document.querySelector('#question').scrollWidth") <= 360
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
        assert dark == (scheme == "dark")


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A page of 20,000 photos in 400 groups and 400 alone; thumbnails are links to fifty pictures."""
    place = tmp_path_factory.mktemp("many")
    write_colors(place / "photos", 50, 50)
    (place / "groups" / "thumbnails").mkdir(parents=True)
    n = 20_000
    contents = tuple(f"{i:032x}" for i in range(n))
    for i, content in enumerate(contents):
        (place / "groups" / "thumbnails" / f"{content}.jpg").hardlink_to(place / "photos" / f"IMG {i % 50:03}.jpg")
    photos = tuple(Path(f"{i // 100:03}/IMG {i:05}.jpg") for i in range(n))
    for i in (*range(400, 420), *range(800, 820)):  # the originals that the first questions show
        (place / "photos" / photos[i]).parent.mkdir(exist_ok=True)
        (place / "photos" / photos[i]).hardlink_to(place / "photos" / f"IMG {i % 50:03}.jpg")
    clusters = np.where(np.arange(n) < 400, 400 + np.arange(n), np.arange(n) % 400)
    medoids = np.concatenate([np.arange(400, 800), np.arange(400)])
    groups = PhotoGroups(
        root=place / "photos",
        photos=photos,
        contents=contents,
        clusters=clusters.astype(np.int64),
        medoids=medoids.astype(np.int64),
        precision=np.repeat([0.9, np.nan], 400),
        ambiguity=np.random.default_rng(0).random(n),
        names={},
        questions=np.column_stack([np.arange(400, 2400), np.arange(800, 2800)]),
        decisions=Decisions(),
        expected=None,
    )
    write_page(groups, np.arange(n), place / "groups" / "clusters.html", thumbnails="thumbnails")
    return place


@pytest.mark.slow
@pytest.mark.parametrize("device", ["desk", "phone"])
def test_twenty_thousand_photos_are_corrected_by_keyboard_alone(browser, many, device):
    phone = {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark"}
    with opened(browser, many, seconds=200, **(phone if device == "phone" else {})) as page:
        assert sum(sizes(page)) + alone(page) == 20_000
        assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
        until(page, "[...document.querySelectorAll('#groups img')].slice(0, 6).every(x => x.naturalWidth > 0)")
        page.keyboard.press("j")
        page.keyboard.press("e")
        page.keyboard.type("robin")
        page.keyboard.press("Enter")
        for key in ("ArrowRight", "x", "c", "ArrowDown", "r"):  # move out, confirm, reject
            page.keyboard.press(key)
        page.keyboard.press("q")
        for key in ("y", "n", "y"):
            page.keyboard.press(key)
        page.keyboard.press("Escape")
        page.keyboard.press("u")
        made = saved(page)
        assert [one.do for one in made.decisions] == ["name", "different", "same", "reject", "same", "different"]
        after = sizes(page), alone(page)
        load(page, page_of(many))
        assert (sizes(page), alone(page)) == after
        assert saved(page) == made
        page.screenshot(path=many / f"{device}.png")
        page.evaluate("localStorage.clear()")
