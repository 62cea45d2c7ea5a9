"""A proxy before an S3 server that counts requests and delays them, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.s3 import S3Server


_UNAVAILABLE = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n"


class Proxy:
    """`counted`: requests by method.  `folders`: by method and the folder below the bucket; LIST has a name of its own.

    `delay_seconds`: by method, before a request is passed on.  `answer`: a whole response instead, or None.  `faults`:
    what happens to the next requests: "" passed on, "error" answered with 503 instead, "lost" carried out, and the
    connection ends instead of the reply."""

    def __init__(self, server: S3Server) -> None:
        self._host, _, port = server.endpoint.removeprefix("http://").partition(":")
        self._port = int(port)
        self.counted: Counter[str] = Counter()
        self.folders: Counter[tuple[str, str]] = Counter()
        self.delay_seconds: dict[str, float] = {}
        self.answer: bytes | None = None
        self.faults: list[str] = []
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
                method, target = head.split(b"\r\n", 1)[0].decode().split(" ", 2)[:2]
                body = await _body(client, head)
                self.counted[method] += 1
                self.folders[_kind(method, target)] += 1
                await asyncio.sleep(self.delay_seconds.get(method, 0.0))
                fault = self.faults.pop(0) if self.faults else ""
                if fault == "lost":
                    back.cancel()
                    request.write(head + body)
                    with suppress(asyncio.TimeoutError):  # what has a 100 before its answer is not carried out
                        await asyncio.wait_for(upstream.readuntil(b"\r\n\r\n"), 1)
                    return
                if self.answer is not None or fault == "error":
                    reply.write(self.answer or _UNAVAILABLE)
                else:
                    request.write(head + body)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self.open -= {reply, request}
            back.cancel()
            request.close()
            reply.close()


def _kind(method: str, target: str) -> tuple[str, str]:
    """A request's method, and the first folder of its key: that of the prefix for a listing."""
    parts = urlsplit(target)
    prefix = parse_qs(parts.query).get("prefix", [""])[0] if "list-type" in parts.query else ""
    if prefix or "list-type" in parts.query:
        return "LIST", prefix.split("/", 1)[0]
    return method, f"{unquote(parts.path)}//".split("/")[2]


async def _body(client: asyncio.StreamReader, head: bytes) -> bytes:
    """What follows a head, with the lengths of its chunks, if it has chunks."""
    if b"\r\ntransfer-encoding: chunked\r\n" not in head.lower():
        length = _length(head)
        return await client.readexactly(length) if length else b""
    parts = []
    while True:
        line = await client.readuntil(b"\r\n")
        parts.append(line)
        if size := int(line.partition(b";")[0], 16):
            parts.append(await client.readexactly(size + 2))
            continue
        while line != b"\r\n":  # trailers, up to an empty line
            line = await client.readuntil(b"\r\n")
            parts.append(line)
        return b"".join(parts)


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
def counting(server: S3Server) -> Iterator[tuple[Proxy, S3Server]]:
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
