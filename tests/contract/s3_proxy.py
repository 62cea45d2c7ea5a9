"""A proxy before an S3 server that counts requests and delays them, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.contract.s3 import S3Server


class Proxy:
    """`counted`: requests by method.

    `delay_seconds`: by method, before a request is passed on.  `answer`: a whole response instead, or None."""

    def __init__(self, server: S3Server) -> None:
        self._host, _, port = server.endpoint.removeprefix("http://").partition(":")
        self._port = int(port)
        self.counted: Counter[str] = Counter()
        self.delay_seconds: dict[str, float] = {}
        self.answer: bytes | None = None
        self.port = 0
        self.open: set[asyncio.StreamWriter] = set()

    async def serve(self, client: asyncio.StreamReader, reply: asyncio.StreamWriter) -> None:
        try:
            upstream, request = await asyncio.open_connection(self._host, self._port)
        except OSError:
            reply.close()
            return
        self.open |= {reply, request}
        back = asyncio.ensure_future(_copy(upstream, reply))
        try:
            while True:
                head = await client.readuntil(b"\r\n\r\n")
                method = head.split(b"\r\n", 1)[0].decode().split(" ", 1)[0]
                length = _length(head)
                body = await client.readexactly(length) if length else b""
                self.counted[method] += 1
                await asyncio.sleep(self.delay_seconds.get(method, 0.0))
                if self.answer is not None:
                    reply.write(self.answer)
                else:
                    request.write(head + body)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self.open -= {reply, request}
            back.cancel()
            request.close()
            reply.close()


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()
    target.close()


@contextmanager
def counting(server: S3Server):
    """The proxy, and the server as it is seen through it."""
    proxy, ready = Proxy(server), threading.Event()
    loop = asyncio.new_event_loop()

    async def start() -> None:
        listening = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, limit=1 << 20)
        proxy.port = listening.sockets[0].getsockname()[1]
        ready.set()

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(start())
        loop.run_forever()
        while proxy.open:
            proxy.open.pop().close()
        while tasks := asyncio.all_tasks(loop):
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ready.wait()
    endpoint = f"http://127.0.0.1:{proxy.port}"
    try:
        yield proxy, replace(server, endpoint=endpoint, environ={**server.environ, "AWS_ENDPOINT_URL": endpoint})
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
