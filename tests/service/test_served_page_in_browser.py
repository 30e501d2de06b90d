"""The pages of the service in a real Chromium: drop, paste or choose a picture, correct groups, and nothing asks another host."""

import base64
import os
from pathlib import Path

import pytest

from browser_waiting import load, watched
from facetric.photos import open_collection
from facetric.service import Limits
from service.running import COLORS, color_index, color_service, jpeg, served

TOKEN = "a-token-of-twenty-four-characters"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("page")
    color_index(place, n_each=8)
    return place


@pytest.fixture(scope="module")
def address(place):
    with served(color_service(place, limits=Limits(seconds=300))) as address:
        yield address


def opened(browser, address, path="/", **options):
    """A page, which asks this server only."""
    return watched(
        browser, address + path, allows=lambda url: url.startswith((address, f"blob:{address}")), seconds=60, **options
    )


def hand_over(page, kind, data, name="x.jpg", media_type="image/jpeg"):
    """Drop a file, or paste it."""
    page.evaluate(
        """([kind, data, name, type]) => {
            const bytes = Uint8Array.from(atob(data), (x) => x.charCodeAt(0));
            const transfer = new DataTransfer();
            transfer.items.add(new File([bytes], name, { type }));
            const event = kind === "drop" ? new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true })
                : new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true });
            document.getElementById("drop").dispatchEvent(event);
        }""",
        [kind, base64.b64encode(data).decode(), name, media_type],
    )


def found(page, start):
    page.wait_for_function("start => document.getElementById('status').textContent.startsWith(start)", arg=start)
    page.wait_for_function("() => [...document.querySelectorAll('#found img')].slice(0, 4).every(x => x.naturalWidth > 0)")
    return page.locator("#found figure").count()


def picture_of(page, name):
    """For a person to look at, where FACETRIC_PICTURES says."""
    if folder := os.environ.get("FACETRIC_PICTURES"):
        page.screenshot(path=Path(folder) / f"{name}.png")


@pytest.mark.parametrize("kind", ["drop", "paste"])
def test_a_picture_gives_its_neighbors_and_a_label_with_html_stays_text(browser, address, kind):
    with opened(browser, address) as page:
        hand_over(page, kind, jpeg(COLORS["<b>blue</b>"]))
        assert found(page, "<b>blue</b> (precision not measured: too few labels).") == 24
        assert page.locator("#found figure strong").first.text_content() == "<b>blue</b>"
        assert page.locator("#found b").count() == 0
        picture_of(page, f"search-{kind}")
        last = page.locator("#found figure strong").last.text_content()
        assert last in ("red", "green")
        page.locator("#found figure button").last.click()  # search with the last one instead
        found(page, last)


def test_what_is_no_picture_is_said(browser, address):
    with opened(browser, address) as page:
        hand_over(page, "drop", b"text", "x.txt", "text/plain")
        page.wait_for_function("() => document.getElementById('status').textContent === 'That is not an image.'")


def test_a_broken_picture_is_refused_with_the_line_of_the_server(browser, address):
    context = browser.new_context()
    page = context.new_page()  # Chromium itself reports an answer of 422 on the console
    load(page, address)
    hand_over(page, "drop", jpeg()[:300])
    page.wait_for_function("() => document.getElementById('status').textContent.startsWith('the image ')")
    assert page.locator("#found figure").count() == 0
    context.close()


