"""A page in a real Chromium, watched, and waiting in it."""

import time
from contextlib import contextmanager


@contextmanager
def watched(browser, address, *, allows, seconds=20, width=1300, height=900, tolerated=(), **options):
    """The page at an address when it is ready. It may write no error to the console and ask only for what `allows(url)` says.

    `tolerated` are parts of lines of the console that are no error.
    """
    context = browser.new_context(**{"viewport": {"width": width, "height": height}, **options})
    context.set_default_timeout(1000 * seconds)
    page = context.new_page()
    wrong = []
    page.on("console", lambda message: wrong.append(message.text) if message.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: None if allows(request.url) else wrong.append(request.url))
    page.on("websocket", lambda socket: wrong.append(socket.url))
    load(page, address)
    try:
        yield page
    finally:
        context.close()
    assert [line for line in wrong if not any(part in line for part in tolerated)] == []


def load(page, url):
    page.goto(url)
    page.wait_for_selector("html[data-ready]", state="attached")


def until(page, expression, *, seconds=30):
    """Return as soon as the expression is true in the page.

    Playwright's wait_for_function evaluates text in the page, which the policy of our pages forbids.
    """
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"never true: {expression}"
        page.wait_for_timeout(20)
