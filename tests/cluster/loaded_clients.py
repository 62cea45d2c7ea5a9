"""Clients of several kinds that write to a cluster, each in a process of its own, and what they waited for.

Pravega's for Java, which knows both controllers; its Python client and, where it is built, its Rust client, which know
one address: one controller, or a name behind which a controller is; Sarit's, which knows both controllers."""

from __future__ import annotations

import select
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import sarit
from benchmarks.peers.maven import CACHE, PeerMissing
from tests.interop.java_peer import compiled
from tests.limits import HANG_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.cluster.processes import RunningCluster

SCOPE = "rolling"
KEYS = 7
# A write that takes longer is named in the result, if it is one of the longest of its client.
STALL_SECONDS = 0.5
NAMED_STALLS = 5
JAVA_PEER = Path(__file__).parent / "java" / "RollingPeer.java"
PYTHON_PEER = Path(__file__).with_name("peers.py")
RUST_PEER = Path(__file__).parent / "rust"
CARGO_SECONDS = 3600
# What each kind of client is called on the command line.
KINDS = ("sarit", "python", "java", "rust")


@dataclass(frozen=True)
class Stall:
    """A write that took long: when it was acknowledged, by the monotonic clock, and how long it took."""

    ended: float
    seconds: float

    @property
    def began(self) -> float:
        """When it was written."""
        return self.ended - self.seconds

    def at(self) -> str:
        """When it was written, as logs say it."""
        wall = time.time() - time.monotonic() + self.began
        return time.strftime("%H:%M:%S", time.gmtime(wall)) + f".{int(wall * 1000) % 1000:03}Z"


class Name:
    """One address for several controllers, as a load balancer has: a connection goes to the first that accepts it."""

    def __init__(self, addresses: list[str]) -> None:
        self._targets = [(host, int(port)) for host, _, port in (one.rpartition(":") for one in addresses)]
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def _forward(self, client: socket.socket) -> None:
        with client:
            for target in self._targets:
                try:
                    server = socket.create_connection(target, 5)
                except OSError:
                    continue
                with server, suppress(OSError):
                    server.settimeout(None)
                    _pass_bytes(client, server)
                return

    def close(self) -> None:
        """Accept no more."""
        self._listener.close()


def _pass_bytes(one: socket.socket, other: socket.socket) -> None:
    while True:
        for ready in select.select([one, other], [], [])[0]:
            data = ready.recv(65536)
            if not data:
                return
            (other if ready is one else one).sendall(data)


