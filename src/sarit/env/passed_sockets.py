"""Sockets that the service manager (systemd) listens on, and passes to this process: sd_listen_fds(3).

The service manager holds a port while the process restarts: a client that connects meanwhile waits for the next process
and is not refused.  A passed socket is used in place of one that would be bound to the same address.  Without the
variable LISTEN_FDS there is none.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from sarit.env.tls import ServerTls
    from sarit.env.tls_server import TlsServer

_FIRST_DESCRIPTOR: Final = 3


async def listen(
    factory: Callable[[], asyncio.BaseProtocol], host: str | None, port: int, tls: ServerTls | None, backlog: int, *,
    http: bool = False,
) -> asyncio.Server | TlsServer:  # fmt: skip
    """Listen at an address, with the socket that was passed for it if there is one; `host` None: at all addresses.

    `http`: it speaks HTTP, which TLS tells clients.  Raises OSError."""
    passed, loop = passed_socket(host, port), asyncio.get_running_loop()
    if tls is None:
        if passed is not None:
            return await loop.create_server(factory, sock=passed, backlog=backlog)
        return await loop.create_server(factory, host, port, backlog=backlog)
    from sarit.env.tls_server import Handshakes, TlsServer, serve_tls

    handshakes = Handshakes(tls, http=http)
    if passed is not None:
        return TlsServer(factory, handshakes, [passed], backlog)
    return await serve_tls(factory, handshakes, host, port, backlog)


def passed_socket(address: str | None, port: int) -> socket.socket | None:
    """Return a new descriptor of the socket passed for an address, which the caller closes.  Raises OSError."""
    for found in _passed():
        if found.getsockname()[:2] == (address, port):
            return found
        found.close()
    return None


def check_passed_sockets(used: Collection[tuple[str, int]]) -> None:
    """Check that a listener of this process uses each passed socket.  Raises Invalid and OSError."""
    for found in _passed():
        with found:
            name = found.getsockname()
        if name[:2] not in used:
            where = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else repr(name)
            own = " and ".join(f"{address}:{port}" for address, port in used)
            advice = f"listens at {own}: name that in ListenStream=" if used else "uses none: stop the socket unit"
            raise Invalid(f"the service manager passes a socket at {where}, and this process {advice}")


def _passed() -> Iterator[socket.socket]:
    # Checks the process: programs that this process starts inherit the variables, but not the sockets.
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return
    for descriptor in range(_FIRST_DESCRIPTOR, _FIRST_DESCRIPTOR + int(os.environ.get("LISTEN_FDS", "0"))):
        yield socket.socket(fileno=os.dup(descriptor))
