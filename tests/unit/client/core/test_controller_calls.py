"""Calls to the controller that end with the connection do not leave their task cancelled."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from grpclib.exceptions import StreamTerminatedError
from grpclib.utils import Wrapper

from sarit.client.core import channels
from sarit.client.core.controller import ControllerClient
from sarit.core.errors import Unavailable


async def lost(request: object, timeout: float, metadata: object) -> None:
    """A call as grpclib ends it: it cancels the task that waits, and raises what happened there."""
    wrapper = Wrapper()
    with wrapper:
        asyncio.get_running_loop().call_soon(wrapper.cancel, StreamTerminatedError("connection lost"))
        await asyncio.sleep(timeout)


@pytest.fixture(autouse=True)
def _methods_are_functions(monkeypatch):
    """A method of a stub is a function here, in the place of its name."""
    monkeypatch.setattr(channels, "UnaryUnaryMethod", lambda channel, function, *types: function)


def method(function) -> SimpleNamespace:
    return SimpleNamespace(name=function, request_type=None, reply_type=None)


def run(main) -> None:
    async def with_client() -> None:
        await main(ControllerClient([("127.0.0.1", 1)]))

    asyncio.run(with_client())


def test_timeout_around_a_lost_call_raises_timeout_error() -> None:
    """CancelledError came out of it, and ended the task that it was not meant for (simulation seed 2891700047)."""

    async def main(client: ControllerClient) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                with pytest.raises(Unavailable):
                    await client.call(method(lost), None)
                await asyncio.sleep(60)
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()

    run(main)


def test_call_cancelled_while_the_connection_is_lost_raises_cancelled() -> None:
    async def main(client: ControllerClient) -> None:
        calling = asyncio.ensure_future(client.call(method(lost), None))
        await asyncio.sleep(0)  # it runs,
        await asyncio.sleep(0)  # its call begins: callbacks scheduled now run next
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling

    run(main)


def test_cancelled_call_ends_the_request() -> None:
    ended = []

    async def waits(request: object, timeout: float, metadata: object) -> None:
        try:
            await asyncio.sleep(timeout)
        finally:
            ended.append(request)

    async def main(client: ControllerClient) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await client.call(method(waits), "asked")
        assert ended == ["asked"]

    run(main)
