"""Debian's Chromium without a window, driven by Playwright, and axe's check of a page."""

import glob
import os
import site
import time
import unittest

from daemon import HERE

TARGET = os.path.abspath(os.environ.get("CARGO_TARGET_DIR", os.path.join(HERE, "..", "..", "target")))
VENV = os.path.join(TARGET, "e2e-venv")
CHROMIUM = "/usr/bin/chromium"
for _packages in glob.glob(os.path.join(VENV, "lib", "python3*", "site-packages")):
    site.addsitedir(_packages)

try:
    from axe_playwright_python.base import AXE_FILE_PATH
    from playwright.sync_api import sync_playwright
except ImportError:
    sync_playwright = None

needs_browser = unittest.skipUnless(
    sync_playwright, f"playwright is not in {VENV}: tests/e2e/setup could not install it from PyPI, or was not run"
)


class Browser:
    """One Chromium; `page` opens a page that records its requests, and what its console says."""

    def __init__(self):
        self._playwright = sync_playwright().start()
        try:
            self._chromium = self._playwright.chromium.launch(
                executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
            )
        except BaseException:
            self._playwright.stop()
            raise

    def page(self, **options):
        """A page in a context of its own."""
        page = self._chromium.new_context(**options).new_page()
        page.said, page.asked = [], []
        page.on("console", lambda message: page.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: page.said.append(f"error: {error}"))
        page.on("request", lambda request: page.asked.append(request.url))
        page.set_default_timeout(60_000)
        return page

    def close(self):
        """Ends Chromium and the driver."""
        self._chromium.close()
        self._playwright.stop()


def wait_until(page, function, given=None, timeout_s=30):
    """Waits until a function of the page is true; returns the time that took in s.

    Playwright's own wait evaluates within the page, which the dashboard's policy forbids.
    """
    start = time.monotonic()
    while not page.evaluate(function, given):
        if time.monotonic() - start > timeout_s:
            raise TimeoutError(f"not within {timeout_s} s: {function}")
        time.sleep(0.02)
    return time.monotonic() - start


def complaints(page):
    """What axe calls serious or critical on a page: rule, impact, and the elements."""
    with open(AXE_FILE_PATH, encoding="utf-8") as file:
        page.evaluate(file.read())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [
        (one["id"], one["impact"], [node["html"][:160] for node in one["nodes"]][:3])
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
