"""Calls of the controller's API for tests: the rpcs as functions of a channel, and handlers that answer them."""

from __future__ import annotations

import asyncio

from sarit.rpc.call import PREFIX
from sarit.rpc.grpc_server import GrpcListener
from sarit.rpc.methods import PRAVEGA
from tests.limits import HANG_SECONDS


class Stub:
    """The rpcs of a service as functions of a request."""

    def __init__(self, channel, methods=PRAVEGA) -> None:
        self._channel, self._methods = channel, methods

    def __getattr__(self, name):
        method = getattr(self._methods, name)
        return lambda request: self._channel.call(method, request, HANG_SECONDS, {})


async def request_of(call, kind):
    """The request of a call, without bounds."""
    _, length = PREFIX.unpack(await call.read(PREFIX.size))
    return kind.FromString(await call.read(length))


async def listen(handlers, most=10, address=("127.0.0.1", 0)):
    """A server of handlers by path, and its port."""
    server = await asyncio.get_running_loop().create_server(GrpcListener(handlers, most).connection, *address)
    return server, server.sockets[0].getsockname()[1]
