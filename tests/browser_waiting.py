"""Waiting in browser tests. Playwright's wait_for_function evaluates text inside the page, which our pages forbid."""

import time


def until(page, expression, *, seconds=30):
    """Return as soon as the expression is true in the page."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"never true: {expression}"
        page.wait_for_timeout(20)
