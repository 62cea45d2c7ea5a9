"""Simulated servers of ZooKeeper, beside the contract suite: servers that are behind, lost connections, ends."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from sarit.coordination.port import MemberState
from sarit.coordination.zookeeper import ZooKeeper
from sarit.coordination.zookeeper_ports import ZooKeeperMembers, ZooKeeperRegisters
from sarit.core.errors import Unavailable
from simulation.world import World, run_world
from simulation.zookeeper import SimulatedKazoo
from simulation.zookeeper_servers import ZOOKEEPER, ZooKeeperServers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SESSION_SECONDS = 4.0
HOSTS = ("10.0.0.1", "10.0.0.2")


class Sessions:
    """One session on each host."""

    def __init__(self, world: World, servers: ZooKeeperServers) -> None:
        self.world = world
        self.servers = servers
        self.of: list[ZooKeeper] = []

    async def open(self) -> None:
        for host in HOSTS:
            process = self.world.machine(host).start()
            self.of.append(await process.spawn(self._connect(host, process.env)))

    async def _connect(self, host: str, env: Any) -> ZooKeeper:
        kazoo = SimulatedKazoo(self.servers, host, SESSION_SECONDS)
        return await ZooKeeper.connect(ZOOKEEPER, SESSION_SECONDS, env, kazoo)

    def registers(self, at: int) -> ZooKeeperRegisters:
        return ZooKeeperRegisters(self.of[at], "/sarit")


def run(main: Callable[[Sessions], Awaitable[Any]]) -> None:
    async def in_world(world: World) -> None:
        sessions = Sessions(world, ZooKeeperServers(random.Random(3), lambda: 0.002))
        await sessions.open()
        await main(sessions)

    outcome = run_world(1, in_world)
    if outcome.error is not None:
        raise outcome.error


def follower_of(sessions: Sessions, host: str) -> Any:
    (connection,) = [each for each in sessions.servers.connections() if each.client.host == host]
    return connection.server


def test_change_whose_connection_is_lost_has_an_unknown_outcome_and_may_be_done() -> None:
    async def main(sessions: Sessions) -> None:
        registers = sessions.registers(0)
        version = await registers.create("map", b"1")
        changing = asyncio.ensure_future(registers.set("map", b"2", version))
        await asyncio.sleep(0.005)
        (connection,) = [each for each in sessions.servers.connections() if each.client.host == HOSTS[0]]
        sessions.servers.break_connection(connection)
        with pytest.raises(Unavailable):
            await changing
        assert (await registers.get("map")).value == b"2"  # type: ignore[union-attr]

    run(main)


def test_session_that_is_silent_ends_with_its_member_and_learns_it_when_it_is_back() -> None:
    async def main(sessions: Sessions) -> None:
        states: list[MemberState] = []
        members = [ZooKeeperMembers(session, "/sarit/stores") for session in sessions.of]
        await members[0].join("s1", b"up", states.append)
        sessions.servers.cut.add((HOSTS[0], ZOOKEEPER))  # its heartbeats do not arrive; it hears everything
        while await members[1].list():
            await asyncio.sleep(0.1)
        assert states == [MemberState.SUSPENDED]
        sessions.servers.cut.clear()
        async with asyncio.timeout(60):
            while states[-1] is not MemberState.LOST:
                await asyncio.sleep(0.1)

    run(main)


def test_no_session_ends_while_there_is_no_quorum() -> None:
    async def main(sessions: Sessions) -> None:
        states: list[MemberState] = []
        members = ZooKeeperMembers(sessions.of[0], "/sarit/stores")
        membership = await members.join("s1", b"up", states.append)
        sessions.servers.leave()
        await asyncio.sleep(3 * SESSION_SECONDS)
        sessions.servers.come_back()
        while membership.state is not MemberState.CONNECTED:
            await asyncio.sleep(0.1)
        assert states == [MemberState.SUSPENDED, MemberState.CONNECTED]
        assert list(await members.list()) == ["s1"]

    run(main)


def test_node_of_a_killed_process_stays_until_its_session_ends() -> None:
    async def main(sessions: Sessions) -> None:
        members = [ZooKeeperMembers(session, "/sarit/stores") for session in sessions.of]
        await members[0].join("s1", b"up", lambda state: None)
        started = sessions.world.now
        (connection,) = [each for each in sessions.servers.connections() if each.client.host == HOSTS[0]]
        connection.client.die()
        while await members[1].list():
            await asyncio.sleep(0.1)
        assert SESSION_SECONDS - 1 < sessions.world.now - started < SESSION_SECONDS + 1

    run(main)


def test_register_is_not_read_old_at_a_server_that_is_behind() -> None:
    async def main(sessions: Sessions) -> None:
        registers = [sessions.registers(0), sessions.registers(1)]
        version = await registers[0].create("map", b"1")
        while follower_of(sessions, HOSTS[0]) is follower_of(sessions, HOSTS[1]):
            (connection,) = [each for each in sessions.servers.connections() if each.client.host == HOSTS[1]]
            sessions.servers.break_connection(connection)
            await asyncio.sleep(1.0)
        await asyncio.sleep(1.0)
        follower_of(sessions, HOSTS[1]).behind = 1.0  # less than what ends a connection
        await registers[0].set("map", b"2", version)
        assert (await sessions.of[1].get("/sarit/map")).value.endswith(b"1")  # type: ignore[union-attr]
        assert (await registers[1].get("map")).value == b"2"  # type: ignore[union-attr]

    run(main)
