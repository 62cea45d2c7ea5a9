"""Searches by a client on a real node: from the write to the hit, with the events, on pages, and after truncations."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

import sarit
from sarit.client.aio import connect
from sarit.core.names import StreamName
from sarit.env.real import real_env
from sarit.process.settings import NodeConfig
from sarit.process.standalone import open_node
from sarit.search.field_values import time_of
from sarit.search.mapping import Field, Kind, Mapping
from sarit.search.settings import SEARCH_JOB, SEARCH_KIND, SearchSettings
from tests.limits import HANG_SECONDS

NAME = "shop/orders"
MAPPING = Mapping((Field("time", Kind.TIME), Field("user", Kind.KEYWORD), Field("text", Kind.TEXT)), "time")
SETTINGS = SearchSettings(MAPPING, interval_seconds=1).encode()
LONG = "x" * 40_000


def order(number: int, text: str, user: str = "alice") -> bytes:
    return json.dumps({"time": 1_700_000_000_000 + number * 1000, "user": user, "text": text}).encode()


def on_node(path, work):
    async def main():
        env = real_env()
        node = await open_node(NodeConfig(str(path), controller_port=0, store_port=0, jobs=True).validated(), env)
        await node.start()
        try:
            async with asyncio.timeout(HANG_SECONDS), connect(f"127.0.0.1:{node.controller_port}") as client:
                await client.create_scope("shop")
                await client.create_stream(NAME, segments=2)
                return await work(node, client)
        finally:
            await node.stop()

    return asyncio.run(main())


async def write(client, *events: bytes) -> None:
    async with client.writer(NAME) as writer:
        for number, event in enumerate(events):
            writer.write(event, f"key {number}")
        await writer.flush()


async def indexed(client, events: int) -> sarit.SearchInfo:
    while (info := await client.search.info(NAME)).events < events or info.bytes_behind:
        await asyncio.sleep(0.05)
    return info


def test_search_reads_no_more_bytes_of_events_than_its_bound(tmp_path, monkeypatch):
    from sarit.client.search import index_search

    monkeypatch.setattr(index_search, "SEARCH_HIT_BYTES", 3 * 40_000)
    monkeypatch.setattr(index_search, "SEARCH_FETCHES", 1)

    async def work(_, client):
        await client.stream(NAME).create_job(SEARCH_KIND, SETTINGS, SEARCH_JOB)
        await write(client, *(order(number, f"teapot {LONG}") for number in range(8)))
        await indexed(client, 8)
        return await client.search(NAME, "teapot")

    found = on_node(tmp_path, work)
    assert [hit.event is not None for hit in found.hits] == [True] * 3 + [False] * 5
    assert found.total == 8


def test_index_and_scan_agree_about_times_before_1970(tmp_path):
    times = ["2023-11-14", "1970-01-01", "1969-12-31T23:59:59.999Z", "1969-07-20T20:17:40Z", "1969-07-20T20:17:39.5Z"]
    times += ["1850-06-01", "0800-12-25", "9999-12-31"]
    since = {time: time_of(time) for time in times}
    bounds = [None, *(since[time] + more for time in times[1:6:2] for more in (0, 1))]

    async def work(_, client):
        await client.stream(NAME).create_job(SEARCH_KIND, SETTINGS, SEARCH_JOB)
        await write(client, *(json.dumps({"time": time, "text": "word"}).encode() for time in times))
        await indexed(client, len(times))
        for start in bounds:
            for end in bounds:
                wanted = {
                    json.dumps({"time": time, "text": "word"}).encode()
                    for time, at in since.items()
                    if (start is None or start <= at) and (end is None or at < end)
                }
                for sort in ("newest", "oldest"):
                    asked = {"start_ms": start, "end_ms": end, "sort": sort, "bucket_ms": 1 << 36}
                    index = await client.search(NAME, "word", **asked)
                    scan = await client.search(NAME, "word", **asked, scan=True)
                    shown = [(hit.time_ms, hit.event) for hit in index.hits]
                    assert shown == [(hit.time_ms, hit.event) for hit in scan.hits]
                    assert shown == sorted(shown, reverse=sort == "newest")
                    assert {event for _, event in shown} == wanted
                    assert index.total == scan.total == len(wanted)
                    assert index.histogram == scan.histogram

    on_node(tmp_path, work)


def test_search_finds_events_within_the_interval_and_reads_them(tmp_path):
    events = [order(at, f"order {at} failed" if at % 3 == 0 else f"order {at} paid", f"u{at % 4}") for at in range(30)]

    async def work(node, client):
        with pytest.raises(sarit.Invalid, match="--searchable"):
            await client.search(NAME, "failed")
        assert not (await client.search.info(NAME)).searchable
        await client.stream(NAME).create_job(SEARCH_KIND, SETTINGS, SEARCH_JOB)
        await write(client, *events, order(40, LONG + " failed", "long"))
        info = await indexed(client, 31)
        assert info.mapping == (("time", "time"), ("user", "keyword"), ("text", "text"))
        assert (info.time_field, info.interval_seconds, info.problem) == ("time", 1, "")

        found = await client.search(NAME, "failed", limit=100, bucket_ms=10_000, facets=["user"])
        assert found.total == 11
        failed = [event for event in events if b"failed" in event]
        assert [hit.event for hit in found.hits] == [order(40, LONG + " failed", "long"), *reversed(failed)]
        assert found.hits[1].time_ms == 1_700_000_000_000 + 27_000
        assert sum(count for _, count in found.histogram) == 11
        assert dict(found.facets["user"]) == {"u0": 3, "u1": 2, "u2": 2, "u3": 3, "long": 1}
        assert found.cut == await client.stream_cut_tail(NAME)
        for hit in found.hits[:3]:
            assert await client.stream(NAME).fetch_event(hit.pointer) == hit.event
        shown, page = [], b""
        while True:
            part = await client.search(NAME, "user:u1 paid", sort="oldest", limit=2, page=page)
            shown += [hit.event for hit in part.hits]
            page = part.page
            if not page:
                break
        assert shown == [event for event in events if b'"u1"' in event and b"paid" in event]
        places = await client.search(NAME, "failed", start_ms=1_700_000_009_000, end_ms=1_700_000_012_000, events=False)
        assert [(hit.time_ms, hit.event) for hit in places.hits] == [(1_700_000_009_000, None)]
        with pytest.raises(sarit.Invalid, match="user"):
            await client.search(NAME, "usr:u1")

        await client.truncate_stream(NAME, cut="tail")
        await write(client, order(50, "order failed again"))
        await indexed(client, 32)
        last = await client.search(NAME, "failed", facets=["user"])
        assert [hit.event for hit in last.hits] == [order(50, "order failed again")]
        assert (last.total, last.facets["user"]) == (1, (("alice", 1),))
        await asyncio.to_thread(by_blocking_client, node.controller_port)

    def by_blocking_client(port):
        with sarit.connect(f"127.0.0.1:{port}") as client:
            assert client.search(NAME, "again").total == 1
            assert client.search.info(NAME).searchable

    on_node(tmp_path / "node", work)


def test_searches_run_beside_the_event_loop(tmp_path):
    async def work(node, client):
        await client.stream(NAME).create_job(SEARCH_KIND, SETTINGS, SEARCH_JOB)
        await write(client, *(order(at, "word") for at in range(10)))
        await indexed(client, 10)
        await client.search(NAME, "word")
        family = next(iter(node.controller_role.search._made.values()))
        (copy,) = family._searcher._copies.values()
        threads, real = [], copy.opened.reader

        class Noted:
            def search(self, question, check):
                threads.append(threading.current_thread())
                return real.search(question)

            def close(self):
                real.close()

        copy.opened.reader = Noted()
        assert (await client.search(NAME, "word")).total == 10
        assert threads
        assert threading.main_thread() not in threads

    on_node(tmp_path / "node", work)


def test_server_without_jobs_says_so(tmp_path):
    async def main():
        env = real_env()
        node = await open_node(NodeConfig(str(tmp_path), controller_port=0, store_port=0).validated(), env)
        await node.start()
        try:
            async with asyncio.timeout(HANG_SECONDS), connect(f"127.0.0.1:{node.controller_port}") as client:
                await client.create_scope("shop")
                await client.create_stream(NAME)
                with pytest.raises(sarit.Invalid, match="not searchable"):
                    await client.search(StreamName.parse(NAME), "x")
                with pytest.raises(sarit.NotFound):
                    await client.search("shop/other", "x")
        finally:
            await node.stop()

    asyncio.run(main())
