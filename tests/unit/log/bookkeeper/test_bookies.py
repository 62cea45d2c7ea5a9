"""Who is registered: the snapshot, its watches, and ZooKeeper away."""

from __future__ import annotations

import asyncio

import pytest

from sarit.core.errors import Unavailable
from sarit.env.real import real_env
from sarit.log.bookkeeper import bookies as bookies_module
from sarit.log.bookkeeper.bookies import NetworkBookies
from tests.limits import HANG_SECONDS
from tests.unit.log.bookkeeper.nodes import MemoryNodes

AVAILABLE = "/ledgers/available"


def run(test):
    async def main():
        nodes = MemoryNodes()
        for name in ("readonly", "a:1", "b:1", "readonly/c:1"):
            nodes.nodes[f"{AVAILABLE}/{name}"] = (b"", 0)
        bookies = NetworkBookies(real_env(), nodes)
        try:
            await asyncio.wait_for(test(nodes, bookies), HANG_SECONDS)
        finally:
            await bookies.close()
        assert not nodes.watches

    asyncio.run(main())


async def until(condition):
    while not condition():
        await asyncio.sleep(0.001)


def test_the_snapshot_has_writable_and_read_only_bookies():
    async def test(nodes, bookies):
        await bookies.start()
        assert bookies.writable() == {"a:1", "b:1"}
        assert bookies.read_only() == {"c:1"}

    run(test)


def test_a_change_is_reported_once_it_is_in_the_snapshot():
    async def test(nodes, bookies):
        await bookies.start()
        seen = []
        watch = bookies.watch(lambda: seen.append(bookies.writable()))
        bookies.watch(lambda: 1 / 0)
        other = []
        bookies.watch(lambda: other.append(True))
        nodes.nodes[f"{AVAILABLE}/d:1"] = (b"", 0)
        nodes.changed(AVAILABLE)
        await until(lambda: len(seen) + len(other) == 2)
        assert seen == [{"a:1", "b:1", "d:1"}]
        watch.close()
        del nodes.nodes[f"{AVAILABLE}/d:1"]
        nodes.changed(AVAILABLE)
        await until(lambda: len(other) == 2)
        assert len(seen) == 1

    run(test)


def test_a_bookie_that_turns_read_only_is_reported():
    async def test(nodes, bookies):
        await bookies.start()
        seen = []
        bookies.watch(lambda: seen.append(bookies.writable()))
        del nodes.nodes[f"{AVAILABLE}/a:1"]
        nodes.nodes[f"{AVAILABLE}/readonly/a:1"] = (b"", 0)
        nodes.changed(AVAILABLE)
        await until(lambda: seen == [{"b:1"}])
        assert bookies.read_only() == {"a:1", "c:1"}

    run(test)


def test_the_last_snapshot_stays_while_zookeeper_is_away(monkeypatch):
    monkeypatch.setattr(bookies_module, "BOOKIE_POLL_SECONDS", 0.01)

    async def test(nodes, bookies):
        await bookies.start()
        del nodes.nodes[f"{AVAILABLE}/a:1"]
        nodes.fail["children"] = False
        nodes.changed(AVAILABLE)
        await until(lambda: "children" not in nodes.fail)
        assert bookies.writable() == {"a:1", "b:1"}
        # Read again without a call of the watch.
        await until(lambda: bookies.writable() == {"b:1"})

    run(test)


def test_start_fails_without_zookeeper():
    async def test(nodes, bookies):
        nodes.fail["children"] = False
        with pytest.raises(Unavailable):
            await bookies.start()
        assert not nodes.watches

    run(test)
