"""Controllers of a cluster: they know each other, share the tables, and follow the container map."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest

from sarit.admin.console.view import RequestsView
from sarit.cluster.controller import ClusterController
from sarit.cluster.controller_members import CONTROLLERS, ControllerMembers, decode
from sarit.cluster.member import ConfirmedLogs, Member
from sarit.cluster.object_requests import REQUESTS, Counts, RequestReport
from sarit.cluster.settings import ClusterMeta
from sarit.controller.times import ScalingTimes, Times
from sarit.coordination.container_map import StoreAddress
from sarit.coordination.map_register import STORES, change_map
from sarit.coordination.memory import MemoryCoordination
from sarit.core.errors import Exists, Invalid
from sarit.env.real import RealNetwork
from sarit.process.controller_role import ControllerSettings
from sarit.process.observation.health import Health
from sarit.process.places.store_parts import StoreParts
from sarit.process.security import Security, SecurityConfig
from sarit.process.settings import NodeConfig
from sarit.process.store_role import Ownership, StoreRole, StoreSettings
from tests.limits import HANG_SECONDS
from tests.unit.store.harness import SMALL, World, memory_env

SECRET = b"of this installation"


class Fleet:
    """Stores and controllers on one coordination service."""

    def __init__(self) -> None:
        self.service = MemoryCoordination()
        self.world = World()
        self.env = replace(memory_env(), network=RealNetwork())
        self.stack = AsyncExitStack()

    async def store(self, name) -> Member:
        client = self.service.client(name, self.env.clock)
        member = Member(name, StoreAddress("127.0.0.1", 0, name, 0), client, client.members(STORES), self.env)
        parts = StoreParts(ConfirmedLogs(self.world.logs, member), self.world.indexes, self.world.storage)
        settings = StoreSettings(SMALL, ScalingTimes(), 100, "127.0.0.1", 0)
        owner = Ownership(frozenset(), member, SECRET)
        role = StoreRole(settings, self.env, parts, Security(SecurityConfig()), owner)
        await role.open()
        member.start(role.store, await role.serve())
        for stop in (role.stop, member.stop):
            self.stack.push_async_callback(stop)
        return member

    def controller(self, name) -> ClusterController:
        client = self.service.client(name, self.env.clock)
        settings = ControllerSettings(NodeConfig("/"), 0, 100, Times())
        security = Security(SecurityConfig())
        made = ClusterController(settings, client, client.members, self.env, SECRET, SMALL.containers, security, 1)
        self.stack.push_async_callback(made.stop)
        return made


@asynccontextmanager
async def started():
    fleet = Fleet()
    async with asyncio.timeout(HANG_SECONDS), fleet.stack:
        yield fleet


async def until(holds) -> None:
    while not holds():
        await asyncio.sleep(0.01)


def test_controllers_share_the_tables_and_know_each_other():
    async def main():
        async with started() as fleet:
            first, second = (fleet.controller(name) for name in "xy")
            opening = [asyncio.ensure_future(each.open()) for each in (first, second)]  # before there is a store
            await fleet.store("a")
            await asyncio.gather(*opening)
            both = [("127.0.0.1", await each.serve()) for each in (first, second)]
            await until(lambda: set(first.members.addresses()) == set(second.members.addresses()) == set(both))
            assert set(first.controller.assignment.members()) == set(both)
            names = [f"s/t{number}" for number in range(100)]
            mine = [[each.controller.assignment.is_mine(name) for name in names] for each in (first, second)]
            assert all(one != other for one, other in zip(*mine, strict=True))
            await first.controller.scopes.create("s")
            with pytest.raises(Exists):
                await second.controller.scopes.create("s")
            await first.members.stop()
            await until(lambda: list(second.members.addresses()) == both[1:])

    asyncio.run(main())


def test_calls_follow_containers_that_move_to_another_store():
    async def main():
        async with started() as fleet:
            controller = fleet.controller("x")
            opening = asyncio.ensure_future(controller.open())
            await fleet.store("a")
            await opening
            await controller.controller.scopes.create("before")
            await fleet.store("b")
            await until(lambda: "b" in controller.watch.map.stores)
            registers = fleet.service.client("test", fleet.env.clock)

            def all_to(store):
                def change(record):
                    moving = {number: owner for number, owner in enumerate(record.owners) if owner != store}
                    return replace(
                        record, version=record.version + 1, owners=(store,) * len(record.owners), moving=moving
                    )

                return change

            for store in ("b", "a", "b"):
                await until(lambda: not controller.watch.map.moving)
                await change_map(registers, all_to(store))
                await controller.controller.scopes.create(f"during-{store}-{controller.watch.map.version}")
            with pytest.raises(Exists):
                await controller.controller.scopes.create("before")

    asyncio.run(main())


def test_controller_joins_again_after_a_lost_lease():
    async def main():
        service = MemoryCoordination()
        env = memory_env()
        client = service.client("x", env.clock)
        members = ControllerMembers(client.members(CONTROLLERS), env)
        members.start(("127.0.0.1", 9090))
        async with asyncio.timeout(HANG_SECONDS):
            await until(lambda: members.addresses())
            (name,) = await client.members(CONTROLLERS).list()
            service.expire(CONTROLLERS, name)
            await until(lambda: not members.addresses())
            await until(lambda: members.addresses() == (("127.0.0.1", 9090),))
            assert name not in await client.members(CONTROLLERS).list()
            await members.stop()
            assert not await client.members(CONTROLLERS).list()

    asyncio.run(main())


@pytest.mark.parametrize("value", [b"", b"[]", b'{"host": "x"}', b'{"host": "x", "port": "y"}', b"\xff"])
def test_address_that_cannot_be_read_is_invalid(value):
    with pytest.raises(Invalid, match="address cannot be read"):
        decode(value)


def test_console_of_a_controller_shows_what_the_cluster_needs():
    async def main():
        async with started() as fleet:
            controller = fleet.controller("x")
            opening = asyncio.ensure_future(controller.open())
            await fleet.store("a")
            await fleet.store("b")
            await opening
            await until(lambda: set(controller.watch.map.stores) == {"a", "b"})
            registers = fleet.service.client("test", fleet.env.clock)
            now = fleet.env.clock.wall_ms()
            report = RequestReport(now, 60.0, Counts(1000, 200, 30, 4))
            await registers.create(f"{REQUESTS}/a", report.encode())
            await controller.reports.read()
            config = SimpleNamespace(cluster="zk://one:2181/c", options=())
            for storage, requests in (
                ("s3://b/p", (RequestsView("a", 60.0, 1000, 200, 30, 4, report.dollars_a_day()), RequestsView("b"))),
                ("file:///d", ()),
            ):
                meta = ClusterMeta("id", SECRET.hex(), SMALL.containers, "file:///log", "file:///i", storage, "m")
                view = controller.view(meta, config, Health("the controller", fleet.env.clock))
                found = await view.cluster()
                assert tuple(found.requests) == requests
                assert (found.address, found.containers, found.served) == ("zk://one:2181/c", SMALL.containers, 0)
                assert {one.name: one.state for one in found.components} == {"zookeeper": "ok", "storage": "unknown"}
                assert [(one.store, one.age) for one in found.reports] == [("a", None), ("b", None)]

    asyncio.run(main())
