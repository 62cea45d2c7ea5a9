"""One suite for every coordination service: registers with versions, members with leases."""

import asyncio
import random
from contextlib import suppress

import pytest

from sarit.coordination.memory import CoordinationFaults, MemoryCoordination
from sarit.coordination.port import MemberState, Versioned
from sarit.coordination.zookeeper import ZooKeeper
from sarit.coordination.zookeeper_ports import ZooKeeperMembers, ZooKeeperRegisters
from sarit.core.errors import Conflict, Exists, NotFound, Unavailable
from sarit.env.real import real_env
from simulation.world import run_world
from simulation.zookeeper import SimulatedKazoo
from simulation.zookeeper_servers import ZOOKEEPER, ZooKeeperServers
from tests.components.zookeeper import Gate, zookeeper_server  # noqa: F401

LEASE_SECONDS = 1.0  # a busy machine must not end it
HANG_SECONDS = 60  # only a hang takes that long


class Memory:
    """The service in memory.  A service of its own, with `client(name)`, is all that the suite needs."""

    lease_seconds = LEASE_SECONDS

    def __init__(self, request) -> None:
        self.service = MemoryCoordination(lease_seconds=LEASE_SECONDS)

    def client(self, name: str):
        return self.service.client(name, real_env().clock)

    def cut_off(self, name: str) -> None:
        self.service.faults.cut_off.add(name)

    def reconnect(self, name: str) -> None:
        self.service.faults.cut_off.discard(name)


class SimulatedZooKeeper:
    """The production code on the simulated servers, in virtual time."""

    lease_seconds = 4.0

    def __init__(self, request) -> None:
        IN_VIRTUAL_TIME.append(True)
        self._world = None
        self._clients = {}

    def _servers(self) -> ZooKeeperServers:
        if self._world is None:
            self._world = ZooKeeperServers(random.Random(1), lambda: 0.002)
        return self._world

    def client(self, name: str) -> "RealClient":
        if name not in self._clients:
            kazoo = SimulatedKazoo(self._servers(), name, self.lease_seconds)
            self._clients[name] = RealClient(ZOOKEEPER, self.lease_seconds, "/sarit", VIRTUAL_ENV[-1], kazoo)
        return self._clients[name]

    def cut_off(self, name: str) -> None:
        self._world.cut |= {(name, ZOOKEEPER), (ZOOKEEPER, name)}

    def reconnect(self, name: str) -> None:
        self._world.cut.clear()


class RealZooKeeper:
    """A real ZooKeeper.  Each client connects through a gate of its own, which cuts it off."""

    lease_seconds = 4.0

    def __init__(self, request) -> None:
        self.server = request.getfixturevalue("zookeeper_server")
        self._root = f"/sarit/{request.node.name}"
        self._clients = {}

    def client(self, name: str) -> "RealClient":
        if name not in self._clients:
            gate = Gate(self.server.port)
            # The first attempts to connect may find it closed.
            starting = asyncio.ensure_future(gate.start())
            self._clients[name] = gate, RealClient(f"127.0.0.1:{gate.port}", self.lease_seconds, self._root), starting
        return self._clients[name][1]

    def cut_off(self, name: str) -> None:
        self._clients[name][0].shut()

    def reconnect(self, name: str) -> None:
        self._clients[name][0].open()


class RealClient(ZooKeeperRegisters):
    def __init__(self, hosts: str, session_seconds: float, root: str, env=None, kazoo=None) -> None:
        self.zookeeper = ZooKeeper(hosts, session_seconds, env or real_env(), kazoo)
        self.zookeeper.start()
        CLOSED_AFTER_TEST.append(self.zookeeper.close)
        self._members = f"{root}-members"
        super().__init__(self.zookeeper, root)

    def members(self, folder: str) -> ZooKeeperMembers:
        return ZooKeeperMembers(self.zookeeper, f"{self._members}/{folder}")


CLOSED_AFTER_TEST = []
IN_VIRTUAL_TIME = []
VIRTUAL_ENV = []


@pytest.fixture(params=[Memory, SimulatedZooKeeper, pytest.param(RealZooKeeper, marks=pytest.mark.long)])
def service(request):
    for known in (CLOSED_AFTER_TEST, IN_VIRTUAL_TIME, VIRTUAL_ENV):
        known.clear()
    return request.param(request)


