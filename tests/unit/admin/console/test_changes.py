"""Changes of groups, tables and streams by the console, on a node."""

from __future__ import annotations

import asyncio
import base64

import pytest

from sarit.core.cuts import to_text
from sarit.core.names import StreamName
from tests.unit.admin.console.pages import serve_page


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    yield from serve_page(tmp_path_factory.mktemp("changes") / "node")


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


async def read(reader, most: int) -> int:
    """How many events a reader gets, at most."""
    count = 0
    while count < most and (batch := await reader.read_batch(most - count, timeout=3)):
        count += len(batch.events)
    return count


async def group_of(page, name: str, events: int):
    """A group with one reader, which has read nothing; the time after the events."""
    await page.client.create_stream(f"s/{name}")
    async with page.client.writer(f"s/{name}") as writer:
        for number in range(events):
            writer.write(b"event %d" % number)
    group = await page.client.reader_groups.create(f"s/{name}", f"s/{name}")
    return group, await group.reader("one")


def test_a_group_is_reset_to_places(run) -> None:
    async def test(page) -> None:
        group, reader = await group_of(page, "reset", 10)
        assert await read(reader, 10) == 10
        one = "/groups/s/reset"
        middle = page.node.env.clock.wall_ms()
        await page.node.controller.timeline.record(StreamName("s", "reset"))
        while page.node.env.clock.wall_ms() <= middle + 2:
            await asyncio.sleep(0.001)
        cut = await page.client.cut("s/reset", "tail")
        async with page.client.writer("s/reset") as writer:
            writer.write(b"later")
        later = page.node.env.clock.wall_ms()
        expected = {"head": 11, "tail": 0, str(later): 1, to_text(cut): 1}
        for to, unread in expected.items():
            before = (await page.get(one))["generation"]
            assert (await page.send("POST", f"{one}/reset", {"to": to}))["generation"] == before + 1
            again = await group.reader("again")
            assert await read(again, unread) == unread, to
            assert await again.read_batch(1, timeout=0.3) is None, to
            await group.reader_offline("again")
        assert (await page.send("POST", f"{one}/reset", {"to": "checkpoint"}, 409))["error"]
        for wrong in ({}, {"to": ""}, {"to": "nonsense"}, {"to": 5}, {"to": "9 foos"}):
            await page.send("POST", f"{one}/reset", wrong, 400)
        other = (
            await page.client.cut("s/other-stream", "head")
            if await page.client.create_stream("s/other-stream")
            else None
        )
        await page.send("POST", f"{one}/reset", {"to": to_text(other)}, 400)
        await page.send("POST", "/groups/s/none/reset", {"to": "head"}, 404)

    run(test)


def test_a_reader_is_declared_lost_and_a_group_deleted(run) -> None:
    async def test(page) -> None:
        _, reader = await group_of(page, "lost", 3)
        await reader.read_batch(3, timeout=5)
        one = "/groups/s/lost"
        assert [r["reader"] for r in (await page.get(one))["readers"]] == ["one"]
        assert (await page.get(one))["may_delete"] is True
        assert (await page.send("POST", f"{one}/offline", {"reader": "one"}))["was_online"] is True
        assert (await page.send("POST", f"{one}/offline", {"reader": "one"}))["was_online"] is False
        assert (await page.get(one))["readers"] == []
        await page.send("DELETE", one, {"confirm": "s/other"}, 400)
        await page.send("DELETE", one, {"confirm": "s/lost"})
        await page.get(one, 404)

    run(test)


def test_the_lag_of_a_group_is_the_age_of_the_newest_record_it_has_passed(run) -> None:
    async def test(page) -> None:
        name = StreamName("s", "lag")
        _, reader = await group_of(page, "lag", 5)
        assert (await page.get("/groups/s/lag/lag"))["streams"] == [{"stream": "s/lag", "behind_ms": None}]
        assert await read(reader, 5) == 5
        recorded = page.node.env.clock.wall_ms()
        await page.node.controller.timeline.record(name)
        async with page.client.writer(name) as writer:
            writer.write(b"unread")
        async with asyncio.timeout(20):
            while True:  # its reader reports now and then what it has read
                ((stream),) = (await page.get("/groups/s/lag/lag"))["streams"]
                if stream["behind_ms"] is not None:
                    break
                await reader.read_batch(1, timeout=0.1)
                async with page.client.writer(name) as writer:
                    writer.write(b"unread")
        age = page.node.env.clock.wall_ms() - recorded
        assert 0 <= stream["behind_ms"] <= age + 5

    run(test)