class LoadedClient:
    """A process that writes; what it said so far."""

    def __init__(self, name: str, stream: str, command: list[str], directory: Path) -> None:
        self.name, self.stream = name, stream
        self.errors: list[str] = []
        self.acknowledged = self.calls = 0
        self.longest_call_ms = 0.0
        self.longest = Stall(0.0, 0.0)
        self.stalls: list[Stall] = []
        self.ended = False
        self._ready = threading.Event()
        self._log = (directory / f"{stream}.log").open("w")
        self._process = subprocess.Popen(
            [*command, SCOPE, stream],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=directory if command[0] == "java" else None,  # a configuration in its packages has it write logs
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, rest = line.strip().partition(" ")
            if word == "ready":
                self._ready.set()
            elif word == "ack":
                count, took = rest.split()
                self.acknowledged = int(count)
                write = Stall(time.monotonic(), float(took) / 1000)
                if write.seconds > self.longest.seconds:
                    self.longest = write
                if write.seconds > STALL_SECONDS:
                    self.stalls.append(write)
            elif word == "call":
                self.calls += 1
                self.longest_call_ms = max(self.longest_call_ms, float(rest))
            elif word == "error":
                self.errors.append(rest)
            elif word == "end":
                self.ended = True

    def wait_ready(self) -> LoadedClient:
        """Until it writes."""
        end = time.monotonic() + HANG_SECONDS
        while not self._ready.wait(0.1):
            said = Path(self._log.name).read_text()[-2000:]
            assert self._process.poll() is None, f"{self.name} ended: {self.errors}\n{said}"
            assert time.monotonic() < end, f"{self.name} does not begin:\n{said}"
        return self

    def stop(self) -> None:
        """Have it flush and end."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        try:
            self._process.wait(HANG_SECONDS)
        except subprocess.TimeoutExpired:
            self.errors.append("it did not end")
        self._listener.join(10)
        if not self.ended:
            self.errors.append(f"it ended with code {self._process.returncode}, and not by itself")

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()
        self._log.close()


def check(client: LoadedClient, controllers: str) -> str:
    """What is wrong with its stream; "" when exactly what was acknowledged is there, in order."""
    by_key: dict[str, list[int]] = {}
    with sarit.connect(controllers) as reader:
        for event in reader.reader(f"{SCOPE}/{client.stream}", end="tail"):
            key, _, number = event.decode().partition(":")
            by_key.setdefault(key, []).append(int(number))
    turns = client.acknowledged // KEYS
    for key in map(str, range(KEYS)):
        found = by_key.get(key, [])
        if found != list(range(turns)):
            return f"key {key} has {len(found)} events, {len(set(found))} different ones, of {turns}"
    return ""


def build_rust() -> str:
    """The program on Pravega's crate, built by cargo into `.cache/rust`: ten minutes of two cores the first time."""
    if shutil.which("cargo") is None:
        raise PeerMissing("there is no cargo")
    target = CACHE.parent / "rust"
    done = subprocess.run(
        ["cargo", "build", "--quiet", "--release", "--locked", "--target-dir", str(target)],
        cwd=RUST_PEER, capture_output=True, text=True, timeout=CARGO_SECONDS, check=False,
    )  # fmt: skip
    if done.returncode:
        raise PeerMissing(f"the program on Pravega's crate does not compile: {done.stderr[-1000:]}")
    return str(target / "release" / "rolling-peer")


def commands(
    cluster: RunningCluster, name: Name, directory: Path, kinds: Sequence[str], earlier: str | None = None
) -> dict[str, list[str]]:
    """How each client is started.  `earlier`: a Python with an earlier version of Sarit.  Raises PeerMissing."""
    python = [sys.executable, "-m", "tests.cluster.peers"]
    found: dict[str, list[str]] = {}
    if "sarit" in kinds:
        found["Sarit, both controllers"] = [*python, "sarit", cluster.controller]
        if earlier is not None:
            found["Sarit, earlier version"] = [earlier, str(PYTHON_PEER), "sarit", cluster.controller]
    if "python" in kinds:
        found["Python, one name"] = [*python, "official", name.address]
        found["Python, one controller"] = [*python, "official", cluster.controllers[1].address]
    if "java" in kinds:
        java = ["java", "-Xmx256m", "-cp", compiled(directory, JAVA_PEER), "RollingPeer"]
        found["Java, both controllers"] = [*java, cluster.controller]
    if "rust" in kinds:
        found["Rust, one name"] = [build_rust(), name.address]
    return found


def available(kinds: Sequence[str], directory: Path, say: Callable[[str], None]) -> list[str]:
    """Those of them that can be started here; it is said why others cannot."""
    found = []
    for kind in kinds:
        try:
            if kind == "java":
                compiled(directory, JAVA_PEER)
            elif kind == "rust":
                build_rust()
            found.append(kind)
        except PeerMissing as error:
            say(f"without {kind}: {error}")
    return found


@contextmanager
def loaded_clients(
    cluster: RunningCluster, directory: Path, kinds: Sequence[str], *, earlier: str | None = None
) -> Iterator[list[LoadedClient]]:
    """Clients of these kinds, all of which write; `earlier`: see `commands`.  Raises PeerMissing."""
    with ExitStack() as stack:
        name = Name([controller.address for controller in cluster.controllers])
        stack.callback(name.close)
        clients = []
        for number, (who, command) in enumerate(commands(cluster, name, directory, kinds, earlier).items()):
            clients.append(LoadedClient(who, f"stream-{number}", command, directory))
            stack.callback(clients[-1].kill)
        for client in clients:
            client.wait_ready()
        yield clients


def finish(clients: Sequence[LoadedClient], controllers: str) -> None:
    """End all of them; what is wrong with what they wrote is one of their errors."""
    for client in clients:
        client.stop()
    for client in clients:
        if wrong := check(client, controllers):
            client.errors.append(wrong)


def after(moment: float, events: Sequence[tuple[float, str]]) -> str:
    """What was done last before a moment."""
    before = [f"{moment - at:.1f} s after {what}" for at, what in events if at <= moment]
    return before[-1] if before else "before all of that"


def table(clients: Sequence[LoadedClient], events: Sequence[tuple[float, str]]) -> str:
    """The result.  `events`: what was done to the cluster, and when."""
    lines = [
        "client                    events  errors  longest write  controller calls  longest call  longest write began"
    ]
    lines += [
        f"{client.name:<24} {client.acknowledged:>7,} {len(client.errors):>7}  {client.longest.seconds:>11.2f} s  "
        f"{client.calls:>16,}  {client.longest_call_ms / 1000:>10.2f} s  {after(client.longest.began, events)}"
        for client in clients
    ]
    lines += [
        f"{client.name}: a write took {stall.seconds:.2f} s from {stall.at()}, {after(stall.began, events)}"
        for client in clients
        for stall in sorted(
            sorted(client.stalls, key=lambda stall: -stall.seconds)[:NAMED_STALLS], key=lambda stall: stall.ended
        )
    ]
    return "\n".join(lines)