def run(main) -> None:
    async def bounded():
        try:
            async with asyncio.timeout(HANG_SECONDS):
                await main
        finally:
            for close in CLOSED_AFTER_TEST:
                await close()

    if not IN_VIRTUAL_TIME:
        asyncio.run(bounded())
        return

    async def in_world(world):
        process = world.machine("10.0.0.1").start()
        VIRTUAL_ENV.append(process.env)
        await process.spawn(bounded())

    outcome = run_world(1, in_world)
    if outcome.error is not None:
        raise outcome.error


def clock():
    """The clock of the memberships."""
    return (VIRTUAL_ENV[-1] if VIRTUAL_ENV else real_env()).clock


class States:
    """Records the states of a membership; `reached(state)` waits for one."""

    def __init__(self) -> None:
        self.seen: list[MemberState] = []
        self._changed = asyncio.Event()

    def __call__(self, state: MemberState) -> None:
        self.seen.append(state)
        self._changed.set()

    async def reached(self, state: MemberState) -> None:
        while state not in self.seen:
            self._changed.clear()
            await self._changed.wait()


async def until(changed: asyncio.Event, holds) -> None:
    """Wait until the awaitable `holds()` is true, evaluated after every call of a watch."""
    while not await holds():
        changed.clear()
        if await holds():  # it may have changed between the two
            return
        await changed.wait()


# -- registers ---------------------------------------------------------------------------------


def test_register_is_created_once(service):
    async def main():
        client = service.client("a")
        assert await client.get("map") is None
        version = await client.create("map", b"1")
        assert await client.get("map") == Versioned(b"1", version)
        with pytest.raises(Exists):
            await client.create("map", b"2")
        assert await client.get("map") == Versioned(b"1", version)

    run(main())


def test_set_needs_the_version_that_is_there(service):
    async def main():
        client, other = service.client("a"), service.client("b")
        first = await client.create("map", b"1")
        second = await other.set("map", b"2", first)
        assert second > first
        with pytest.raises(Conflict):
            await client.set("map", b"3", first)
        assert await client.get("map") == Versioned(b"2", second)
        with pytest.raises(NotFound):
            await client.set("other", b"", first)

    run(main())


def test_one_of_concurrent_sets_wins(service):
    async def main():
        clients = [service.client(str(number)) for number in range(5)]
        version = await clients[0].create("map", b"")

        async def change(number: int) -> int | None:
            with suppress(Conflict):
                return await clients[number].set("map", b"%d" % number, version)

        won = [number for number, new in enumerate(await asyncio.gather(*map(change, range(5)))) if new is not None]
        assert len(won) == 1
        assert (await clients[0].get("map")).value == b"%d" % won[0]

    run(main())


def test_delete_needs_the_version_and_an_old_version_never_returns(service):
    async def main():
        client = service.client("a")
        first = await client.create("map", b"1")
        with pytest.raises(Conflict):
            await client.delete("map", first + 1)
        await client.delete("map", first)
        assert await client.get("map") is None
        with pytest.raises(NotFound):
            await client.delete("map", first)
        await client.create("map", b"again")
        with pytest.raises(Conflict):  # a change that was decided on the deleted register
            await client.set("map", b"late", first)

    run(main())


def test_children_are_the_names_directly_below(service):
    async def main():
        client = service.client("a")
        for name in ("log/1", "log/10", "log/2/x", "logs/3", "map"):
            await client.create(name, b"")
        assert await client.children("log") == ["1", "10", "2"]
        assert await client.children("map") == []

    run(main())


def test_watch_is_called_after_create_set_and_delete(service):
    async def main():
        client, other = service.client("a"), service.client("b")
        changed = asyncio.Event()
        watch = client.watch("map", changed.set)
        version = await other.create("map", b"1")
        await until(changed, lambda: _is(client, b"1"))
        version = await other.set("map", b"2", version)
        await until(changed, lambda: _is(client, b"2"))
        await other.delete("map", version)
        await until(changed, lambda: _is(client, None))
        watch.close()
        changed.clear()
        await other.create("map", b"3")
        await _is(client, b"3")
        assert not changed.is_set()

    run(main())


async def _is(client, value: bytes | None) -> bool:
    found = await client.get("map")
    return (None if found is None else found.value) == value


def test_calls_of_a_client_that_is_cut_off_are_unavailable(service):
    async def main():
        client, other = service.client("a"), service.client("b")
        version = await client.create("map", b"1")
        service.cut_off("a")
        for call in (client.get("map"), client.set("map", b"2", version), client.children("")):
            with pytest.raises(Unavailable):
                await call
        assert await _is(other, b"1")
        service.reconnect("a")
        assert await client.get("map") == Versioned(b"1", version)

    run(main())


# -- members -----------------------------------------------------------------------------------


