"""A controller channel that answers no call is replaced; one that answers some call is retained."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from sarit.client.core.controller import ControllerClient
from sarit.core.errors import Unavailable
from sarit.rpc.generated import controller_pb2 as pb
from sarit.rpc.methods import PRAVEGA
from tests.limits import HANG_SECONDS
from tests.rpc_calls import listen, request_of


class Controller:
    """Answers whether a scope exists; for scope "held" when `free` is set."""

    def __init__(self) -> None:
        self.free = asyncio.Event()

    async def exists(self, call) -> None:
        if (await request_of(call, pb.ScopeInfo)).scope == "held":
            await self.free.wait()
        call.reply(pb.ExistsResponse(exists=True).SerializeToString())


class Path:
    """The way to a port; the first `dead` connections swallow everything and say nothing."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.made = self.dead = 0
        self.serving: list[asyncio.Task] = []

    async def serve(self, reader, writer) -> None:
        self.serving.append(asyncio.current_task())
        self.made += 1
        number = self.made
        answers, questions = await asyncio.open_connection("127.0.0.1", self.port)

        async def forward(source, target) -> None:
            while data := await source.read(65536):
                if number > self.dead:
                    target.write(data)
            target.close()

        await asyncio.gather(forward(reader, questions), forward(answers, writer))


@asynccontextmanager
async def controller():
    made = Controller()
    server, port = await listen({PRAVEGA.checkScopeExists.name: made.exists})
    path = Path(port)
    front = await asyncio.start_server(path.serve, "127.0.0.1", 0)
    client = ControllerClient([front.sockets[0].getsockname()[:2]])
    try:
        async with asyncio.timeout(HANG_SECONDS):
            yield made, path, client
            await client.close()
            await asyncio.gather(*path.serving)
    finally:
        front.close()
        server.close()


async def ask(client: ControllerClient, scope: str, seconds: float = 10.0) -> bool:
    return (await client.call(client.stub.checkScopeExists, pb.ScopeInfo(scope=scope), seconds)).exists


def test_channel_without_replies_is_replaced_after_a_timeout() -> None:
    """Over a dead path every call was retried on the same connection until the retry timeout."""

    async def go() -> None:
        async with controller() as (_, path, client):
            assert await ask(client, "s")
            path.dead = 1
            beside = asyncio.create_task(ask(client, "s", 0.3))
            with pytest.raises(Unavailable, match="did not answer within"):
                await ask(client, "s", 0.1)
            assert await ask(client, "s")
            assert not beside.done()
            with pytest.raises(Unavailable, match="did not answer within"):
                await beside
            assert path.made == 2
            assert not client._channels.replaced

    asyncio.run(go())


def test_call_on_a_replaced_channel_completes() -> None:
    """One call takes long, and no other was answered in its time: the path is alive, and a later call completes."""

    async def go() -> None:
        async with controller() as (made, _, client):
            assert await ask(client, "s")
            slow = asyncio.create_task(ask(client, "held", 0.1))
            late = asyncio.create_task(ask(client, "held"))
            with pytest.raises(Unavailable, match="did not answer within"):
                await slow
            made.free.set()
            assert await late

    asyncio.run(go())


def test_channel_that_answers_other_calls_is_retained() -> None:
    async def go() -> None:
        async with controller() as (made, path, client):
            assert await ask(client, "s")
            held = asyncio.create_task(ask(client, "held"))
            slow = asyncio.create_task(ask(client, "held", 0.1))
            await asyncio.sleep(0)  # both have begun
            assert await ask(client, "s")
            with pytest.raises(Unavailable):
                await slow
            made.free.set()
            assert await held
            assert path.made == 1

    asyncio.run(go())
