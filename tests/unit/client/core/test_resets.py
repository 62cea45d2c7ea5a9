"""Connects to a port that ends each connection at once: the client reports that in one way."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from contextlib import contextmanager

import pytest

from sarit.client.core.controller import ControllerClient
from sarit.core.errors import Unavailable

CONNECTS = 400


@contextmanager
def resetting_port():
    """A port that accepts connections and resets each at once, from a thread of its own: at any moment of a connect."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=CONNECTS)

    def serve() -> None:
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            accepted.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def test_connects_to_a_port_that_resets_all_raise_unavailable() -> None:
    """`AttributeError: 'Connection' object has no attribute '_transport'` ended readers for good."""

    async def go(port: int) -> None:
        for _ in range(CONNECTS):
            controller = ControllerClient([("127.0.0.1", port)])
            with pytest.raises(Unavailable, match="no Sarit controller answers"):
                await controller.ping()
            await controller.close()

    with resetting_port() as port:
        asyncio.run(go(port))


def test_connection_lost_between_connect_and_first_use_raises_unavailable(monkeypatch) -> None:
    """The same at the exact moment: connected, and lost before a call is begun on it."""

    async def go() -> None:
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        controller = ControllerClient([server.sockets[0].getsockname()[:2]])
        channel = controller._channels.current.channel
        connect = channel._connect

        async def lost():
            connection = await connect()
            connection.connection_lost(ConnectionResetError())
            return connection

        monkeypatch.setattr(channel, "_connect", lost)
        with pytest.raises(Unavailable, match="the connection was lost"):
            await controller.ping()
        await controller.close()
        server.close()

    asyncio.run(go())
