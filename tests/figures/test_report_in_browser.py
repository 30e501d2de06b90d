"""The report in a real Chromium, opened from disk: it draws, answers to mouse, finger and keyboard, and asks no network."""

import re
from contextlib import contextmanager

import numpy as np
import pytest

from facetric.figures.report import write_report
from facetric.figures.report.curves import panels
from facetric.figures.report.data import RunRecord
from facetric.figures.report.scores import ScoreRow, ScoreTable
from facetric.figures.thumbnails import Thumbnails
from figures.report_runs import HOSTILE, clumps, photograph


@contextmanager
def opened(browser, path, **options):
    """The page, which may write no error to the console and ask for nothing but itself."""
    context = browser.new_context(**{"viewport": {"width": 1300, "height": 900}, **options})
    context.set_default_timeout(20_000)
    page = context.new_page()
    wrong = []
    page.on("console", lambda message: wrong.append(message.text) if message.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: wrong.append(request.url) if request.url != path.as_uri() else None)
    page.on("websocket", lambda socket: wrong.append(socket.url))
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    try:
        yield page
    finally:
        context.close()
    assert wrong == []


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """300 images of 12 classes, with everything a run can have."""
    images = clumps(300, 12, spread=1.1)
    rows = [{"step": step, "loss": 3 / (1 + step), "validation": {"recall_at_1": step / 100}} for step in range(50)]
    run = RunRecord(
        "small",
        dataset="cub",
        images=images,
        scores=ScoreTable((("NMI", "61.00"),), ("NMI",), (ScoreRow("small", ("61.00",), True), ScoreRow("Npairs", ("57.24",)))),
        panels=panels(rows),
        config="[data]\nname = 'cub'\n",
        command="facetric train configs/cub.toml",
    )
    path = tmp_path_factory.mktemp("small") / "report.html"
    return write_report(path, run, positions=images.vectors[:, :2], thumbnails=Thumbnails(photograph), largest_side=48)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    images = clumps(20_000, 400)
    ramp = np.add.outer(np.arange(32), np.arange(32)).astype(np.uint8)
    pictures = ramp[None] * 2 + (np.arange(20_000) % 190).astype(np.uint8)[:, None, None]
    path = tmp_path_factory.mktemp("large") / "report.html"
    run = RunRecord("large", images=images)
    return write_report(path, run, positions=images.vectors[:, :2], thumbnails=Thumbnails(pictures), largest_side=32)


def settle(page):
    """Until the next frame but one is drawn and every sheet asked for is decoded."""
    page.evaluate(
        "Promise.all(sheets.filter(Boolean).map((s) => s.decoded))"
        ".then(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))))"
    )


def n_colors(page):
    """Different colors among the pixels of the map."""
    settle(page)
    return page.evaluate(
        """() => { const c = document.getElementById("map-canvas");
        const pixels = new Uint32Array(c.getContext("2d").getImageData(0, 0, c.width, c.height).data.buffer);
        return new Set(pixels).size; }"""
    )


def drawing(page):
    settle(page)
    return page.evaluate("document.getElementById('map-canvas').toDataURL()")


