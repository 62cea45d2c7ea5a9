"""The official Python client, which is the Rust client, while containers move between two stores of one process."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from sarit.controller.assembly import Controller
from sarit.core.errors import Moved
from sarit.env.real import real_env
from sarit.process.store_calls.in_process import InProcessSegments, InProcessTables
from sarit.rpc.grpc_server import GrpcListener
from sarit.store.hosting.health import HealthState, Opening
from sarit.store.server.listener import StoreListener
from sarit.store.store import SegmentStore, container_of
from sarit.store.tiering.checkpoint import FlushLimits
from sarit.wire import commands as wire
from tests import secured
from tests.interop.running import finish, start
from tests.limits import HANG_SECONDS
from tests.unit.store.harness import SMALL, World
from tests.unit.store.placements import RecordedPlacement

MOVES = 20
CONTAINERS = 4
PAUSE_SECONDS = 0.25
LIMITS = replace(SMALL, containers=CONTAINERS, flush=FlushLimits(interval_seconds=0.5))


class Cluster:
    """Two stores on one set of logs, a controller that reaches both, and the map of who owns what."""

    def __init__(self) -> None:
        env, world = real_env(), World(LIMITS)
        world.logs.delay_seconds = 0.002
        self.stores = [
            SegmentStore(env, world.logs, world.indexes, world.storage, LIMITS, owned=frozenset()) for _ in range(2)
        ]
        self.listeners = [StoreListener(store, ask_owner=self.ask_owner) for store in self.stores]
        self.forwarded = 0
        self.owner = [number % 2 for number in range(CONTAINERS)]
        self.released: set[int] = set()
        self.version = 1
        self.longest = 0.0
        segments = [InProcessSegments(store, lambda: ("127.0.0.1", 0)) for store in self.stores]
        self.ports = [0, 0]
        tables: Any = Routed(self, [InProcessTables(store) for store in self.stores])
        self.routed: Any = Routed(self, segments)
        self.controller = Controller(tables, self.routed, env, ("127.0.0.1", 0))

    async def start(self) -> str:
        for number, (store, listener) in enumerate(zip(self.stores, self.listeners, strict=True)):
            store.placement = RecordedPlacement(released=self.released.add)
            await store.start()
            self.ports[number] = await listener.listen("127.0.0.1", 0)
        for number, owner in enumerate(self.owner):
            self.stores[owner].own(number, self.version)
        await self.controller.start()
        api = GrpcListener(self.controller.services(), 100)
        self.server = await asyncio.get_running_loop().create_server(api.connection, "127.0.0.1", 0)
        port = self.server.sockets[0].getsockname()[1]
        self.controller.advertised = ("127.0.0.1", port)
        return f"127.0.0.1:{port}"

    async def ask_owner(self, command: Any) -> Any:
        """As a connection to the other store does."""
        self.forwarded += 1
        while True:
            owner = self.listeners[self.owner[container_of(command.segment, CONTAINERS)]]
            try:
                reply = await owner._control.answer(command)
                if not isinstance(reply, wire.WrongHost):
                    return reply
            except Opening:
                pass
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        self.server.close()
        await self.controller.stop()
        for listener, store in zip(self.listeners, self.stores, strict=True):
            await listener.close()
            await store.stop()

    async def move(self, number: int) -> None:
        """Gracefully, as the leader of a cluster does; the longest time without an owner is kept."""
        loop = asyncio.get_running_loop()
        before, after = self.stores[self.owner[number]], self.stores[1 - self.owner[number]]
        self.released.discard(number)
        before.release(number, graceful=True)
        async with asyncio.timeout(HANG_SECONDS):
            while before.health()[number].state is HealthState.SERVING:
                await asyncio.sleep(0.001)
            began = loop.time()
            while number not in self.released:
                await asyncio.sleep(0.001)
            self.version += 1
            self.owner[number] = 1 - self.owner[number]
            after.own(number, self.version)
            while after.health()[number].state is not HealthState.SERVING:
                await asyncio.sleep(0.001)
        self.longest = max(self.longest, loop.time() - began)


class Routed:
    """A controller's port to both stores: each call goes to the one that owns the segment."""

    def __init__(self, cluster: Cluster, adapters: list[Any]) -> None:
        self._cluster = cluster
        self._adapters = adapters

    def endpoint(self, segment: str) -> tuple[str, int]:
        return "127.0.0.1", self._cluster.ports[self._cluster.owner[container_of(segment, CONTAINERS)]]

    async def grown(self) -> list[str]:
        return []

    async def scope_bytes(self, scope: str) -> int:
        return sum([await adapter.scope_bytes(scope) for adapter in self._adapters])

    async def rates(self, segments: list[str]) -> list[Any]:
        return await self._adapters[0].rates(segments)

    def __getattr__(self, name: str) -> Any:
        async def call(segment: str, *arguments: Any, **options: Any) -> Any:
            while True:
                owner = self._cluster.owner[container_of(segment, CONTAINERS)]
                try:
                    return await getattr(self._adapters[owner], name)(segment, *arguments, **options)
                except (Moved, Opening):
                    await asyncio.sleep(0.005)

        return call


@pytest.mark.long
def test_python_client_rides_through_20_moves_without_an_error(request, tmp_path, monkeypatch):
    for variable in secured.client_environment(""):  # these stores ask nobody who they are
        monkeypatch.delenv(variable, raising=False)
    if request.config.getoption("--interop-endpoint", default=None):
        pytest.skip("the stores of --interop-endpoint are not ours to move")

    async def main() -> None:
        cluster, loop = Cluster(), asyncio.get_running_loop()
        endpoint = await cluster.start()
        name = "restart.through_the_kill"
        process = start(name, endpoint, "moved", tmp_path)
        assert process.stdout is not None
        assert process.stdin is not None
        ended = None
        if await loop.run_in_executor(None, process.stdout.readline) == "running\n":
            for number in range(MOVES):
                await cluster.move(number % CONTAINERS)
                await asyncio.sleep(PAUSE_SECONDS)
            assert cluster.forwarded, "its reader group's table has moved, too"
            # As `pytest -s` shows it.
            print(f"{MOVES} moves; longest without an owner: {cluster.longest * 1000:.0f} ms")
            process.stdin.write("back\n")
            process.stdin.flush()
        ended = loop.run_in_executor(None, finish, name, process)
        await ended
        await cluster.stop()

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
