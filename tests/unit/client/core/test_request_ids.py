"""Ids of requests: each call has one of its own, which logs and errors name."""

from __future__ import annotations

import asyncio
import logging

import pytest

from sarit.client.core.connection import first_request_id
from sarit.client.core.controller import ControllerClient
from sarit.client.core.replies import error_of
from sarit.core.errors import Invalid
from sarit.core.request_ids import current_request_id
from sarit.env.real import real_env
from sarit.rpc.generated import controller_pb2 as pb
from sarit.rpc.methods import PRAVEGA
from sarit.rpc.status import CallFailed, Status
from sarit.wire import commands as wire
from tests.limits import HANG_SECONDS
from tests.rpc_calls import listen


class Refusing:
    """Answers the first call, and refuses all others; `ids` of those that came."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    async def exists(self, call) -> None:
        self.ids.append(call.metadata["requestid"])
        if len(self.ids) > 1:
            raise CallFailed(Status.INVALID_ARGUMENT, "no")
        call.reply(pb.ExistsResponse(exists=True).SerializeToString())


def test_each_call_sends_an_id_that_log_and_error_name(caplog) -> None:
    caplog.set_level(logging.DEBUG, "sarit.client")

    async def main() -> None:
        service = Refusing()
        server, port = await listen({PRAVEGA.checkScopeExists.name: service.exists})
        client = ControllerClient([("127.0.0.1", port)], first_request_id=4711)
        ask = lambda: client.call(client.stub.checkScopeExists, pb.ScopeInfo(scope="s"))  # noqa: E731
        await ask()
        with pytest.raises(Invalid, match=r": no \(request 4712\)$"):
            await ask()
        assert service.ids == ["4711", "4712"]
        await client.close()
        server.close()

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
    assert "request 4711, checkScopeExists, was answered" in caplog.text
    assert "request 4712, checkScopeExists, failed" in caplog.text


def test_two_clients_begin_to_count_at_different_ids() -> None:
    random = real_env().random
    assert len({first_request_id(random) for _ in range(10)}) == 10


def test_error_of_a_store_names_the_request() -> None:
    error = error_of(wire.ErrorMessage(4711, "s/t/0", "it failed", 0), "s/t/0")
    assert str(error) == "segment s/t/0: it failed (request 4711)"


def test_connection_that_a_request_opened_belongs_to_no_request() -> None:
    """A line about a bookie named the request of hours ago that had needed it first."""
    seen: list[str] = []

    class Receiver(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            seen.append(current_request_id.get())
            ended.set()

    async def main() -> None:
        async def greet(reader, writer) -> None:
            writer.write(b"hello")

        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        current_request_id.set("4711")
        transport, _ = await real_env().network.connect(Receiver, *server.sockets[0].getsockname())
        await ended.wait()
        assert current_request_id.get() == "4711"
        transport.close()
        server.close()

    ended = asyncio.Event()
    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
    assert seen == [""]
