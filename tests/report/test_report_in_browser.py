"""The report in a real Chromium, opened from disk: it draws, answers to mouse, finger and keyboard, and asks no network."""

import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from browser_waiting import until, watched
from facetric.report.cards import panels
from facetric.report.page import write_page
from facetric.report.run_record import RunRecord
from facetric.report.sprites import Thumbnails
from report.report_runs import HOSTILE, clumps, photograph, photographs, thumbnails_of


def opened(browser, path, *, also=None, missing=False, **options):
    """The page, which asks for nothing but itself, and `also`, which may be missing."""
    tolerated = ("ERR_FILE_NOT_FOUND",) if missing else ()
    return watched(browser, path.as_uri(), allows={path.as_uri(), also}.__contains__, tolerated=tolerated, **options)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """300 images of 12 classes, with everything a run can have."""
    images = clumps(300, 12, spread=1.1)
    rows = [{"step": step, "loss": 3 / (1 + step), "validation": {"recall_at_1": step / 100}} for step in range(50)]
    run = RunRecord(
        "small",
        dataset="cub",
        images=images,
        scores={
            "cards": [{"name": "NMI", "value": "61.00", "meaning": "How much the clusters tell."}],
            "columns": ["NMI"],
            "rows": [
                {"name": "small", "values": ["61.00"], "ours": True},
                {"name": "Npairs", "values": ["57.24"], "ours": False},
            ],
        },
        panels=panels(rows),
        config="[data]\nname = 'cub'\n",
        command="facetric train configs/cub.toml",
    )
    path = tmp_path_factory.mktemp("small") / "report.html"
    return write_page(path, run, positions=images.vectors[:, :2], thumbnails=photographs(limit=48))


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    images = clumps(8_000, 160)
    ramp = np.add.outer(np.arange(32), np.arange(32)).astype(np.uint8)
    pictures = ramp[None] * 2 + (np.arange(8_000) % 190).astype(np.uint8)[:, None, None]
    path = tmp_path_factory.mktemp("large") / "report.html"
    run = RunRecord("large", images=images)
    return write_page(path, run, positions=images.vectors[:, :2], thumbnails=thumbnails_of(pictures, side=32))


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
    page.mouse.click(*middle_of_map(page))


def middle_of_map(page):
    """Its place on the screen, once it is all there."""
    canvas = page.locator("#map-canvas")
    canvas.evaluate("x => x.scrollIntoView({ block: 'center' })")
    box = canvas.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


@pytest.mark.parametrize("report_of", ["small", "large"])
def test_the_map_draws_and_a_click_shows_the_neighbors(browser, request, report_of):
    path = request.getfixturevalue(report_of)
    with opened(browser, path) as page:
        assert n_colors(page) > 10
        before = drawing(page)
        page.mouse.move(*middle_of_map(page))
        page.wait_for_timeout(350)  # a wheel right after a scroll scrolls on
        page.mouse.wheel(0, -120)
        until(page, "map.view.scale > map.view.fitted")
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
        assert drawing(page) == with_images  # 8,000 images from afar are points
        page.evaluate("map.reveal(1234)")
        without_images = drawing(page)
        images.check()
        assert drawing(page) != without_images


def test_hovering_shows_image_and_class(browser, small):
    with opened(browser, small) as page:
        page.evaluate("map.reveal(100)")
        settle(page)
        page.mouse.move(*middle_of_map(page))
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
        assert page.locator("#headline .card p").inner_text() == "How much the clusters tell."
        assert page.locator("#clusters .cluster").count() == 12
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
        settle(page)
        page.touchscreen.tap(*middle_of_map(page))
        until(page, "map.state.chosen >= 0")
        assert page.locator("#selection .tile").count() == 10
        for part in ("#selection .chosen", "#selection li:nth-child(1)", "#selection li:nth-child(3)"):
            box = page.locator(part).bounding_box()
            assert box["y"] >= 40  # below the contents, which stay on top
            assert box["y"] + box["height"] <= 844
        page.locator("#clusters .tile").first.tap()
        box = page.locator("#selection li").first.bounding_box()
        assert 0 <= box["y"] <= 844 - box["height"]
        assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_all_members_of_a_cluster_are_there_the_medoid_first_then_other_classes(browser, tmp_path):
    images = clumps(90, 2, spread=1.5)
    clusters = np.where(np.arange(90) < 20, 1, 0).astype(np.int32)  # 70 and 20 members
    images = replace(images, clusters=clusters)
    run = RunRecord("members", images=images)
    with opened(browser, write_page(tmp_path / "report.html", run, positions=images.vectors[:, :2])) as page:
        large = page.locator("#clusters .cluster").first
        page.get_by_role("button", name="Show 46 more of 70").click()
        shown = [int(tile.get_attribute("data-image")) for tile in large.locator(".tile").all()]
        assert sorted(shown) == list(range(20, 90))
        assert shown[0] == page.evaluate("medoids[0]")
        odd = large.locator(".tile.is-wrong")
        assert odd.count() == 25  # of class 0, whose other 20 images are in the other cluster
        assert all(page.evaluate(f"className({image})") == "class 0" for image in shown[1:26])
        second = page.locator("#clusters .cluster").nth(1)
        assert second.locator(".tile").count() == 20
        assert not [button for button in page.get_by_role("button").all_inner_texts() if button.startswith("Show 0")]
        assert page.locator("#clusters button:visible", has_text="Show").count() == 0