def click_image(page, image):
    """Bring the image to the middle of the map and click it there."""
    page.evaluate(f"map.reveal({image})")
    settle(page)
    canvas = page.locator("#map-canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


@pytest.mark.parametrize("report_of", ["small", "large"])
def test_the_map_draws_and_a_click_shows_the_neighbors(browser, request, report_of):
    path = request.getfixturevalue(report_of)
    with opened(browser, path) as page:
        assert n_colors(page) > 10
        before = drawing(page)
        box = page.locator("#map-canvas").bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.wait_for_timeout(350)  # a wheel right after a scroll scrolls on
        page.mouse.wheel(0, -120)
        page.wait_for_function("map.view.scale > map.view.fitted")
        assert drawing(page) != before
        click_image(page, 17)
        tiles = page.locator("#selection .tile")
        assert tiles.count() == 10
        chosen = page.evaluate("map.state.chosen")
        expected = page.evaluate(f"neighborsOf({chosen}).map((one) => [one.image, one.right])")
        for position, (image, right) in enumerate(expected):
            tile = tiles.nth(position)
            assert tile.get_attribute("data-image") == str(image)
            assert ("is-right" if right else "is-wrong") in tile.get_attribute("class")
            assert ("✓" if right else "✗") in tile.inner_text()
        tiles.first.click()
        assert page.evaluate("map.state.chosen") == expected[0][0]


def test_thumbnails_appear_as_one_zooms_in(browser, large):
    with opened(browser, large) as page:
        images = page.locator("#show-images")
        with_images = drawing(page)
        images.uncheck()
        assert drawing(page) == with_images  # 20,000 images from afar are points
        page.evaluate("map.reveal(12345)")
        without_images = drawing(page)
        images.check()
        assert drawing(page) != without_images


def test_hovering_shows_image_and_class(browser, small):
    with opened(browser, small) as page:
        page.evaluate("map.reveal(100)")
        settle(page)
        box = page.locator("#map-canvas").bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.wait_for_selector("#tooltip:not([hidden])")
        hovered = page.evaluate("map.state.hovered")
        assert page.evaluate(f"className({hovered})") in page.locator("#tooltip").inner_text()
        assert page.locator("#tooltip canvas").count() == 1


def test_a_class_is_found_by_a_part_of_its_name(browser, small):
    with opened(browser, small) as page:
        page.fill("#search", "LASS 1")
        found = page.locator("#search-results button")
        assert [text.split("\n")[0] for text in found.all_inner_texts()] == ["class 1", "class 10", "class 11"]
        page.press("#search", "Enter")
        assert page.evaluate("[...map.state.highlighted].every((image) => classOf[image] === 1)")
        assert page.evaluate("map.view.scale > map.view.fitted")
        page.press("#search", "Escape")
        assert page.evaluate("map.state.highlighted") is None
        page.fill("#search", "nothing like it")
        assert "No matching class" in page.locator("#search-results").inner_text()


def test_colors_switch_between_class_cluster_and_verdict(browser, small):
    with opened(browser, small) as page:
        page.locator("#show-images").uncheck()
        page.get_by_label("right or wrong").check()
        by_verdict = drawing(page)
        assert "of another class" in page.locator("#legend").inner_text()
        page.get_by_label("class", exact=True).check()
        assert drawing(page) != by_verdict
        assert "class 11" in page.locator("#legend").inner_text()


def test_the_keyboard_does_what_the_mouse_does(browser, small):
    with opened(browser, small) as page:
        order = []
        for _ in range(40):
            page.keyboard.press("Tab")
            order.append(page.evaluate("document.activeElement.id || document.activeElement.name"))
            if order[-1] == "map-canvas":
                break
        assert order[-1] == "map-canvas"
        assert {"theme", "search", "coloring", "show-images", "zoom-in", "zoom-fit"} <= set(order)
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        view = page.evaluate("({...map.view})")
        page.keyboard.press("+")
        page.keyboard.press("ArrowRight")
        moved = page.evaluate("({...map.view})")
        assert moved["scale"] > view["scale"]
        assert moved["x"] > view["x"]
        page.keyboard.press("Enter")
        assert page.evaluate("map.state.chosen") >= 0
        assert "nearest neighbors are of its class" in page.locator("#announcer").inner_text()
        page.keyboard.press("Escape")
        assert page.evaluate("map.state.chosen") == -1
        page.keyboard.press("0")
        assert page.evaluate("map.view.scale === map.view.fitted")


def test_the_list_has_the_same_images_without_the_map(browser, small):
    with opened(browser, small) as page:
        assert page.locator("#list-table tbody tr").count() == 25
        page.select_option("#list-class", label="class 3")
        page.locator("#list-table button").first.click()
        assert page.evaluate("className(map.state.chosen)") == "class 3"
        page.select_option("#list-class", "")
        page.locator("#list-wrong").check()
        n_wrong = page.evaluate("verdictOf.filter((verdict) => verdict === WRONG).length")
        assert n_wrong > 0
        assert f"of {n_wrong}" in page.locator("#list-pages").inner_text()


def test_every_section_has_its_content(browser, small):
    with opened(browser, small) as page:
        assert page.locator("#score-table tr.ours td.best").inner_text() == "61.00"
        assert page.locator("#clusters .poster").count() == 12
        assert page.locator("#failures .failure").count() == 12
        page.get_by_role("button", name=re.compile("Show .* more of")).first.click()
        assert page.locator("#failures .failure").count() > 12
        assert page.locator("#curves svg path").count() == 2
        assert "facetric train configs/cub.toml" in page.locator("#origin").inner_text()
        unnamed = page.evaluate(
            """[...document.querySelectorAll("button, input, select, canvas[tabindex]")].filter((one) =>
            !(one.getAttribute("aria-label") || one.innerText || (one.labels && one.labels.length))).length"""
        )
        assert unnamed == 0


def test_a_phone_needs_no_sideways_scrolling_and_a_finger_works(browser, small):
    phone = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "has_touch": True, "is_mobile": True}
    with opened(browser, small, **phone) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        page.evaluate("map.reveal(50)")
        page.locator("#map-canvas").scroll_into_view_if_needed()
        settle(page)
        box = page.locator("#map-canvas").bounding_box()
        page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.wait_for_function("map.state.chosen >= 0")
        assert page.locator("#selection .tile").count() == 10