def test_member_is_listed_with_its_newest_value_until_it_leaves(service):
    async def main():
        members, others = service.client("a").members("stores"), service.client("b").members("stores")
        changed, states = asyncio.Event(), States()
        others.watch(changed.set)
        membership = await members.join("s1", b"up", states)
        assert membership.state is MemberState.CONNECTED
        await until(changed, lambda: _lists(others, {"s1": b"up"}))
        await membership.update(b"leaving")
        await until(changed, lambda: _lists(others, {"s1": b"leaving"}))
        assert await service.client("b").members("controllers").list() == {}
        await membership.leave()
        assert membership.state is MemberState.LOST
        await until(changed, lambda: _lists(others, {}))
        with pytest.raises(NotFound):
            await membership.update(b"late")

    run(main())


async def _lists(members, expected) -> bool:
    return dict(await members.list()) == expected


def test_heartbeats_keep_a_member_longer_than_its_lease(service):
    async def main():
        client = service.client("a")
        membership = await client.members("stores").join("s1", b"", States())
        first = membership.valid_until
        while membership.valid_until < first + 1.5 * service.lease_seconds:
            await asyncio.sleep(service.lease_seconds / 10)
        assert await _lists(client.members("stores"), {"s1": b""})

    run(main())


def test_member_without_heartbeats_is_gone_after_its_lease_and_learns_it(service):
    async def main():
        changed, states = asyncio.Event(), States()
        others = service.client("b").members("stores")
        others.watch(changed.set)
        membership = await service.client("a").members("stores").join("s1", b"", states)
        service.cut_off("a")
        await until(changed, lambda: _lists(others, {}))
        assert clock().monotonic() > membership.valid_until  # its lease ended for itself before it ended for others
        await states.reached(MemberState.SUSPENDED)
        assert membership.state is MemberState.SUSPENDED
        service.reconnect("a")
        await states.reached(MemberState.LOST)
        with pytest.raises(NotFound):
            await membership.update(b"late")
        assert await _lists(others, {})

    run(main())


def test_member_that_reconnects_within_its_lease_stays(service):
    async def main():
        states = States()
        client, others = service.client("a"), service.client("b").members("stores")
        membership = await client.members("stores").join("s1", b"", states)
        service.cut_off("a")
        await states.reached(MemberState.SUSPENDED)
        until_then = membership.valid_until
        service.reconnect("a")
        await states.reached(MemberState.CONNECTED)
        assert membership.state is MemberState.CONNECTED
        assert membership.valid_until > until_then
        assert await _lists(others, {"s1": b""})

    run(main())


def test_member_of_the_same_id_replaces_the_earlier_one(service):
    async def main():
        states = States()
        old = await service.client("a").members("stores").join("s1", b"old", states)
        new = await service.client("b").members("stores").join("s1", b"new", States())
        await states.reached(MemberState.LOST)
        assert old.state is MemberState.LOST
        assert new.state is MemberState.CONNECTED
        assert await _lists(service.client("c").members("stores"), {"s1": b"new"})
        with suppress(NotFound):
            await old.leave()  # the newer one stays
        assert await _lists(service.client("c").members("stores"), {"s1": b"new"})

    run(main())


# -- faults of the service in memory --------------------------------------------------------------


def test_outcome_of_a_change_may_be_unknown():
    async def main():
        outcomes = iter(["", "applied", "refused", ""])
        service = MemoryCoordination(CoordinationFaults(fault=lambda: next(outcomes, "")))
        client = service.client("a", real_env().clock)
        version = await client.create("map", b"1")
        with pytest.raises(Unavailable):
            await client.set("map", b"2", version)
        with pytest.raises(Unavailable):
            await client.set("map", b"3", version + 1)
        assert (await client.get("map")).value == b"2"

    run(main())


def test_watch_may_be_lost():
    async def main():
        service = MemoryCoordination(CoordinationFaults(watch_delay=lambda: None))
        client, called = service.client("a", real_env().clock), []
        client.watch("map", lambda: called.append(1))
        await client.create("map", b"1")
        await asyncio.sleep(0)
        assert not called

    run(main())


def test_dead_process_neither_calls_nor_is_called():
    async def main():
        service, called = MemoryCoordination(), []
        dead, alive = (service.client(name, real_env().clock) for name in ("a", "b"))
        dead.watch("map", lambda: called.append(1))
        dead.die()
        await alive.create("map", b"1")
        await asyncio.sleep(0)
        assert not called
        with pytest.raises(Unavailable):
            await dead.get("map")

    run(main())
