"""What a store asks of object storage: counted, reported, and what `sarit cluster status` makes of it."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress

import pytest

from sarit.cli.cluster import _requests
from sarit.cluster import object_requests
from sarit.cluster.limits import REQUEST_REPORT_SECONDS, REQUEST_WINDOW_SECONDS
from sarit.cluster.object_requests import (
    REQUESTS,
    Counts,
    RequestReport,
    RequestWindow,
    counting,
    decode_report,
    keep_reporting,
    read_report,
)
from sarit.cluster.settings import ClusterMeta
from sarit.cluster.status import ClusterStatus
from sarit.coordination.memory import MemoryCoordination
from sarit.core.errors import Invalid, Unavailable
from sarit.index.statistics import IndexStatistics
from sarit.storage.metered_storage import StorageStatistics

GOLDEN = (
    b'{"version": 1, "at_ms": 1700000000000, "seconds": 300.0, "chunk_puts": 7, "index_puts": 60, "chunk_gets": 3, '
    b'"index_gets": 160}'
)
REPORT = RequestReport(1_700_000_000_000, 300.0, Counts(7, 60, 3, 160))


class _Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self.now * 1000)


def _meta(storage="s3://b/p", index="s3://b/p") -> ClusterMeta:
    return ClusterMeta("c", "", 4, "bookkeeper://z/l", index, storage, "m")


def test_report_has_the_bytes_of_the_format() -> None:
    assert REPORT.encode() == GOLDEN
    assert decode_report(GOLDEN) == REPORT


@pytest.mark.parametrize("data", [
    b"", b"{}", b"[]", GOLDEN.replace(b'"version": 1', b'"version": 2'), GOLDEN.replace(b"300.0", b'"x"'),
    GOLDEN.replace(b"chunk_puts", b"other_puts"), b"\xff",
])  # fmt: skip
def test_other_bytes_are_refused(data) -> None:
    with pytest.raises(Invalid):
        decode_report(data)


def test_cost_is_that_of_a_day_at_the_prices_of_s3() -> None:
    # In 300 s: 67 PUTs at $5 a million and 163 GETs at $0.40 a million.
    assert REPORT.dollars_a_day() == pytest.approx(288 * (67 * 5 + 163 * 0.4) / 1e6)
    assert RequestReport(0, 0.0, Counts(1)).dollars_a_day() == 0


def test_requests_of_the_last_minutes_are_reported() -> None:
    clock, counted = _Clock(), Counts()
    window = RequestWindow(lambda: counted, clock)
    for turn in range(1, 41):
        clock.now = turn * REQUEST_REPORT_SECONDS
        counted = Counts(turn, 2 * turn, 3 * turn, 4 * turn)
        report = window.report()
        turns = min(turn, round(REQUEST_WINDOW_SECONDS / REQUEST_REPORT_SECONDS))
        assert report.counts == Counts(turns, 2 * turns, 3 * turns, 4 * turns)
        assert report.seconds == turns * REQUEST_REPORT_SECONDS
        assert report.at_ms == clock.wall_ms()


def test_lists_are_paid_as_puts_and_heads_as_gets() -> None:
    storage, index = StorageStatistics(), IndexStatistics()
    for kind, times in (("write", 1), ("list", 2), ("read", 4), ("delete", 8)):
        for _ in range(times):
            storage.kinds[kind].seconds.observe(0.1)
    counted = {"put": 16, "list": 32, "get": 64, "head": 128, "delete": 256}
    index.count_requests_with(lambda: counted)
    assert counting(_meta(), storage, index)() == Counts(3, 48, 4, 192)
    # A directory takes no requests that cost.
    assert counting(_meta(storage="file:///d"), storage, index)() == Counts(0, 48, 0, 192)


def test_store_writes_its_report_again_and_again(monkeypatch) -> None:
    monkeypatch.setattr(object_requests, "REQUEST_REPORT_SECONDS", 0.001)
    clock, service = _Clock(), MemoryCoordination()
    registers = service.client("s1", clock)
    away = [True]

    class Away:
        """The service is away at first."""

        async def get(self, name):
            if away:
                raise Unavailable("no quorum")
            return await registers.get(name)

        async def create(self, name, value):
            return await registers.create(name, value)

        async def set(self, name, value, expected):
            return await registers.set(name, value, expected)

    async def until(holds) -> None:
        async with asyncio.timeout(10):
            while not holds(await registers.get(f"{REQUESTS}/s1")):
                await asyncio.sleep(0.001)

    async def test() -> None:
        window = RequestWindow(lambda: Counts(5), clock)
        task = asyncio.ensure_future(keep_reporting(Away(), "s1", window, logging.getLogger("test")))
        await asyncio.sleep(0.01)
        assert not task.done()
        away.clear()
        await until(lambda found: found is not None)
        await until(lambda found: found.version > 2)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        found = await read_report(registers, "s1", clock.wall_ms())
        assert found is not None
        assert found.counts == Counts(5)

    asyncio.run(test())


def test_report_that_is_old_missing_or_of_another_version_is_none() -> None:
    registers = MemoryCoordination().client("s1", _Clock())

    async def test() -> None:
        assert await read_report(registers, "s1", REPORT.at_ms) is None
        await registers.create(f"{REQUESTS}/s1", GOLDEN)
        assert await read_report(registers, "s1", REPORT.at_ms + 1000) == REPORT
        assert await read_report(registers, "s1", REPORT.at_ms + int(4000 * REQUEST_REPORT_SECONDS)) is None
        await registers.create(f"{REQUESTS}/s2", b'{"version": 9}')
        assert await read_report(registers, "s2", REPORT.at_ms) is None

    asyncio.run(test())


def test_status_shows_each_store_and_all_of_them() -> None:
    other = RequestReport(0, 150.0, Counts(1, 1, 1, 1))
    found = ClusterStatus(_meta(), {}, (), None, {"s2": other, "s1": REPORT, "s3": None})
    rows = _requests(found)
    assert [row["store"] for row in rows] == ["s1", "s2", "s3", "all"]
    assert rows[0] == {
        "store": "s1", "seconds": 300, "puts of chunks": 7, "puts of index": 60, "gets of chunks": 3,
        "gets of index": 160, "dollars a day": 0.12,
    }  # fmt: skip
    assert set(rows[2].values()) == {"s3", None}
    assert (rows[3]["puts of index"], rows[3]["gets of index"], rows[3]["seconds"]) == (61, 161, None)
    assert rows[3]["dollars a day"] == round(REPORT.dollars_a_day() + other.dollars_a_day(), 2)
    assert json.dumps(rows)
    assert _requests(ClusterStatus(_meta("file:///d", "file:///i"), {}, (), None, {"s1": None})) == []
