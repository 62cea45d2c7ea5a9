"""Searches of the console on a node, and events with headers."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections import Counter

import pytest

from sarit.core.envelope import Envelope
from sarit.core.errors import Invalid
from tests.console.serving import Serving, listening
from tests.limits import HANG_SECONDS
from tests.unit.admin.console.pages import API, serve_page

SEARCH = "/streams/s/{}/search/live"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    yield from serve_page(tmp_path_factory.mktemp("search") / "node")


async def write(page, stream: str, events) -> None:
    await page.client.create_stream(f"s/{stream}")
    async with page.client.writer(f"s/{stream}") as writer:
        for event in events:
            writer.write(event, key="k")


async def searched(page, stream: str, **params) -> list[tuple[str, dict, str]]:
    """All events of one search: name, document, id."""
    found = []
    async with page.http.stream("GET", API + SEARCH.format(stream), params=params) as reply:
        assert reply.status_code == 200, await reply.aread()
        text = "".join([part async for part in reply.aiter_text()])
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if "event" in fields:
            found.append((fields["event"], json.loads(fields["data"]), fields.get("id", "")))
    return found


def payloads(found) -> list[bytes]:
    return [base64.b64decode(event["payload"]["base64"]) for _, step, _ in found[1:] for event in step["events"]]


def test_a_search_finds_texts_patterns_and_fields(run) -> None:
    async def test(page) -> None:
        events = [b'{"id": 1, "to": "ann"}', b"<b>ann</b>", bytes(Envelope(b'{"id": 2}', key="ann")), b"\xff\x00ANN"]
        await write(page, "kinds", events)
        found = await searched(page, "kinds", text="ann")
        assert payloads(found) == [events[0], events[1], b'{"id": 2}', events[3]]
        assert found[0][0] == "begun"
        assert found[0][1]["bytes"] == sum(len(event) + 8 for event in events) == found[-1][1]["bytes"]
        assert (found[-1][1]["ended"], found[-1][1]["scanned"], found[-1][1]["partly"]) == ("end", 4, 0)
        assert payloads(await searched(page, "kinds", kind="pattern", text=r"^<b>\w+")) == [events[1]]
        assert payloads(await searched(page, "kinds", kind="field", path="id", text="2")) == [b'{"id": 2}']
        assert payloads(await searched(page, "kinds", kind="query", text="ann -b")) == [events[0], events[3]]
        assert payloads(await searched(page, "kinds", kind="query", text="id:>=2 OR to:ann")) == [
            events[0],
            b'{"id": 2}',
        ]
        assert payloads(await searched(page, "kinds", text="nothing")) == []
        later = await searched(page, "kinds", **{"text": "ann", "from": "-1 hour", "until": "-1 second"})
        assert len(payloads(later)) == 4
        assert payloads(await searched(page, "kinds", **{"text": "ann", "from": "tail"})) == []
        for wrong in (
            {"kind": "pattern", "text": "("}, {"kind": "field", "text": "1"}, {"kind": "odd"},
            {"kind": "query", "text": "("}, {"kind": "query", "text": "nope:1"}, {"from": "nonsense"},
            {"until": "1 Foo"}, {"text": "x" * 201}, {"kind": "pattern", "text": "(a{99}){99}"},
        ):  # fmt: skip
            assert (await page.get(SEARCH.format("kinds"), 400, **wrong))["error"]
        await page.get(SEARCH.format("none"), 404, text="x")

    run(test)


def test_a_search_that_has_found_enough_goes_on_where_it_was(run) -> None:
    async def test(page) -> None:
        await write(page, "many", [b"hit %d" % n for n in range(250)])
        first = await searched(page, "many", text="hit")
        assert (len(payloads(first)), first[-1][1]["ended"]) == (100, "hits")
        until = first[0][1]["until"]
        second = await searched(page, "many", **{"text": "hit", "from": first[-1][2], "until": until})
        third = await searched(page, "many", **{"text": "hit", "from": second[-1][2], "until": until})
        assert third[-1][1]["ended"] == "end"
        assert payloads(first) + payloads(second) + payloads(third) == [b"hit %d" % n for n in range(250)]
        assert second[0][1]["bytes"] == first[0][1]["bytes"] - first[-1][1]["bytes"]

    run(test)


def test_of_three_searches_at_once_one_is_refused_with_a_sentence(run) -> None:
    async def test(page) -> None:
        await write(page, "slow", [b"x" * 1000] * 50)
        places = page.console._searches
        with places, places:
            refused = await page.get(SEARCH.format("slow"), 503, text="x")
            assert refused["error"].startswith("2 searches run on this process, which is the limit")
        assert len(payloads(await searched(page, "slow", text="x"))) == 50
        assert places._taken == 0

    run(test)


def test_searches_that_are_refused_make_no_matcher(run, monkeypatch) -> None:
    begun, may_end = [], threading.Event()

    def matcher_of(*given):
        begun.append(given)
        assert may_end.wait(HANG_SECONDS)
        raise Invalid("no such text")

    monkeypatch.setattr("sarit.admin.console.search.matcher_of", matcher_of)

    async def test(page) -> None:
        await page.client.create_stream("s/many-at-once")
        path = API + SEARCH.format("many-at-once")
        searches = [asyncio.ensure_future(page.http.get(path, params={"text": "x"})) for _ in range(10)]
        try:
            while sum(map(asyncio.Future.done, searches)) < 8 and len(begun) <= 2:
                await asyncio.sleep(0.01)
        finally:
            may_end.set()
        assert Counter([(await one).status_code for one in searches]) == {503: 8, 400: 2}
        assert len(begun) == 2
        assert page.console._searches._taken == 0

    run(test)


def test_a_search_whose_browser_leaves_ends(run, monkeypatch) -> None:
    # So slow that it would take minutes.
    monkeypatch.setattr("sarit.client.search.scan.SEARCH_SLICE_BYTES", 1)
    monkeypatch.setattr("sarit.admin.console.search.CONSOLE_SEARCH_SHARE", 0.001)

    async def test(page) -> None:
        await write(page, "left", [b"hit"] * 10_000)
        tasks = len(asyncio.all_tasks())
        reading = asyncio.ensure_future(searched(page, "left", text="hit"))
        while not page.console._searches._taken:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        while page.console._searches._taken or len(asyncio.all_tasks()) > tasks:
            await asyncio.sleep(0.01)

    run(test)


def test_a_search_ends_when_its_connection_is_closed(run, monkeypatch) -> None:
    monkeypatch.setattr("sarit.client.search.scan.SEARCH_SLICE_BYTES", 1)
    monkeypatch.setattr("sarit.admin.console.search.CONSOLE_SEARCH_SHARE", 0.001)

    async def test(page) -> None:
        await write(page, "closed", [b"hit"] * 10_000)
        async with listening(Serving(page.node, page.client, page.console)) as made:
            host, port = made.url.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            path = API + SEARCH.format("closed")
            writer.write(f"GET {path}?text=hit HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
            await reader.readuntil(b"event: step")
            assert page.console._searches._taken == 1
            writer.close()
            while page.console._searches._taken:
                await asyncio.sleep(0.01)

    run(test)


def test_an_event_is_written_with_headers_key_and_time(run) -> None:
    async def test(page) -> None:
        await page.client.create_stream("s/written")
        one = "/streams/s/written"
        headers = [{"name": "unit", "value": "°C"}, {"name": "raw", "base64": "/wA="}, {"name": "unit", "value": ""}]
        body = {"text": "21.5", "key": "north", "headers": headers, "event_time": "1969-07-20T20:17:40Z"}
        await page.send("POST", f"{one}/events", body)
        await page.send("POST", f"{one}/events", {"text": "x", "key": "north", "envelope": True})
        await page.send("POST", f"{one}/events", {"text": "bare", "key": "north"})
        async with page.client.reader("s/written", end="tail") as reader:
            first, second, third = [event async for event in reader]
        made = Envelope.parse(first)
        assert (made.payload, made.key, made.event_time) == (b"21.5", "north", -14_182_940_000_000)
        assert made.headers == (("unit", "°C".encode()), ("raw", b"\xff\x00"), ("unit", b""))
        assert Envelope.parse(second) == Envelope("x", key="north")
        assert third == b"bare"
        for wrong in (
            {"headers": "x"}, {"headers": [1]}, {"headers": [{"name": 5, "value": ""}]}, {"headers": [{"name": "a"}]},
            {"event_time": "yesterday"}, {"headers": [{"name": "\ud800", "value": ""}]},
        ):  # fmt: skip
            await page.send("POST", f"{one}/events", {"text": "x", **wrong}, 400)

    run(test)


def test_a_whole_event_is_fetched_by_its_place(run) -> None:
    async def test(page) -> None:
        await write(page, "whole", [b"first", b"x" * 1_000_000])
        found = await page.get("/streams/s/whole/event", segment="0.0", offset=13, size=1_000_000)
        assert base64.b64decode(found["payload"]["base64"]) == b"x" * 1_000_000
        assert found["payload"]["cut"] is False
        for wrong in ({"segment": "x"}, {"offset": 14}, {"size": 5}, {"offset": -1}, {"size": 1 << 40}):
            asked = {"segment": "0.0", "offset": 13, "size": 1_000_000} | wrong
            await page.get("/streams/s/whole/event", 400, **asked)

    run(test)