def test_a_selected_photo_is_large_and_links_its_file(browser, tmp_path):
    (tmp_path / "photos #1").mkdir()
    for i in range(12):
        Image.fromarray(photograph(i, side=96)).resize((640, 480)).save(tmp_path / "photos #1" / f"{i} ä.jpg")
    names = tuple(str(tmp_path / "photos #1" / f"{i} ä.jpg") for i in range(12))
    images = replace(clumps(12, 3), image_names=names, are_files=True)
    run = RunRecord("files", images=images)
    thumbnails = Thumbnails(lambda image_id, _: Image.open(names[image_id]))
    path = write_page(tmp_path / "run" / "report.html", run, positions=images.vectors[:, :2], thumbnails=thumbnails)
    photo = tmp_path / "photos #1" / "7 ä.jpg"
    with opened(browser, path, also=photo.as_uri()) as page:
        page.evaluate("choose(7)")
        shown = page.locator("#selection .large img")
        shown.wait_for()
        assert shown.evaluate("x => x.naturalWidth") == 640
        assert shown.bounding_box()["width"] > 300
        for link in ("#selection a.large", "#selection .facts a", "#list tr:nth-child(8) a"):
            assert page.locator(link).evaluate("x => x.href") == photo.as_uri()
    photo.unlink()
    with opened(browser, path, also=photo.as_uri(), missing=True) as page:  # mailed without the photos: the thumbnail stays
        page.evaluate("choose(7)")
        page.wait_for_timeout(200)
        assert page.locator("#selection .large canvas").count() == 1


def test_a_long_label_ends_in_an_ellipsis_and_its_title_has_all_of_it(browser, tmp_path):
    names = ("Laysan Albatross of the northern Pacific Ocean, seen from a boat", "ant")
    images = clumps(12, 2, names=names)
    path = write_page(tmp_path / "report.html", RunRecord("names", images=images), positions=images.vectors[:, :2])
    with opened(browser, path) as page:
        page.evaluate("choose(0)")
        label = page.locator("#selection .tile .name").first
        assert label.inner_text() == names[0]
        style = label.evaluate("x => { const s = getComputedStyle(x); return [s.webkitLineClamp, s.overflow]; }")
        assert style == ["2", "hidden"]
        assert label.evaluate("x => x.scrollHeight > x.clientHeight")  # it is longer than what is shown
        assert names[0] in page.locator("#selection .tile").first.get_attribute("title")


def test_points_do_not_shine_through_pictures_while_another_is_selected(browser, tmp_path):
    grid = np.stack(np.meshgrid(np.arange(6.0), np.arange(5.0)), axis=-1).reshape(-1, 2)
    images = replace(clumps(30, 6), clusters=(np.arange(30) % 7).astype(np.int32))
    pictures = np.full((30, 32, 32), 200, dtype=np.uint8)
    path = write_page(
        tmp_path / "report.html", RunRecord("dots", images=images), positions=grid, thumbnails=thumbnails_of(pictures, side=32)
    )
    middle = """image => { const c = map.canvas, ratio = c.width / c.clientWidth;
        const [x, y] = [map.screenX(image), map.screenY(image)].map((one) => Math.round(one * ratio));
        const copy = new OffscreenCanvas(8, 8).getContext("2d");
        copy.drawImage(c, x - 4, y - 4, 8, 8, 0, 0, 8, 8);
        return [...copy.getImageData(0, 0, 8, 8).data]; }"""
    with opened(browser, path) as page:
        page.evaluate("choose(0, { reveal: false })")
        neighbors = page.evaluate("neighborsOf(0).map((one) => one.image)")
        faded = next(i for i in range(1, 30) if i not in neighbors)
        settle(page)
        by_class = page.evaluate(middle, faded)
        page.get_by_label("cluster", exact=True).check()
        settle(page)
        assert page.evaluate(middle, faded) == by_class  # the color of the point below is not seen


@pytest.mark.parametrize("n_classes", [1, 12], ids=["one class", "a class per image"])
def test_without_labels_nothing_is_called_right_or_wrong(browser, tmp_path, n_classes):
    images = replace(clumps(12, n_classes), clusters=(np.arange(12) % 3).astype(np.int32))
    path = write_page(tmp_path / "report.html", RunRecord("unlabeled", images=images), positions=images.vectors[:, :2])
    with opened(browser, path) as page:
        assert page.locator("#failures").is_hidden()
        assert "Failed queries" not in page.locator("#contents").inner_text()
        assert page.get_by_label("right or wrong").is_disabled()
        assert page.locator("#list-wrong").is_hidden()
        page.evaluate("choose(3)")
        assert page.locator("#selection .tile").count() == 10
        assert not {"✓", "✗"} & set(page.locator("main").inner_text())
        assert page.locator("#clusters .cluster").count() == 3


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
    path = write_page(tmp_path / f"report {HOSTILE[3]}.html", run, positions=images.vectors[:, :2])
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
    with opened(browser, write_page(tmp_path / "report.html", run, positions=positions)) as page:
        assert page.locator("#map").is_visible() == (run.images is not None)
        assert page.locator("#curves").is_hidden()
        if run.images is not None:
            page.evaluate("choose(0)")
            assert n_colors(page) > 1


@pytest.mark.slow
def test_sixty_thousand_images_still_work(browser, tmp_path):
    images = clumps(60_000, 3000)
    path = write_page(
        tmp_path / "report.html", RunRecord("huge", images=images), positions=images.vectors[:, :2], thumbnails=photographs()
    )
    assert path.stat().st_size < 45e6
    with opened(browser, path) as page:
        assert n_colors(page) > 10
        assert "images have a thumbnail" in page.locator("#map-about").inner_text()
        click_image(page, 59_000)
        assert page.locator("#selection .tile").count() == 10
