"""Calls to the controller that end with the connection, or are cancelled, leave nothing behind."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from sarit.client.core.controller import ControllerClient
from sarit.core.errors import Unavailable
from sarit.rpc.generated import controller_pb2 as pb
from sarit.rpc.methods import PRAVEGA
from tests.limits import HANG_SECONDS
from tests.rpc_calls import listen


class Server:
    """Has one call under way, which ends by being cancelled."""

    def __init__(self) -> None:
        self.arrived, self.ended = asyncio.Event(), asyncio.Event()

    async def hold(self, call) -> None:
        self.arrived.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


@asynccontextmanager
async def calling():
    """A call under way: server, client, and the task that waits."""
    held = Server()
    server, port = await listen({PRAVEGA.checkScopeExists.name: held.hold})
    client = ControllerClient([("127.0.0.1", port)])
    async with asyncio.timeout(HANG_SECONDS):
        task = asyncio.ensure_future(client.call(client.stub.checkScopeExists, pb.ScopeInfo(scope="s")))
        await held.arrived.wait()
        yield held, client, task
    await client.close()
    server.close()


def lose(client: ControllerClient) -> None:
    client._channels.current.channel._connection.connection_lost(ConnectionResetError())


def test_timeout_around_a_lost_call_raises_timeout_error() -> None:
    """CancelledError came out of it, and ended the task that it was not meant for (simulation seed 2891700047)."""

    async def main() -> None:
        async with calling() as (_, client, task):
            asyncio.get_running_loop().call_soon(lose, client)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    with pytest.raises(Unavailable):
                        await task
                    await asyncio.sleep(60)
            assert not asyncio.current_task().cancelling()

    asyncio.run(main())


def test_call_cancelled_while_the_connection_is_lost_raises_cancelled() -> None:
    async def main() -> None:
        async with calling() as (_, client, task):
            lose(client)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())


def test_cancelled_call_ends_at_the_server_and_the_connection_serves_on() -> None:
    async def main() -> None:
        async with calling() as (held, client, task):
            task.cancel()
            await held.ended.wait()
            held.arrived.clear()
            again = asyncio.ensure_future(client.call(client.stub.checkScopeExists, pb.ScopeInfo(scope="s")))
            await held.arrived.wait()
            again.cancel()
            assert client._channels.current.channel.connected

    asyncio.run(main())


def test_call_ends_at_the_server_by_the_deadline_of_its_client() -> None:
    async def main() -> None:
        async with calling() as (held, client, task):
            held.ended.clear()
            with pytest.raises(Unavailable, match="did not answer within"):
                await client.call(client.stub.checkScopeExists, pb.ScopeInfo(scope="s"), 0.05)
            await held.ended.wait()
            task.cancel()

    asyncio.run(main())
