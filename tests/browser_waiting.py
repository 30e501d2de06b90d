"""Waiting in a browser test: Playwright's wait_for_function evaluates text in the page, which the policy of our pages forbids."""

import time


def until(page, expression, *, seconds=30):
    """Return as soon as the expression is true in the page."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"never true: {expression}"
        page.wait_for_timeout(20)
