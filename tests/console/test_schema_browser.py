"""The page of schemas, and decoded events, in a real browser: `make console-browser`."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from sarit.serializers.headers import confluent_header
from tests.console import load
from tests.console.browser import browser, until
from tests.console.serving import listening, serving

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


class World:
    """A node with a console and a schema registry, and a browser."""

    def __init__(self, client, found) -> None:
        self.client, self.browser = client, found


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def start() -> World:
            enter = stack.enter_async_context
            directory = tmp_path_factory.mktemp("console") / "node"
            made = await enter(listening(await enter(serving(directory, schemas=await load.schemas()))))
            await made.client.create_scope("shop")
            return World(made.client, await enter(browser(made.url)))

        world = runner.run(start())
        yield lambda test: runner.run(test(world))
        runner.run(stack.aclose())


def test_versions_are_compared_and_hostile_schemas_are_text(run) -> None:
    async def test(world) -> None:
        async with world.browser.page() as page:
            await world.browser.open(page, "schemas")
            await page.locator("a:has-text('shop.orders')").click()
            await page.locator("select[aria-label='Compare with']").select_option("1")
            await page.locator("pre.diff .added").first.wait_for()
            assert "onload=window.pwned" in await page.locator("pre.diff").inner_text()
            assert await page.evaluate("window.pwned") is None
            assert "version=2&with=1" in page.url

    run(test)


def test_events_are_shown_by_their_schemas_when_asked_to(run) -> None:
    async def test(world) -> None:
        name = "shop/typed"
        await world.client.create_stream(name)
        await world.client.stream(name).set_properties({"schema-header": "confluent"})
        async with world.client.writer(name) as writer:
            writer.write(confluent_header(1) + b"\x0e")
            await writer.flush()
        async with world.browser.page() as page:
            await world.browser.open(page, f"streams/{name}/events")
            await page.locator("select[aria-label='Where to begin']").select_option("head")
            row = page.locator(".events .line").first
            await row.wait_for()
            assert (await row.inner_text()).startswith("00 00")
            await page.locator("label:has-text('By schema') input").check()
            await until(page, """document.querySelector('.events .line')?.textContent === '{"n": 7}'""")

    run(test)