def test_dark_follows_the_system_and_the_button_changes_it(browser, small):
    background = "getComputedStyle(document.body).backgroundColor"
    with opened(browser, small, color_scheme="dark") as page:
        dark = page.evaluate(background)
        page.click("#theme")
        assert page.evaluate(background) != dark
    with opened(browser, small, color_scheme="light") as page:
        assert page.evaluate(background) != dark


def test_hostile_names_are_shown_as_text(browser, tmp_path):
    images = clumps(16, 8, names=HOSTILE)
    run = RunRecord(HOSTILE[0], images=images, config=HOSTILE[1], notes=HOSTILE, command=HOSTILE[2])
    path = write_report(tmp_path / f"report {HOSTILE[3]}.html", run, positions=images.vectors[:, :2])
    with opened(browser, path) as page:
        assert page.title() == f"{HOSTILE[0]} · facetric report"
        assert page.locator("h1").inner_text() == HOSTILE[0]
        assert page.locator("img").count() == 0
        for i in range(len(HOSTILE)):
            page.evaluate(f"choose({2 * i})")
            shown = page.locator("#selection h3 .name").first.evaluate("(one) => one.textContent")
            assert shown == HOSTILE[i].replace("\udcff", "\ufffd") or shown == HOSTILE[i]
        page.fill("#search", "<img")
        assert HOSTILE[0] in page.locator("#search-results").inner_text()


@pytest.mark.parametrize(
    "run",
    [RunRecord("nothing"), RunRecord("one", images=clumps(1, 1)), RunRecord("five", images=clumps(5, 1))],
    ids=lambda run: run.title,
)
def test_runs_with_missing_pieces_open_without_error(browser, tmp_path, run):
    positions = None if run.images is None else run.images.vectors[:, :2]
    with opened(browser, write_report(tmp_path / "report.html", run, positions=positions)) as page:
        assert page.locator("#map").is_visible() == (run.images is not None)
        assert page.locator("#curves").is_hidden()
        if run.images is not None:
            page.evaluate("choose(0)")
            assert n_colors(page) > 1


@pytest.mark.slow
def test_sixty_thousand_images_still_work(browser, tmp_path):
    images = clumps(60_000, 3000)
    path = write_report(
        tmp_path / "report.html",
        RunRecord("huge", images=images),
        positions=images.vectors[:, :2],
        thumbnails=Thumbnails(photograph),
    )
    assert path.stat().st_size < 45e6
    with opened(browser, path) as page:
        assert n_colors(page) > 10
        assert "carry a picture" in page.locator("#map-about").inner_text()
        click_image(page, 59_000)
        assert page.locator("#selection .tile").count() == 10
