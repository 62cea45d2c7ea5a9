"""A headless browser for tests of the console, and what it must never do."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SHOTS = Path(__file__).resolve().parents[2] / ".cache" / "console"
# What the page of a node must not cause, in any test.
_REPORT = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`);
});
"""


class Browser:
    """One browser; `wrong` has everything that a page should not have done."""

    def __init__(self, chromium, url: str) -> None:
        self._chromium = chromium
        self.url = url
        self.wrong: list[str] = []

    @asynccontextmanager
    async def page(self, *, width: int = 1280, height: int = 800, dark: bool = False, phone: bool = False):
        """A page that has loaded nothing; at its end nothing may have gone wrong."""
        size = {"width": 390, "height": 844} if phone else {"width": width, "height": height}
        context = await self._chromium.new_context(
            viewport=size, color_scheme="dark" if dark else "light", is_mobile=phone,
            device_scale_factor=1, timezone_id="UTC", reduced_motion="reduce",
        )  # fmt: skip
        try:
            await context.add_init_script(_REPORT)
            page = await context.new_page()
            page.set_default_timeout(20_000)
            page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
            page.on("console", lambda m: self.wrong.append(f"console: {m.text}") if m.type == "error" else None)
            page.on("request", self._requested)
            yield page
            self.wrong += await page.evaluate("window.violations")
            assert not self.wrong, self.wrong
        finally:
            self.wrong = []
            await context.close()

    def _requested(self, request) -> None:
        if not request.url.startswith(self.url):
            self.wrong.append(f"a request left the node: {request.url}")

    async def open(self, page, place: str) -> None:
        """Show a place and wait for its heading."""
        await page.goto(f"{self.url}/#/{place}")
        await page.wait_for_selector("main h1")


@asynccontextmanager
async def browser(url: str):
    """Debian's chromium, driven by playwright.  Skips the test with the reason when one is missing."""
    playwright = pytest.importorskip("playwright.async_api", reason="needs playwright: make console-browser")
    if CHROMIUM is None:
        pytest.skip("needs chromium: apt-get update && apt-get install chromium")
    async with playwright.async_playwright() as driver:
        # Without the sandbox, which root has not; the pages are our own.
        chromium = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield Browser(chromium, url)
        finally:
            await chromium.close()


async def until(page, condition: str, seconds: float = 20.0) -> None:
    """Wait until a condition in JavaScript holds; `wait_for_function` would need `eval` in the page."""
    try:
        async with asyncio.timeout(seconds):
            while not await page.evaluate(condition):
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"not within {seconds} s: {condition}") from None


async def shot(page, name: str) -> None:
    """Keep a picture for people, in .cache/console."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=SHOTS / f"{name}.png")


async def overflows(page) -> int:
    """By how many pixels the page is wider than its window."""
    return await page.evaluate("document.documentElement.scrollWidth - innerWidth")
