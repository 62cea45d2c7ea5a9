"""The query page in a headless browser: `make console-browser`."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from sarit.env.real import real_env
from sarit.process.query_runner import QueryRunner
from sarit.security.audit import NoAudit
from tests.console.browser import browser, overflows, shot, until
from tests.console.serving import listening, serving

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
EDITOR = "#query-sql"
FOR_EVER = "SELECT count(*) FROM range(1000000) AS a, range(1000000) AS b"
HOSTILE = "<img src=x onerror=window.pwned=1>\u202e"


class World:
    """A node with a stream and a console, and a browser."""

    def __init__(self, queries, found) -> None:
        self.queries, self.browser = queries, found


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def start() -> World:
            enter = stack.enter_async_context
            queries = QueryRunner(real_env(), NoAudit())
            made = await enter(
                listening(await enter(serving(tmp_path_factory.mktemp("query") / "node", queries=queries)))
            )
            stack.push_async_callback(queries.close)
            await made.client.create_scope("shop")
            await made.client.create_stream("shop/orders", segments=3)
            async with made.client.writer("shop/orders") as writer:
                for number in range(3000):
                    writer.write(b"%d" % number, key=str(number % 50))
                writer.write(HOSTILE)
            return World(queries, await enter(browser(made.url)))

        world = runner.run(start())
        yield lambda test: runner.run(test(world))
        runner.run(stack.aclose())


async def ended(page) -> str:
    """What is said at the end of a query."""
    await until(page, "!document.querySelector('.search-form .primary').disabled")
    return await page.locator(".result").inner_text()


async def asked(page, sql: str) -> str:
    """Run a query by keyboard; what is said at its end."""
    await page.fill(EDITOR, sql)
    await page.keyboard.press("Control+Enter")
    return await ended(page)


def test_query_by_keyboard_and_see_table_bars_and_errors(run) -> None:
    async def test(world) -> None:
        async with world.browser.page() as page:
            await world.browser.open(page, "streams/shop/orders")
            await page.locator("button:text-is('Query')").click()
            await until(page, "document.querySelector('#query-sql')?.value.includes('FROM shop.orders')")
            assert await page.evaluate("document.activeElement.id") == "query-sql"
            said = await asked(
                page, "SELECT sarit.segment AS s, count(*) AS events FROM shop.orders GROUP BY ALL ORDER BY 1"
            )
            assert said.startswith("3 rows, ")
            assert await page.locator(".query-result tbody tr").count() == 3
            assert await page.locator(".query-result th").first.inner_text() == "s\nint64"
            assert await page.locator("[role=meter]").count() == 3
            await shot(page, "query")

            said = await asked(page, "SELECT value, NULL AS n FROM shop.orders ORDER BY value::VARCHAR DESC LIMIT 1")
            assert said.startswith("1 row, ")
            assert await page.locator(".query-result td").first.inner_text() == HOSTILE.replace("\u202e", "\\u202e")
            assert await page.evaluate("window.pwned") is None
            assert await page.locator(".query-result .null").inner_text() == "null"

            await asked(page, "SELECT 1,\n  (2")
            error = page.locator("[role=alert]")
            assert "Line 2, column" in await error.inner_text()
            assert await page.evaluate("document.activeElement.selectionStart") >= len("SELECT 1,\n")
            assert await asked(page, "SELECT * FROM shop.ordrs") == ""
            assert "near it: shop.orders" in await error.inner_text()
            await shot(page, "query-error")

            # The history has the queries of this browser, the latest first, also after the page was left.
            await world.browser.open(page, "overview")
            await world.browser.open(page, "query")
            await until(page, "document.querySelector('#query-sql').value === 'SELECT * FROM shop.ordrs'")
            assert await page.locator(".query-text:has-text('ORDER BY value')").count() == 1
            await page.locator("button:has-text('Forget them')").click()
            assert await page.evaluate("localStorage.getItem('sarit-queries')") == "[]"

    run(test)


def test_a_query_is_cancelled_by_its_button_and_with_its_page(run) -> None:
    async def test(world) -> None:
        async with world.browser.page() as page:
            await world.browser.open(page, "query")
            await page.fill(EDITOR, FOR_EVER)
            await page.locator(".search-form .primary").click()
            await until(page, "document.querySelector('.result').textContent.startsWith('Running: ')")
            await page.locator("button:has-text('Cancel')").click()
            assert await ended(page) == "Cancelled."
            await gone(world)

            await page.locator(".search-form .primary").click()
            await until(page, "document.querySelector('.result').textContent.startsWith('Running: ')")
            await page.evaluate("location.hash = '#/overview'")
            await gone(world)

    async def gone(world) -> None:
        async with asyncio.timeout(20):
            while world.queries.running:
                await asyncio.sleep(0.02)

    run(test)


def test_result_is_a_file_and_a_page_for_phones(run) -> None:
    async def test(world) -> None:
        async with world.browser.page(phone=True, dark=True) as page:
            await world.browser.open(page, "query")
            await page.fill(EDITOR, "SELECT 1 AS a, 'x,y' AS b")
            async with page.expect_download() as waiting:
                await page.locator("button:has-text('Download CSV')").click()
            download = await waiting.value
            path = await download.path()
            assert path.read_bytes() == b'a,b\r\n1,"x,y"\r\n'
            assert download.suggested_filename == "query.csv"
            await asked(page, "SELECT range AS number, repeat('long ', 100) AS text FROM range(3)")
            assert await overflows(page) <= 0
            await shot(page, "query-phone")

    run(test)


def test_the_page_says_how_to_install_what_is_missing(run, monkeypatch) -> None:
    async def test(world) -> None:
        monkeypatch.setattr(world.queries, "missing", lambda: 'pip install "sarit[sql]"')
        async with world.browser.page() as page:
            await world.browser.open(page, "query")
            assert await page.locator("main pre").inner_text() == 'pip install "sarit[sql]"'
            assert await page.locator(EDITOR).count() == 0

    run(test)
