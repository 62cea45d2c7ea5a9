"""The search page of the console in a headless browser: `make console-browser`."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from sarit.search.mapping import Field, Kind, Mapping
from sarit.search.settings import SEARCH_JOB, SEARCH_KIND, SearchSettings
from tests.console.browser import browser, overflows, shot, until
from tests.console.serving import listening, serving
from tests.security.http_serving import serving as serving_users
from tests.security.running import PASSWORD

pytest.importorskip("tantivy", reason="sarit[search] is not installed")
pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

LOG, ODD, PLAIN = "web/log", "web/odd", "web/plain"
BEGIN = 1_772_359_200_000  # 2026-03-01T10:00:00Z
MINUTE = 60_000
EVENTS = 120
ALERT = "document.querySelector('main [role=alert]')?.textContent"
BOX = "main input[type=search]"
LOG_MAPPING = Mapping(
    (Field("time", Kind.TIME), Field("level", Kind.KEYWORD), Field("text", Kind.TEXT), Field("ms", Kind.NUMBER)), "time"
)
# Names of fields, and values of each, that a query has to say as they are.
NAMES = ('two words: "quoted"', "(a OR b) -c*", "back\\slash\\", "größe.名前🙂")
VALUES = (
    'say "hi"', "a:b", "(x) OR (y)", "NOT", "C:\\temp\\", "\\", '"', "ünï 名前 🙂", "*", "line\nend\ttab", "", "  ",
    "<img src=x onerror=window.pwned=1>", "\u202eright to left", "v" * 300,
)  # fmt: skip
SCRIPT = "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 2'>"
HOSTILE = (
    json.dumps({SCRIPT: SCRIPT, "level": SCRIPT}).encode(),
    json.dumps({"level": "javascript:window.pwned=1", "text": "hostile \u202e\u2066\u0000\u001b[31m\ud800"}).encode(),
    json.dumps({"level": "raw\u202e\u2066", "text": "hostile \u202e\u009b \u2028"}, ensure_ascii=False).encode(),
    "hostile text \u202e\u2066 \u009b31m".encode(),
    json.dumps({"text": "hostile " + "x" * 900_000}).encode(),
    json.dumps({"text": "hostile", **{f"field {number}": str(number) for number in range(10_000)}}).encode(),
    b'{"text": "hostile ' + b"[" * 5000 + b'", "deep": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"level": "hostile \xff\xfe", "text": "broken \xc3"}',
    b"hostile \xff\xfe\x00 bytes",
    b"hostile " + SCRIPT.encode(),
)


class World:
    """A node with searchable streams and a console, and a browser."""

    def __init__(self, made, found) -> None:
        self.client, self.browser = made.client, found


async def write(client, name: str, events) -> None:
    async with client.writer(name) as writer:
        for number, event in enumerate(events):
            writer.write(event, key=str(number))
        await writer.flush()


async def searchable(client, name: str, mapping: Mapping | None, events) -> None:
    """Make a stream with an index that has all its events."""
    await client.create_stream(name, segments=2)
    await write(client, name, events)
    await client.stream(name).create_job(SEARCH_KIND, SearchSettings(mapping, interval_seconds=1).encode(), SEARCH_JOB)
    await indexed(client, name, len(events))


async def indexed(client, name: str, count: int) -> None:
    async with asyncio.timeout(60):
        while (await client.search.info(name)).events < count:
            await asyncio.sleep(0.05)


def line(number: int, **more) -> str:
    level = "error" if number % 4 == 0 else "info"
    found = {"time": BEGIN + number * MINUTE, "level": level, "text": f"request {number} timed out", "ms": number}
    return json.dumps(found | more)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def start() -> World:
            enter = stack.enter_async_context
            made = await enter(listening(await enter(serving(tmp_path_factory.mktemp("find") / "node", jobs=True))))
            await made.client.create_scope("web")
            await searchable(made.client, LOG, LOG_MAPPING, [line(number) for number in range(EVENTS)])
            odd = Mapping(tuple(Field(name, Kind.KEYWORD) for name in NAMES))
            values = [{name: VALUES[(at + turn) % len(VALUES)] for at, name in enumerate(NAMES)}
                      for turn in range(len(VALUES))]  # fmt: skip
            await searchable(made.client, ODD, odd, [json.dumps(value) for value in values])
            await made.client.create_stream(PLAIN)
            await write(made.client, PLAIN, [line(number) for number in range(EVENTS)])
            return World(made, await enter(browser(made.url)))

        world = runner.run(start())
        yield lambda test: runner.run(test(world))
        runner.run(stack.aclose())


async def said(page, text: str) -> None:
    """Wait until the page says how many events it has found, and shows."""
    await until(page, f"document.querySelector('.result').textContent.includes({json.dumps(text)})")


async def asked(page, query: str, text: str) -> None:
    await page.fill(BOX, query)
    await page.keyboard.press("Enter")
    await said(page, text)


def refused(world, status: str) -> None:
    """Forget what the browser itself notes of a request that was refused."""
    assert world.browser.wrong
    assert all(status in each for each in world.browser.wrong), world.browser.wrong
    world.browser.wrong.clear()


def test_query_has_marked_hits_pages_bars_and_values(run) -> None:
    async def test(world) -> None:
        async with world.browser.page() as page:
            await world.browser.open(page, f"streams/{LOG}/search")
            await said(page, "120 found, 20 shown.")
            await asked(page, 'level:error "timed out"', "30 found, 20 shown.")
            marks = await page.locator(".events li >> nth=0").locator("mark").all_inner_texts()
            assert marks == ["error", "timed out"]
            assert "2026-03-01 11:56:00" in await page.inner_text(".events li >> nth=0")
            bars = page.locator(".histogram button:enabled")
            assert await bars.count() == 24
            await shot(page, "find")
            # Further pages are of the question that was asked, not of what was typed since.
            await page.fill(BOX, "level:info")
            await page.click("button:text-is('Show more')")
            await said(page, "30 found, 30 shown.")
            assert not await page.locator("button:text-is('Show more')").is_visible()
            assert await page.locator(".events li:has-text('info')").count() == 0

            await asked(page, "request", "120 found")
            await page.locator(".histogram button:enabled").first.click()
            await said(page, "5 found, 5 shown.")
            assert await page.evaluate("document.activeElement.textContent") == "All times"
            await page.click("button:text-is('All times')")
            await said(page, "120 found")

            await page.select_option("select >> nth=1", "oldest")
            await until(page, "document.querySelector('.events .where').textContent === '2026-03-01 10:00:00'")
            await page.select_option("select >> nth=1", "score")
            await said(page, "120 found")
            await page.select_option("select >> nth=0", "-1 hour")
            await said(page, "0 found, 0 shown.")
            assert await page.locator(".histogram").count() == 0

    run(test)


def test_bars_are_where_the_times_of_events_are(run) -> None:
    async def test(world) -> None:
        name = "web/far"
        times = ["1950-05-05T00:00:00Z", "1970-01-02T00:00:00Z", "2050-01-01T00:00:00Z", "9999-12-31T00:00:00Z"]
        await searchable(world.client, name, LOG_MAPPING, [line(0, time=time) for time in times])
        async with world.browser.page() as page:
            await world.browser.open(page, f"streams/{name}/search")
            await said(page, "4 found, 4 shown.")
            bars = page.locator(".histogram button:enabled")
            assert 2 <= await bars.count() <= 4
            await shot(page, "find-far")
            await bars.first.click()
            await page.wait_for_selector(".all-times")
            await until(page, "/^[123] found/.test(document.querySelector('.result').textContent)")
            await page.click(".all-times")
            await said(page, "4 found")
            # Of times that no search can name, the page says so.
            await bars.last.click()
            await until(page, f"{ALERT}.includes('from 1830 to 2109')")
            refused(world, "400")
            await page.click(".all-times")
            await said(page, "4 found")

    run(test)


def test_values_of_fields_narrow_a_search_and_are_removed_again(run) -> None:
    async def test(world) -> None:
        async with world.browser.page() as page:
            await world.browser.open(page, f"streams/{LOG}/search")
            # The value is asked for of all of the query, not of its last word.
            await asked(page, "17 OR 4", "2 found")
            await page.click("[aria-label='Only level error']")
            await said(page, "1 found")
            assert await page.evaluate("document.activeElement.ariaLabel") == "Remove level error"
            await page.click("button:text-is('Copy as command')")
            assert await page.inner_text("dialog pre") == f"""sarit search {LOG} -- '(17 OR 4) "level":"error"'"""
            await page.keyboard.press("Escape")
            await page.keyboard.press("Escape")
            await page.click("[aria-label='Remove level error']")
            await said(page, "2 found")
            assert await page.evaluate("document.activeElement.type") == "search"

            await world.browser.open(page, f"streams/{ODD}/search")
            await said(page, f"{len(VALUES)} found")
            only = page.locator(".facet button")
            assert await only.count() == len(NAMES) * 6
            await shot(page, "find-values")
            for each in range(await only.count()):
                await only.nth(each).click()
                await said(page, "1 found, 1 shown.")
                await page.click(".chip")
                await said(page, f"{len(VALUES)} found")
            # The values that are not among the most frequent, too.
            for value in VALUES:
                found = await page.evaluate(
                    "([chosen]) => fetch('/console/api/streams/web/odd/find?' + new URLSearchParams({q: '*', chosen}))"
                    ".then((reply) => reply.json())", [json.dumps([[NAMES[1], value]])],
                )  # fmt: skip
                assert found.get("total") == 1, (value, found)
            assert await page.evaluate("window.pwned") is None

    run(test)


def test_refresh_shows_what_has_come_and_leaves_what_is_read(run) -> None:
    async def test(world) -> None:
        name = "web/coming"
        await searchable(world.client, name, LOG_MAPPING, [line(0)])
        async with world.browser.page() as page:
            await page.clock.install()
            await world.browser.open(page, f"streams/{name}/search")
            await said(page, "1 found")
            await page.select_option("select >> nth=2", "5")
            await write(world.client, name, [line(1)])
            await indexed(world.client, name, 2)
            await page.clock.run_for(6000)
            await said(page, "2 found, 2 shown.")
            await page.locator(".events summary").first.click()
            await page.wait_for_selector(".events pre")
            await write(world.client, name, [line(2)])
            await indexed(world.client, name, 3)
            await page.clock.run_for(6000)
            await page.wait_for_selector("text=The refresh waits while an event is open")
            assert await page.locator(".events pre").is_visible()
            await page.locator(".events summary").first.click()
            await page.clock.run_for(6000)
            await said(page, "3 found, 3 shown.")
            assert not await page.locator("text=The refresh waits").is_visible()
            await page.select_option("select >> nth=2", "0")

    run(test)


def test_wrong_query_names_its_place_and_shows_no_earlier_hits(run) -> None:
    async def test(world) -> None:
        async with world.browser.page() as page:
            await world.browser.open(page, f"streams/{LOG}/search")
            await said(page, "120 found")
            for query, reason in (
                ("level:error (timed", "at character 13: the ( has no )"),
                ("leve:error", "there is no field leve: there are level, "),
                ("ms:many", '"many" of the field ms is no number'), ("a*b", "a star stands at the end"),
                (")", "character 1"), ("((" * 40 + "a", "more than 32 groups"), ("a " * 300, "more than 256 words"),
            ):  # fmt: skip
                await page.fill(BOX, query)
                await page.keyboard.press("Enter")
                await until(page, f"{ALERT}.includes({json.dumps(reason)})")
                assert await page.locator(".events li, .histogram, .facet").count() == 0, query
                assert not await page.locator("button:text-is('Show more')").is_visible()
                refused(world, "400")
            await shot(page, "find-error")
            await asked(page, "level:error", "30 found")
            assert await page.locator("main [role=alert]").count() == 0

    run(test)


def test_stream_without_an_index_is_scanned_with_the_same_query(run) -> None:
    async def test(world) -> None:
        async with world.browser.page() as page:
            await world.browser.open(page, f"streams/{PLAIN}/search")
            await page.select_option("select >> nth=0", "query")
            await page.fill(BOX, 'level:error "timed out" ms:<40')
            await page.keyboard.press("Enter")
            await page.wait_for_selector("text=Everything in the range was searched: 10 found in 120 events.")
            await shot(page, "find-scan")
            found = await page.evaluate("fetch('/console/api/streams/web/plain/find').then((reply) => reply.json())")
            assert found["error"] == "stream web/plain has no index: search by reading the stream"
            refused(world, "400")
            # From the page of an index to a scan with the same text.
            await world.browser.open(page, f"streams/{LOG}/search")
            await asked(page, 'level:error "timed out" ms:<40', "10 found")
            await page.click("a:text-is('Search by reading the stream')")
            await until(page, f"document.querySelector('{BOX}').value.startsWith('level:error')")
            await page.click("button:text-is('Search')")
            await page.wait_for_selector("text=Everything in the range was searched: 10 found in 120 events.")

    run(test)


def test_hostile_events_are_text_and_leave_the_page_whole(run) -> None:
    async def test(world) -> None:
        name = "web/hostile"
        await searchable(world.client, name, None, HOSTILE)
        for phone, dark in ((False, False), (True, True)):
            async with world.browser.page(phone=phone, dark=dark) as page:
                await world.browser.open(page, f"streams/{name}/search")
                await said(page, f"{len(HOSTILE)} found, {len(HOSTILE)} shown.")
                for number in range(len(HOSTILE)):
                    await page.locator(".events summary").nth(number).click()
                await until(page, f"document.querySelectorAll('.events pre').length === {len(HOSTILE)}")
                assert await overflows(page) <= 0
                await shot(page, f"find-hostile{'-phone' if phone else ''}")
                for query in (SCRIPT, f'"{SCRIPT}"', "hostile", "\u202ehostile", "\ud83d\ude42 OR hostile"):
                    await page.fill(BOX, query)
                    await page.keyboard.press("Enter")
                    await said(page, " found, ")
                    await until(page, "!document.querySelector('.result').textContent.startsWith('Searching')")
                text = await page.inner_text("main")
                assert not set("\u202e\u2066\u2028\u009b\u001b\u0000") & set(text)
                assert await page.locator("main script, main img").count() == 0
                assert await page.evaluate("window.pwned") is None

    run(test)


def test_page_is_whole_wide_narrow_and_dark(run) -> None:
    axe = pytest.importorskip("axe_playwright_python", reason="needs axe-playwright-python: make console-browser")
    script = (Path(axe.__file__).parent / "axe.min.js").read_text()

    async def test(world) -> None:
        for options in ({}, {"dark": True}, {"phone": True}, {"width": 640, "dark": True}):
            async with world.browser.page(**options) as page:
                for name, least in ((LOG, "120 found"), (ODD, f"{len(VALUES)} found")):
                    await world.browser.open(page, f"streams/{name}/search")
                    await said(page, least)
                    await page.locator(".facet button").first.click()
                    await page.wait_for_selector(".chip")
                    await said(page, " found, ")
                    await page.locator(".events summary").first.click()
                    assert await overflows(page) <= 0, (name, options)
                    kind = "".join(f"-{option}" for option in options)
                    await shot(page, f"find-{name.partition('/')[2]}{kind}")
                    await page.evaluate(script)
                    found = await page.evaluate("axe.run(document)")
                    wrong = [f"{one['id']}: {one['nodes'][0]['html'][:150]}" for one in found["violations"]]
                    assert not wrong, "\n".join(wrong)

    run(test)


def test_nothing_is_shown_without_the_right_to_read(tmp_path) -> None:
    async def main() -> None:
        async with serving_users(tmp_path, tls=False, jobs=True) as http, browser(http.base) as made:
            async with http.secured.client("root") as root:
                await root.create_scope("app")
            async with http.secured.client("bob") as bob:
                await bob.create_stream("app/log")
                await write(bob, "app/log", [line(number) for number in range(3)])
                await bob.stream("app/log").create_job(
                    SEARCH_KIND, SearchSettings(interval_seconds=1).encode(), SEARCH_JOB
                )  # fmt: skip
                await indexed(bob, "app/log", 3)
            for user, sees in (("alice", True), ("dave", False)):
                async with made.page() as page:
                    await page.goto(f"{http.base}/#/streams/app/log/search")
                    await page.wait_for_selector(".log-in form")
                    await page.keyboard.type(user)
                    await page.keyboard.press("Tab")
                    await page.keyboard.type(PASSWORD)
                    await page.keyboard.press("Enter")
                    await page.wait_for_selector("#account .user")
                    if sees:
                        await page.wait_for_selector("text=3 found, 3 shown.")
                    else:
                        await page.wait_for_selector("main [role=alert]")
                        assert "READ" in await page.inner_text("main [role=alert]")
                        for path in ("find?q=*", "search/live?kind=query&text=*", "find?q=time:*"):
                            reply = await page.evaluate(
                                f"fetch('/console/api/streams/app/log/{path}')"
                                ".then(async (reply) => [reply.status, await reply.text()])"
                            )  # fmt: skip
                            assert reply[0] == 403, reply
                            assert "timed out" not in reply[1]
                        await shot(page, "find-forbidden")
                        made.wrong.clear()

    asyncio.run(main())
