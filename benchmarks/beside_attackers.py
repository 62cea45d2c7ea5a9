"""What an attacker who cannot log in costs others: waits for appends, probes and memory, alone and beside each attack.

python -m benchmarks.beside_attackers [--seconds S] [--only KIND]... [--tree TREE]

A node with users and TLS (without TLS for attacks that need none) serves one quiet writer, 50 appends a second.  Each
attack runs S seconds in a process of its own, from 127.0.0.2, with a bounded number of connections; before it the same
writer runs S seconds alone.  Printed: p50 and p99 of appends, the ratio of p99, probes of /livez that had no answer in
a second, and what the node's memory grew by.  The goal: p99 at most 3 times the quiet one, no probe missed.
`--tree`: the node runs from another checkout, to compare versions.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import resource
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.cost_loads import RUN
from sarit.cli.dev_ca import make_certificates
from sarit.client import aio
from sarit.client.core.login import Tls, UserPassword
from sarit.core.limits import MIB
from sarit.security.users import User, format_users, hash_password
from sarit.wire import commands as wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

_READY: Final = re.compile(r"controller (\S+):(\d+), store \S+:(\d+), HTTP \S+:(\d+)")
_PASSWORD: Final = "a password for figures"
_STREAM: Final = "quiet/s"
_APPENDS_PER_SECOND: Final = 50
_PROBE_SECONDS: Final = 0.25
_ATTACKER: Final = "127.0.0.2"
_BAD: Final = "eyJhbGciOiJIUzUxMiJ9.eyJhdWQiOiJzZWdtZW50c3RvcmUiLCJleHAiOjk5OTk5OTk5OTl9." + "x" * 86
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + struct.pack(">I", 0)[1:] + b"\x04\x00" + bytes(4)
_CHUNK_BYTES: Final = 64 * 1024


def _http2(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def _streams(first: int, count: int) -> bytes:
    """HEADERS of a call, and its RST_STREAM, of so many streams."""
    fields = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/x"), (b":authority", b"a"))
    block = b"".join(b"\x00" + bytes((len(k),)) + k + bytes((len(v),)) + v for k, v in fields)
    numbers = range(first, first + 2 * count, 2)
    return b"".join(_http2(1, 4, n, block) + _http2(3, 0, n, struct.pack(">I", 8)) for n in numbers)


def _repeated(frame: bytes) -> bytes:
    return frame * (_CHUNK_BYTES // len(frame) + 1)


_RESETS: Final = tuple(_streams(1 + 2 * 500 * n, 500) for n in range(40))
_TOKEN: Final = wire.encode(wire.ReadSegment("a/b/0.#epoch.0", 0, 9, _BAD, 1))
# By name: the port, connections, what each says at first, and what it says then, in turn, on and on.
KINDS: Final[dict[str, tuple[str, int, bytes, tuple[bytes, ...]]]] = {
    "KeepAlive": ("store", 8, b"", (_repeated(wire.encode(wire.KeepAlive())),)),
    "Hello": ("store", 8, b"", (_repeated(wire.encode(wire.Hello(17, 5))),)),
    "bad tokens": ("store", 8, b"", (_repeated(_TOKEN),)),
    "never logged in": ("store", 1500, wire.encode(wire.Hello(17, 5)), ()),
    "handshakes": ("store with TLS", 1100, b"", ()),
    "begun handshakes": ("store with TLS", 1100, b"\x16", ()),
    "PING": ("controller", 8, _PREFACE, (_repeated(_http2(6, 0, 0, bytes(8))),)),
    "SETTINGS": ("controller", 8, _PREFACE, (_repeated(_http2(4, 0, 0, b"")),)),
    "HEADERS and RST": ("controller", 8, _PREFACE, _RESETS),
    "idle HTTP": ("HTTP", 300, b"", ()),
}


class _Attacker:
    """One connection; it comes back when it is closed."""

    def __init__(self, port: int, first: bytes, more: tuple[bytes, ...]) -> None:
        self._port, self._first, self._more = port, first, more
        self.socket = self.connect()

    def connect(self) -> socket.socket:
        """Connect, and say the first words."""
        made = socket.socket()
        made.bind((_ATTACKER, 0))
        made.settimeout(5)
        with suppress(OSError):
            made.connect(("127.0.0.1", self._port))
            made.sendall(self._first)
        made.setblocking(False)
        self._unsent, self._said = memoryview(b""), 0
        self.socket = made
        return made

    def step(self, events: int) -> bool:
        """Read away what came, send on; False: it was closed."""
        try:
            if events & selectors.EVENT_READ and not self.socket.recv(1 << 20):
                return False
            if events & selectors.EVENT_WRITE and self._more:
                if not self._unsent:
                    self._unsent = memoryview(self._more[self._said % len(self._more)])
                    self._said += 1
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True


def attack(kind: str, port: int, seconds: float) -> None:
    """Run one attack from this process; a line says that all its connections were tried."""
    _, count, first, more = KINDS[kind]
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    parent, end = os.getppid(), time.monotonic() + seconds
    events = selectors.EVENT_READ | (selectors.EVENT_WRITE if more else 0)
    with selectors.DefaultSelector() as selector:
        for _ in range(count):
            made = _Attacker(port, first, more)
            selector.register(made.socket, events, made)
        print("attacks", flush=True)
        while time.monotonic() < end and os.getppid() == parent:
            for key, ready in selector.select(0.1):
                one = key.data
                if not one.step(ready):
                    selector.unregister(one.socket)
                    one.socket.close()
                    selector.register(one.connect(), events, one)


@asynccontextmanager
async def attacking(kind: str, port: int, seconds: float) -> AsyncIterator[None]:
    """Run one attack in a process of its own, for so long at most; it has begun.  Raises RuntimeError: it ended."""
    command = [sys.executable, "-m", "benchmarks.beside_attackers", "--seconds", str(seconds)]
    attacker = await asyncio.create_subprocess_exec(
        *command, "--attack", kind, "--port", str(port), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert attacker.stdout is not None
        if not await attacker.stdout.readline():
            raise RuntimeError(f"the attack {kind} did not begin")
        yield
        if attacker.returncode is not None:
            raise RuntimeError(f"the attack {kind} has ended")
    finally:
        with suppress(ProcessLookupError):
            attacker.kill()
        await attacker.wait()


@contextmanager
def node(directory: Path, tree: Path, *, tls: bool) -> Iterator[tuple[int, dict[str, int], Tls | None]]:
    """The process of a node with users, its ports, and what clients trust."""
    users, keys = directory / "users", directory / "keys"
    users.write_text(format_users([User("root", hash_password(_PASSWORD), frozenset({"admin"}))]))
    keys.write_text(os.urandom(32).hex() + "\n")
    for path in (users, keys):
        path.chmod(0o600)
    command = [sys.executable, "-c", RUN, "standalone", "--data-dir", str(directory / "data")]
    command += ["--http-port", "0", "--controller-port", "0", "--store-port", "0"]
    command += ["--users", str(users), "--token-keys", str(keys)]
    trusted = None
    if tls:
        files = {name: str(path) for name, path in make_certificates(directory / "certificates", (), 2).items()}
        command += ["--tls-cert", files["server"], "--tls-key", files["server key"], "--tls-ca", files["ca"]]
        trusted = Tls(files["ca"])
    env = {**os.environ, "PYTHONPATH": str(tree / "src")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env) as process:
        assert process.stdout is not None
        try:
            found = next(match for line in process.stdout if (match := _READY.search(line)))
            ports = {"controller": int(found[2]), "store": int(found[3]), "HTTP": int(found[4])}
            yield process.pid, ports | {"store with TLS": ports["store"]}, trusted
        finally:
            process.kill()


async def _appends(client: aio.Client, seconds: float) -> list[float]:
    """The waits of a writer that appends on a schedule; one that is late counts from when it was due."""
    waits: list[float] = []
    async with client.writer(_STREAM) as writer:
        due = began = time.monotonic()
        while due < began + seconds and time.monotonic() < began + 2 * seconds:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            writer.write(b"x" * 100)
            await writer.flush()
            waits.append(time.monotonic() - due)
            due += 1 / _APPENDS_PER_SECOND
    return sorted(waits)


async def _probes(port: int, tls: Tls | None, seconds: float) -> tuple[int, int]:
    """How many probes had no answer in a second, of how many."""
    missed = count = 0
    end = time.monotonic() + seconds
    context = tls.context() if tls is not None else None
    while time.monotonic() < end:
        count += 1
        try:
            async with asyncio.timeout(1.0):
                reader, writer = await asyncio.open_connection("localhost", port, ssl=context)
                writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                missed += b" 200 " not in await reader.readline()
                writer.close()
        except (OSError, TimeoutError):
            missed += 1
        await asyncio.sleep(_PROBE_SECONDS)
    return missed, count


def _memory(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


async def _measure(kind: str, seconds: float, pid: int, ports: dict[str, int], tls: Tls | None) -> None:
    address = f"{'localhost' if tls else '127.0.0.1'}:{ports['controller']}"
    async with await aio.connect(address, credentials=UserPassword("root", _PASSWORD), tls=tls, wait=60) as client:
        await client.create_scope("quiet")
        await client.create_stream(_STREAM)
        await _appends(client, 1.0)
        quiet, before = await _appends(client, seconds), _memory(pid)
        async with attacking(kind, ports[KINDS[kind][0]], seconds + 30):
            beside, (missed, probes) = await asyncio.gather(
                _appends(client, seconds), _probes(ports["HTTP"], tls, seconds)
            )
    grown = (_memory(pid) - before) / MIB

    def at(waits: list[float], share: float) -> float:
        return waits[min(len(waits) - 1, int(len(waits) * share))] * 1000

    print(f"{kind}: p50 {at(quiet, 0.5):.1f} -> {at(beside, 0.5):.1f} ms, p99 {at(quiet, 0.99):.1f} -> "
          f"{at(beside, 0.99):.1f} ms ({at(beside, 0.99) / at(quiet, 0.99):.1f} times), {len(beside)} of {len(quiet)} "
          f"appends, {missed} of {probes} probes missed, memory +{grown:.0f} MiB", flush=True)  # fmt: skip


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--only", action="append", choices=list(KINDS))
    parser.add_argument("--tree", type=Path, default=Path.cwd())
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # node, attacker and directory end with it
    if options.attack:
        attack(options.attack, options.port, options.seconds)
        return
    for kind in options.only or KINDS:
        with ExitStack() as stack:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="attacked-")))
            pid, ports, tls = stack.enter_context(node(place, options.tree, tls="TLS" in KINDS[kind][0]))
            asyncio.run(_measure(kind, options.seconds, pid, ports, tls))


if __name__ == "__main__":
    main()
