"""A client of several controllers, which are fakes that die: at a request, before its answer, or by standing still."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from sarit.client import aio
from sarit.client.core.addresses import parse_addresses
from sarit.client.core.controller import ControllerClient
from sarit.client.core.retry import RetryPolicy
from sarit.core.errors import Invalid, Unavailable
from sarit.rpc.generated import controller_pb2 as pb
from sarit.rpc.grpc_server import GrpcListener
from sarit.rpc.methods import PRAVEGA
from sarit.rpc.status import CallFailed, Status
from tests.limits import HANG_SECONDS
from tests.rpc_calls import request_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class FakeController:
    """Scopes, shared with other fakes.  `held`: calls wait for `go`.  `loses`: it acts, and dies before it answers."""

    def __init__(self, scopes: set[str]) -> None:
        self.scopes = scopes
        self.created: list[str] = []  # of each createScope that was carried out, its scope
        self.calls = 0
        self.connections = 0
        self.held = self.loses = self.refuses_calls = False
        self.arrived = asyncio.Event()
        self.address = ("127.0.0.1", 0)
        self._server: Any = None
        self._transports: list[asyncio.Transport] = []

    async def exists(self, call: Any) -> None:
        request = await self._begin(call)
        call.reply(pb.ExistsResponse(exists=request.scope in self.scopes).SerializeToString())

    async def create(self, call: Any) -> None:
        request = await self._begin(call)
        new = request.scope not in self.scopes
        self.scopes.add(request.scope)
        self.created.append(request.scope)
        if self.loses:
            self.kill()
            return
        status = pb.CreateScopeStatus.SUCCESS if new else pb.CreateScopeStatus.SCOPE_EXISTS
        call.reply(pb.CreateScopeStatus(status=status).SerializeToString())

    async def _begin(self, call: Any) -> Any:
        request = await request_of(call, pb.ScopeInfo)
        self.calls += 1
        self.arrived.set()
        if self.refuses_calls:
            raise CallFailed(Status.UNAVAILABLE, "the stores of my tables are away")
        if self.held:
            await asyncio.Event().wait()
        return request

    async def start(self) -> FakeController:
        """Listen, on the same port as before."""
        calls = {PRAVEGA.checkScopeExists.name: self.exists, PRAVEGA.createScope.name: self.create}
        make = GrpcListener(calls, 100).connection

        def protocol() -> Any:
            made = make()
            self.connections += 1
            connected = made.connection_made

            def remember(transport: asyncio.Transport) -> None:
                self._transports.append(transport)
                connected(transport)

            made.connection_made = remember
            return made

        self._server = await asyncio.get_running_loop().create_server(protocol, *self.address)
        self.address = self._server.sockets[0].getsockname()[:2]
        return self

    def kill(self) -> None:
        """As kill -9."""
        self._server.close()
        for transport in self._transports:
            transport.abort()
        self._transports.clear()


@asynccontextmanager
async def controllers(count: int = 2) -> AsyncIterator[list[FakeController]]:
    scopes: set[str] = set()
    made = [await FakeController(scopes).start() for _ in range(count)]
    try:
        async with asyncio.timeout(HANG_SECONDS):
            yield made
    finally:
        for controller in made:
            controller.kill()


def named(*fakes: FakeController) -> str:
    return "tcp://" + ",".join(f"{host}:{port}" for host, port in (fake.address for fake in fakes))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("h", [("h", 9090)]),
        ("h:1", [("h", 1)]),
        ("tcp://h1:9090,h2:9091", [("h1", 9090), ("h2", 9091)]),
        ("h1:9090, h2:9091/", [("h1", 9090), ("h2", 9091)]),
        ("h1,h1:9090,h2", [("h1", 9090), ("h2", 9090)]),
        ("tcp://[::1]:1,[::2]:2", [("::1", 1), ("::2", 2)]),
    ],
)
def test_address_names_one_controller_or_several(text: str, found: list[tuple[str, int]]) -> None:
    assert parse_addresses(text) == found


@pytest.mark.parametrize("text", ["", ",", "h1:9090,", "h1:9090,:1", "h1:9090,h2:x", "h1:0", "tcp://h1:9090,h2:99999"])
def test_address_with_a_wrong_part_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="give HOST:PORT, as 127.0.0.1:9090, or several with commas"):
        parse_addresses(text)


def test_calls_in_progress_end_without_error_when_their_controller_dies() -> None:
    async def go() -> None:
        async with controllers() as (first, second), await aio.connect(named(first, second)) as client:
            first.held = True
            calls = [asyncio.ensure_future(client.create_scope(f"s{number}")) for number in range(20)]
            while first.calls < 1 + len(calls):  # one was to connect
                first.arrived.clear()
                await first.arrived.wait()
            first.kill()
            assert await asyncio.gather(*calls) == [True] * 20
            assert sorted(second.created) == sorted(f"s{number}" for number in range(20))
            assert second.connections == 1

    asyncio.run(go())


def test_answer_that_is_lost_is_asked_for_at_the_next_controller() -> None:
    async def go() -> None:
        async with controllers() as (first, second), await aio.connect(named(first, second)) as client:
            first.loses = True
            assert not await client.create_scope("s")  # it exists: the first attempt made it
            assert (first.created, second.created) == (["s"], ["s"])

    asyncio.run(go())


def test_call_whose_outcome_is_unknown_is_not_repeated_without_a_retry() -> None:
    async def go() -> None:
        async with controllers() as (first, second):
            client = ControllerClient([first.address, second.address])
            first.loses = True
            with pytest.raises(Unavailable):
                await client.create_scope("s")
            assert not second.calls
            assert not await client.create_scope("s")
            await client.close()

    asyncio.run(go())


def test_call_that_nobody_got_goes_to_the_next_controller_within_its_attempt() -> None:
    async def go() -> None:
        async with controllers(3) as (first, second, third):
            first.kill()
            second.kill()
            async with await aio.connect(named(first, second, third), retry_timeout=0.0) as client:
                assert await client.create_scope("s")
                third.kill()
                await first.start()
                assert await client.create_scope("t")

    asyncio.run(go())


def test_client_stays_with_a_controller_until_it_fails() -> None:
    async def go() -> None:
        async with controllers() as (first, second), await aio.connect(named(first, second)) as client:
            first.kill()
            await client.create_scope("a")
            await first.start()
            await client.create_scope("b")
            assert (first.created, second.created) == ([], ["a", "b"])
            second.kill()
            await client.create_scope("c")
            assert first.created == ["c"]

    asyncio.run(go())


def test_controller_that_cannot_answer_now_is_left_for_the_next() -> None:
    """One that is cut off from the stores, for example."""

    async def go() -> None:
        async with controllers() as (first, second), await aio.connect(named(first, second)) as client:
            first.refuses_calls = True
            assert await client.create_scope("s")
            assert second.created == ["s"]

    asyncio.run(go())


def test_controller_that_stands_still_is_left_after_the_keep_alive() -> None:
    """Its kernel accepts connections and takes requests; without pings a call would wait for its own time-out."""

    async def go() -> None:
        stands_still = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        async with controllers(1) as (second,):
            policy = RetryPolicy()
            still = stands_still.sockets[0].getsockname()[:2]
            client = ControllerClient([still, second.address], policy.attempt_of(2), 0.05)
            began = asyncio.get_running_loop().time()
            with pytest.raises(Unavailable, match="answers at"):
                await client.create_scope("s")
            assert asyncio.get_running_loop().time() - began < policy.attempt_of(2) / 2
            assert await client.create_scope("s")
            await client.close()
        stands_still.close()

    asyncio.run(go())


def test_method_taken_before_a_fail_over_is_called_at_the_next_controller() -> None:
    """The client's own code takes a method of the stub once, and repeats it."""

    async def go() -> None:
        async with controllers() as (first, second):
            client = ControllerClient([first.address, second.address])
            method = client.stub.createScope
            first.kill()
            await client.call(method, pb.ScopeInfo(scope="s"))
            assert second.created == ["s"]
            await client.close()

    asyncio.run(go())


def test_error_names_all_controllers_and_attempts_are_few() -> None:
    async def go() -> None:
        async with (
            controllers() as (first, second),
            await aio.connect(named(first, second), retry_timeout=0.5) as client,
        ):
            first.refuses_calls = second.refuses_calls = True
            before = first.calls + second.calls
            with pytest.raises(Unavailable, match="the stores of my tables are away"):
                await client.create_scope("s")
            # One at once, then pauses of 20 ms that double: half a second has room for no more.
            assert first.calls + second.calls - before <= 12
            assert abs(first.calls - second.calls) <= 2
            first.kill()
            second.kill()
            with pytest.raises(Unavailable) as raised:
                await client.create_scope("s")
            assert f"no Sarit controller answers at {named(first, second)[6:]} (" in str(raised.value)

    asyncio.run(go())


def test_connect_finds_the_controller_that_is_there() -> None:
    async def go() -> None:
        async with controllers() as (first, second):
            first.kill()
            async with await aio.connect(named(first, second)) as client:
                assert repr(client) == f"Client({named(first, second)[6:]}, open)"
            second.kill()
            with pytest.raises(Unavailable, match="no Sarit controller answers at"):
                await aio.connect(named(first, second))

    asyncio.run(go())
