"""The log-in page in a headless browser, by keyboard alone."""

from __future__ import annotations

import asyncio

import pytest

from tests.console.browser import browser, overflows, shot, until
from tests.security.http_serving import serving
from tests.security.running import PASSWORD

pytestmark = pytest.mark.long


def test_log_in_by_keyboard_see_a_refusal_and_log_out(tmp_path):
    async def main() -> None:
        async with serving(tmp_path, tls=False) as http, browser(http.base) as made:
            async with made.page() as page:
                await page.goto(f"{http.base}/#/streams")
                await page.wait_for_selector(".log-in form")
                assert await page.evaluate("document.activeElement.name") == "username"
                assert await page.locator("#nav").is_visible() is False
                await shot(page, "log-in")
                assert await overflows(page) <= 0
                await page.keyboard.type("alice")
                await page.keyboard.press("Tab")
                await page.keyboard.type("wrong one")
                await page.keyboard.press("Enter")
                await page.wait_for_selector("[role=alert]")
                assert "user or password is wrong" in await page.inner_text("[role=alert]")
                await shot(page, "log-in-refused")
                # The browser notes the refused request by itself.
                assert all("401" in each for each in made.wrong), made.wrong
                made.wrong.clear()
                await page.keyboard.type(PASSWORD)
                await page.keyboard.press("Enter")
                # The page loads again: what is evaluated meanwhile would fail.
                await page.wait_for_selector("#account .user")
                await until(page, "document.querySelector('main h1')?.textContent === 'Streams'")
                assert await page.inner_text("#account .user") == "alice"
                # She may only read, and sees no button that would be refused.
                await until(
                    page, "![...document.querySelectorAll('button')].some((b) => b.textContent === 'Create stream')"
                )
                await until(page, "document.getElementById('link').textContent === 'healthy'")
                kept = await page.evaluate(
                    "[document.cookie, JSON.stringify(localStorage), JSON.stringify(sessionStorage)]"
                )
                assert kept[0] == ""
                assert PASSWORD not in "".join(kept)
                await shot(page, "logged-in")
                await page.goto(f"{http.base}/#/settings")
                await until(
                    page, "document.querySelector('main [role=alert]')?.textContent.includes('needs the role admin')"
                )
                await shot(page, "settings-refused")
                assert all("403" in each for each in made.wrong), made.wrong
                made.wrong.clear()
                await page.focus("#account button")
                await page.keyboard.press("Enter")
                await page.wait_for_selector(".log-in form")
            async with made.page(phone=True, dark=True) as page:
                await page.goto(f"{http.base}/")
                await page.wait_for_selector(".log-in form")
                await shot(page, "log-in-phone")
                assert await overflows(page) <= 0

    asyncio.run(main())