def test_the_keyboard_is_enough(browser, address, tmp_path):
    (tmp_path / "query.jpg").write_bytes(jpeg())
    with opened(browser, address) as page:
        with page.expect_file_chooser() as chooser:
            page.keyboard.press("Tab")  # the link to the groups
            page.keyboard.press("Tab")
            page.keyboard.press("Enter")
        chooser.value.set_files(tmp_path / "query.jpg")
        found(page, "red")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        assert page.evaluate("[...document.querySelectorAll('#found a')].indexOf(document.activeElement)") == 1
        page.keyboard.press("ArrowLeft")
        assert page.evaluate("[...document.querySelectorAll('#found a')].indexOf(document.activeElement)") == 0
        page.keyboard.press("Tab")  # the button "Similar" of the same photo
        page.keyboard.press("Enter")
        found(page, "red")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_nothing_is_wider_than_the_screen_and_a_photo_can_be_taken(browser, address, scheme, tmp_path):
    (tmp_path / "query.jpg").write_bytes(jpeg(COLORS["green"]))
    options = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True, "color_scheme": scheme}
    with opened(browser, address, **options) as page:
        assert page.locator("#camera").get_attribute("capture") == "environment"
        with page.expect_file_chooser() as chooser:
            page.locator("#photograph").tap()
        chooser.value.set_files(tmp_path / "query.jpg")
        found(page, "green")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
        assert dark == (scheme == "dark")
        picture_of(page, f"phone-{scheme}")


def test_groups_are_corrected_and_every_decision_is_on_the_server_at_once(browser, address, place):
    index = place / "colors.index"
    with opened(browser, address, "/groups") as page:
        page.wait_for_function("() => [...document.querySelectorAll('#groups img')].slice(0, 8).every(x => x.naturalWidth > 0)")
        assert page.locator("#groups section").count() == 3
        picture_of(page, "groups")
        page.keyboard.press("j")
        page.keyboard.press("e")
        page.keyboard.type("<i>robin</i>")
        page.keyboard.press("Enter")
        page.keyboard.press("m")
        page.keyboard.press("j")
        page.keyboard.press("m")
        page.keyboard.press("q")
        page.wait_for_function("() => [...document.querySelectorAll('.pair figure > img')].every(x => x.naturalWidth > 0)")
        assert page.locator("#first > img").get_attribute("src").startswith("photos/")  # the original, by its id
        page.keyboard.press("y")
        page.keyboard.press("Escape")
        page.keyboard.press("s")
        page.wait_for_function("() => document.getElementById('status').textContent === 'Saved: 3 decisions.'")
        assert [decision.do for decision in open_collection(index).decisions().decisions] == ["name", "same", "same"]
        page.keyboard.press("u")
        page.keyboard.press("s")
        page.wait_for_function("() => document.getElementById('status').textContent === 'Saved: 2 decisions.'")
        groups = page.evaluate("[...now.groups.values()].map(x => x.length).sort()")
        assert page.locator("#kept").text_content().startswith("Kept on the server")
    assert [decision.do for decision in open_collection(index).decisions().decisions] == ["name", "same"]
    with opened(browser, address, "/groups") as page:  # old groups with what was decided since, or new ones: the same
        assert page.evaluate("[...now.groups.values()].map(x => x.length).sort()") == groups
        assert page.locator("input.name").first.input_value() == "<i>robin</i>"
        assert page.locator("main i").count() == 0
        page.click("#list")
        page.locator("#decisions-list button").first.click()
        page.locator("#decisions-list button").first.click()
        page.keyboard.press("Escape")
        page.keyboard.press("s")
        page.wait_for_function("() => document.getElementById('status').textContent === 'Saved: 0 decisions.'")
    assert open_collection(index).decisions().decisions == ()


def test_a_browser_is_asked_for_the_token_and_then_everything_works(browser, tmp_path):
    color_index(tmp_path, n_each=3)
    with served(color_service(tmp_path, limits=Limits(seconds=300)), token=TOKEN) as address:
        with opened(browser, address, http_credentials={"username": "me", "password": TOKEN}) as page:
            hand_over(page, "drop", jpeg())
            found(page, "red")
        with opened(browser, address, "/groups", http_credentials={"username": "me", "password": TOKEN}) as page:
            page.evaluate("confirmGroup(0)")
            page.keyboard.press("s")
            page.wait_for_function("() => document.getElementById('status').textContent === 'Saved: 1 decision.'")
