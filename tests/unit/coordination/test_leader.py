"""The leader: when it writes a map, and that several of them may run."""

import asyncio
from collections import Counter

import pytest

from sarit.coordination.container_map import ContainerMap, StoreAddress, encode_map, encode_store
from sarit.coordination.leader import Leader
from sarit.coordination.map_register import MAP, change_map, read_map
from sarit.coordination.memory import CoordinationFaults, MemoryCoordination
from sarit.core.errors import Conflict, Invalid, Unavailable

HANG_SECONDS = 60


class Clock:
    """Stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 0


class Cluster:
    """A service, and what is common to the leaders of a test."""

    def __init__(self, faults: CoordinationFaults | None = None, containers: int = 4) -> None:
        self.service = MemoryCoordination(faults, lease_seconds=1000)
        self.clock = Clock()
        self.containers = containers

    def leader(self, name: str = "l", **given) -> Leader:
        client = self.service.client(name, self.clock)
        return Leader(client, client.members("stores"), self.clock, self.containers, **given)

    def join(self, name: str, **given) -> None:
        self.service.join("stores", name, encode_store(StoreAddress("h", 1, name, 1, **given)))

    async def map(self) -> ContainerMap | None:
        found = await read_map(self.service.client("test", self.clock))
        return None if found is None else found[0]


def test_first_map_waits_for_the_expected_stores():
    async def main():
        cluster = Cluster()
        leader = cluster.leader(expected=2)
        await leader.evaluate()
        cluster.join("a")
        await leader.evaluate()
        assert await cluster.map() is None
        cluster.join("b")
        await leader.evaluate()
        assert Counter((await cluster.map()).owners) == {"a": 2, "b": 2}

    asyncio.run(main())


@pytest.mark.parametrize("expected", [None, 3])
def test_first_map_waits_no_longer_than_its_bound(expected):
    async def main():
        cluster = Cluster()
        leader = cluster.leader(expected=expected)
        cluster.clock.now = 100.0  # without a store it waits for ever
        await leader.evaluate()
        cluster.join("a")
        await leader.evaluate()
        cluster.clock.now += 4.9
        await leader.evaluate()
        assert await cluster.map() is None
        cluster.clock.now += 0.1
        await leader.evaluate()
        assert (await cluster.map()).owners == ("a",) * 4

    asyncio.run(main())


def test_containers_of_a_dead_store_are_assigned_at_once():
    async def main():
        cluster = Cluster()
        leader = cluster.leader(expected=2)
        cluster.join("a")
        cluster.join("b")
        await leader.evaluate()
        cluster.service.expire("stores", "a")
        await leader.evaluate()
        assert (await cluster.map()).owners == ("b",) * 4

    asyncio.run(main())


def test_store_that_joins_is_given_containers_after_the_quiet_time():
    async def main():
        cluster = Cluster()
        leader = cluster.leader(expected=1)
        cluster.join("a")
        await leader.evaluate()
        cluster.clock.now = 50.0
        cluster.join("b")
        await leader.evaluate()
        assert not (await cluster.map()).moving
        cluster.clock.now = 60.0
        await leader.evaluate()
        after = await cluster.map()
        assert len(after.moving) == 2
        for container in list(after.moving):
            await change_map(
                cluster.service.client("a", cluster.clock), lambda record, c=container: record.released(c, "a")
            )
        await leader.evaluate()
        assert Counter((await cluster.map()).owners) == {"a": 2, "b": 2}
        assert not (await cluster.map()).moving

    asyncio.run(main())


def test_write_that_was_computed_from_an_older_map_fails():
    async def main():
        cluster = Cluster()
        cluster.join("a")
        first, second = cluster.leader("1", expected=1), cluster.leader("2", expected=1)
        await first.evaluate()
        before = await cluster.map()
        cluster.join("b")
        cluster.service.expire("stores", "a")
        # Both have read the same map when the first one writes.
        cluster.service.faults.delay = lambda: 0.001
        results = await asyncio.gather(first.evaluate(), second.evaluate(), return_exceptions=True)
        assert sum(isinstance(result, Conflict) for result in results) == 1
        assert (await cluster.map()).version == before.version + 1

    asyncio.run(main())


def test_two_leaders_and_a_service_with_faults_reach_one_balanced_map():
    async def main():
        outcomes = iter(["applied", "refused", ""] * 30)
        faults = CoordinationFaults(fault=lambda: next(outcomes, ""), watch_delay=lambda: None)
        cluster = Cluster(faults, containers=6)
        for name in "abc":
            cluster.join(name)
        running = [asyncio.ensure_future(cluster.leader(name, expected=3).run()) for name in "12"]
        async with asyncio.timeout(HANG_SECONDS):
            while True:
                try:
                    record = await cluster.map()
                except Unavailable:
                    continue
                if record is not None:
                    break
                await asyncio.sleep(0.01)
        assert Counter(record.owners) == {"a": 2, "b": 2, "c": 2}
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    asyncio.run(main())


def test_map_of_another_number_of_containers_is_refused():
    async def main():
        cluster = Cluster(containers=4)
        await cluster.service.client("x", cluster.clock).create(MAP, encode_map(ContainerMap.empty(8)))
        cluster.join("a")
        with pytest.raises(Invalid, match="8 containers, not of 4"):
            await cluster.leader().evaluate()

    asyncio.run(main())


def test_change_is_decided_again_after_a_conflict():
    async def main():
        cluster = Cluster()
        client = cluster.service.client("x", cluster.clock)
        version = await client.create(MAP, encode_map(ContainerMap.empty(2)))
        seen = []

        def change(record: ContainerMap) -> ContainerMap:
            seen.append(record.version)
            if len(seen) == 1:  # somebody else is faster
                cluster.service.set(MAP, encode_map(ContainerMap(7, {}, (None, None))), version)
            return ContainerMap(record.version + 1, {}, (None, None))

        assert (await change_map(client, change)).version == 8
        assert seen == [0, 7]
        assert await change_map(cluster.service.client("y", cluster.clock), lambda record: record)
        assert (await cluster.map()).version == 8

    asyncio.run(main())
