"""The console of a controller of a real cluster on ZooKeeper, in a headless browser."""

from __future__ import annotations

import asyncio

import pytest

from sarit.client import aio
from tests.cluster.processes import RunningCluster
from tests.console import load
from tests.console.browser import browser, overflows, shot, until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

PLACES = (
    "overview", "streams", "streams/shop/orders", "streams/shop/orders/events", "streams/shop/payments/config",
    "streams/shop/payments/transactions", "groups/shop/billing", "tables/shop/prices", "query", "cluster", "settings",
)  # fmt: skip


def test_console_of_a_cluster_shows_its_stores_and_what_happens_to_them(tmp_path):
    with RunningCluster(tmp_path / "cluster", stores=2, controllers=1, containers=6, http=True) as cluster:
        asyncio.run(_use(cluster))
        assert "Traceback" not in cluster.log()


async def _use(cluster):
    url = f"http://{cluster.controllers[0].http}"
    async with await aio.connect(cluster.controller) as client, browser(url) as made:
        await load.create_objects(client)
        await load.write_orders(client, 100)
        group = await client.reader_groups.create("shop/billing", ["shop/orders", "shop/payments"])
        reader = await group.reader("billing-1")
        await reader.read_batch(20, timeout=5)
        await _see_all_views(made)
        async with made.page(height=1000) as page:
            await _create_and_write_by_keyboard(made, page, client)
            await _query(made, page)
            await _lose_a_store(made, page, cluster)


async def _see_all_views(made):
    for phone in (False, True):
        async with made.page(phone=phone) as page:
            for place in PLACES:
                await made.open(page, place)
                await until(page, "!document.querySelector('[aria-busy=true]')")
                await page.wait_for_timeout(400)  # for live data, in the picture
                assert await page.locator(".notice.bad").count() == 0, place
                assert await overflows(page) <= 0, (place, phone)
                await shot(page, f"cluster-{place.replace('/', '-')}{'-phone' if phone else ''}")


async def _create_and_write_by_keyboard(made, page, client):
    await made.open(page, "streams")
    press = page.keyboard.press
    await page.focus("button:text-is('Create stream')")
    await press("Enter")
    await page.wait_for_selector("dialog[open]")
    await page.keyboard.type("by-keyboard")
    await press("Enter")
    await page.wait_for_selector("h1:text-is('by-keyboard')")
    (name,) = [str(one) async for scope in client.list_scopes() if scope[0] != "_"
               async for one in client.list_streams(scope) if str(one).endswith("/by-keyboard")]  # fmt: skip
    await made.open(page, f"streams/{name}/events")
    await page.wait_for_selector("text=Live:")
    await page.focus("button:text-is('Write an event')")
    await press("Enter")
    await page.wait_for_selector("dialog[open]")
    await page.fill("dialog textarea", '{"hello": "cluster"}')
    await page.focus("dialog button[type=submit]")
    await press("Enter")
    await page.wait_for_selector(".events li")


async def _query(made, page):
    await made.open(page, "query")
    await page.fill("#query-sql", "SELECT count(*) AS events FROM shop.orders HAVING events >= 100")
    await page.keyboard.press("Control+Enter")
    await page.wait_for_selector(".result:has-text('1 row, ')", timeout=60_000)


async def _lose_a_store(made, page, cluster):
    await made.open(page, "overview")
    await page.wait_for_selector("text=Everything serves.")
    cells = "[...document.querySelectorAll('main td')].map((cell) => cell.textContent.trim())"
    await until(page, f"['s1', 's2'].every((name) => {cells}.includes(name))")
    assert await page.inner_text("#link") == "healthy"
    cluster.stores["s2"].kill()
    await page.wait_for_selector("text=s2 at", timeout=60_000)
    await shot(page, "cluster-store-lost")
    # Its lease ends, and the other store has all containers.
    await page.wait_for_selector("text=Everything serves.", timeout=60_000)
    await until(page, f"!{cells}.includes('s2')")
    cluster.stores["s2"].begin().wait()
    await until(page, f"{cells}.includes('s2')", 60)
