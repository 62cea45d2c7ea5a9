"""Bookies are reached without TLS by a process that has TLS to others of its kind."""

from __future__ import annotations

import asyncio
import ssl

from sarit.env.real import real_env
from sarit.log.bookkeeper.bookies import NetworkBookies
from tests.limits import HANG_SECONDS


class _NoRegistrations:
    async def children(self, path: str) -> list[str]:
        return []


def test_bookie_gets_no_handshake_from_a_process_with_tls():
    async def main() -> None:
        first: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def bookie(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            first.set_result(await reader.readexactly(4))
            writer.close()

        server = await asyncio.start_server(bookie, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        env = real_env(client_tls=ssl.create_default_context)
        bookies = NetworkBookies(env, _NoRegistrations())  # type: ignore[arg-type]
        bookies.read(f"127.0.0.1:{port}", 1, 0, fence=False, done=lambda _: None)
        async with asyncio.timeout(HANG_SECONDS):
            assert (await first)[0] == 0, "a length; a handshake of TLS begins with 22"
        await bookies.close()
        server.close()

    asyncio.run(main())