def test_a_stream_is_truncated_at_a_place(run) -> None:
    async def test(page) -> None:
        await page.client.create_stream("s/cut")
        clock = page.node.env.clock
        one = "/streams/s/cut"
        async with page.client.writer("s/cut") as writer:
            writer.write(b"old")
            await writer.flush()
            cut = to_text(await page.client.cut("s/cut", "tail"))
            await page.node.controller.timeline.record(StreamName("s", "cut"))
            began = clock.wall_ms()
            while clock.wall_ms() <= began + 2:
                await asyncio.sleep(0.001)
            later = clock.wall_ms()
            writer.write(b"new")
        await page.send("POST", f"{one}/truncate", {"cut": "-1 day"})
        assert (await page.get(one))["bytes"] == 22
        await page.send("POST", f"{one}/truncate", {"cut": str(later)})
        assert (await page.get(one))["bytes"] == 11
        await page.send("POST", f"{one}/truncate", {"cut": cut})
        assert (await page.get(one))["bytes"] == 11
        await page.send("POST", f"{one}/truncate", {"cut": "tail"})
        assert (await page.get(one))["bytes"] == 0
        await page.send("POST", f"{one}/truncate", {"cut": "7 parsecs"}, 400)

    run(test)


def test_entries_of_a_table_are_added_changed_and_removed(run) -> None:
    async def test(page) -> None:
        await page.client.tables.create("s/changed", primary_key_bytes=2, secondary_key_bytes=1)
        one, table = "/tables/s/changed", page.client.table("s/changed")
        key = {"primary": encoded(b"\xff\x00"), "secondary": encoded(b"a")}
        made = await page.send("POST", f"{one}/entry", {**key, "text": "first"})
        await page.send("POST", f"{one}/entry", {**key, "text": "again"}, 409)  # it is there
        changed = await page.send("POST", f"{one}/entry", {**key, "base64": "/wA=", "version": made["version"]})
        await page.send("POST", f"{one}/entry", {**key, "text": "stale", "version": made["version"]}, 409)
        assert (await table.get((b"\xff\x00", b"a"))).value == b"\xff\x00"
        await table.put((b"\xff\x00", b"b"), b"x" * 100_000)
        found = await page.get(f"{one}/entry", primary=encoded(b"\xff\x00"), secondary=encoded(b"b"))
        assert (found["value"]["bytes"], found["value"]["cut"]) == (100_000, False)
        await page.get(f"{one}/entry", 404, primary=encoded(b"no"), secondary=encoded(b"b"))
        for wrong in ({"primary": "%"}, {"primary": encoded(b"long")}, {"version": "x"}, {"version": True}):
            await page.send("POST", f"{one}/entry", {**key, "text": "x", **wrong}, 400)
        await page.send("DELETE", f"{one}/entry", key, 400)  # without its version
        await page.send("DELETE", f"{one}/entry", {**key, "version": made["version"]}, 409)
        await page.send("DELETE", f"{one}/entry", {**key, "version": changed["version"]})
        assert await table.get((b"\xff\x00", b"a")) is None
        assert (await page.get(one))["may_change"] is True
        await page.send("DELETE", one, {}, 400)
        await page.send("DELETE", one, {"confirm": "s/changed"})
        await page.get(one, 404)

    run(test)


def test_rates_of_streams_and_segments_are_shown(run) -> None:
    async def test(page) -> None:
        await page.client.create_stream("s/rated", segments=2)
        async with page.client.writer("s/rated") as writer:
            await page.node.meters.measure()
            for number in range(1000):
                writer.write(b"x" * 92, key=str(number))
            await writer.flush()
        await page.node.meters.measure()
        (row,) = [row for row in (await page.get("/streams", scope="s"))["rows"] if row["stream"] == "rated"]
        assert row["byte_rate"] == pytest.approx(row["event_rate"] * 100, rel=0.01)
        assert row["event_rate"] > 1
        assert "ids" not in row
        found = await page.get("/streams/s/rated")
        assert found["byte_rate"] == pytest.approx(sum(one["byte_rate"] for one in found["segments"]))
        assert all(one["event_rate"] > 0 for one in found["segments"])
        assert found["may_change"] is True

    run(test)
