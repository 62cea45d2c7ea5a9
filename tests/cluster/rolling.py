"""`make cluster-rolling`: everything of a cluster is restarted, one by one, while clients write; none sees an error.

ZooKeeper, three bookies, an S3 server, three stores, two controllers.  Stores and controllers get SIGTERM and are
started again; with `--bookies`, bookies are killed and started, too.  The clients: Pravega's for Java, which knows both
controllers; its Python client and, with `--rust PROGRAM`, its Rust client, which know one address: one controller, or a
name behind which a controller is; Sarit's, which knows both.  At the end each stream has exactly what its client was
acknowledged, in order by key."""

from __future__ import annotations

import argparse
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING

import sarit
from benchmarks.peers.maven import PeerMissing
from tests.cluster.processes import RunningCluster
from tests.contract.s3 import s3_server
from tests.interop.java_peer import compiled
from tests.limits import HANG_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.processes import ClusterProcess

    Say = Callable[[str], None]

SCOPE = "rolling"
KEYS = 7
# Between two restarts: the clients go on, and a store that is back gets containers again.
PAUSE_SECONDS = 3.0
_BUT_LOGS = shutil.ignore_patterns("bookie-*", "zookeeper", "log", "index", "chunks")
PEER = Path(__file__).parent / "java" / "RollingPeer.java"


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
        self.longest_ms = self.longest_call_ms = 0.0
        self.longest_until = 0.0
        self.longest_when = ""
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
                if float(took) > self.longest_ms:
                    self.longest_ms, self.longest_until = float(took), time.monotonic()
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


def ready(http: str) -> bool:
    """Whether a process says to a probe that it is ready."""
    connection = HTTPConnection(http, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def roll_by_probes(cluster: RunningCluster, say: Say) -> list[tuple[float, str]]:
    """Restart all, one by one, each when `/readyz` of the one before answers 200; when each was stopped.

    As an orchestrator does: it knows nothing of containers, and does not pause."""
    events: list[tuple[float, str]] = []
    for process in (*cluster.stores.values(), *cluster.controllers):
        assert ready(process.http), process.name
        events.append((began := time.monotonic(), process.name))
        code = process.stop()
        assert code == 0, process.log()[-4000:]
        process.begin()
        while not ready(process.http):
            assert process.running, process.log()[-4000:]
            assert time.monotonic() < began + HANG_SECONDS, process.log()[-4000:]
            time.sleep(0.1)
        say(f"{process.name}: ready again {time.monotonic() - began:.1f} s after SIGTERM")
    return events


def roll(cluster: RunningCluster, say: Say, *, bookies: bool) -> list[tuple[float, str]]:
    """Restart all, one by one; when each was stopped."""

    def whole(status: dict) -> bool:
        serving = all(entry["store"] != "-" and entry["moving to"] == "-" for entry in status["containers"])
        return serving and len(status["stores"]) == len(cluster.stores)

    def restart(process: ClusterProcess) -> None:
        events.append((began := time.monotonic(), process.name))
        code = process.stop()
        took = time.monotonic() - began
        process.begin().wait()
        cluster.until(whole)
        say(f"{process.name}: stopped in {took:.1f} s, all served again {time.monotonic() - began:.1f} s after SIGTERM")
        assert code == 0, process.log()[-4000:]
        time.sleep(PAUSE_SECONDS)

    events: list[tuple[float, str]] = []
    for process in (*cluster.stores.values(), *cluster.controllers):
        restart(process)
    if bookies and cluster.bookkeeper is not None:
        for bookie in cluster.bookkeeper.bookies:
            events.append((time.monotonic(), f"bookie {bookie.name}"))
            bookie.kill()
            bookie.start().wait()
            say(f"bookie {bookie.name}: killed and back")
            time.sleep(PAUSE_SECONDS)
    return events


def commands(
    cluster: RunningCluster, name: Name, directory: Path, rust: str | None, *, java: bool
) -> dict[str, list[str]]:
    """How each client is started."""
    python = [sys.executable, "-m", "tests.cluster.peers"]
    found = {
        "Sarit, both controllers": [*python, "sarit", cluster.controller],
        "Python, one name": [*python, "official", name.address],
        "Python, one controller": [*python, "official", cluster.controllers[1].address],
    }
    try:
        if not java:
            raise PeerMissing("it is not asked for")
        classes = compiled(directory, PEER)
        found["Java, both controllers"] = ["java", "-Xmx256m", "-cp", classes, "RollingPeer", cluster.controller]
    except PeerMissing as error:
        print(f"without Java: {error}", flush=True)
    if rust is not None:
        found["Rust, one name"] = [rust, name.address]
    return found


def run(
    cluster: RunningCluster, directory: Path, say: Say, *, bookies: bool = False, rust: str | None = None,
    probes: bool = False,
) -> list[LoadedClient]:  # fmt: skip
    """Clients, the restarts, and the check of what they wrote; the clients with their errors.

    `probes`: restart as `roll_by_probes` does."""
    with ExitStack() as stack:
        name = Name([controller.address for controller in cluster.controllers])
        stack.callback(name.close)
        clients = []
        # Java's client is in the other test: this one is about the restarts.
        known = commands(cluster, name, directory, rust, java=not probes)
        for number, (who, command) in enumerate(known.items()):
            clients.append(LoadedClient(who, f"stream-{number}", command, directory))
            stack.callback(clients[-1].kill)
        for client in clients:
            client.wait_ready()
        time.sleep(PAUSE_SECONDS)
        stops = roll_by_probes(cluster, say) if probes else roll(cluster, say, bookies=bookies)
        for client in clients:
            client.stop()
            began = client.longest_until - client.longest_ms / 1000
            before = [f"{began - at:.1f} s after {name} was stopped" for at, name in stops if at <= began]
            client.longest_when = before[-1] if before else "before the first was stopped"
        for client in clients:
            if wrong := check(client, cluster.controller):
                client.errors.append(wrong)
    return clients


def table(clients: list[LoadedClient]) -> str:
    """The result."""
    lines = [
        "client                    events  errors  longest write  controller calls  longest call  longest write began"
    ]
    lines += [
        f"{client.name:<24} {client.acknowledged:>7,} {len(client.errors):>7}  {client.longest_ms / 1000:>11.2f} s  "
        f"{client.calls:>16,}  {client.longest_call_ms / 1000:>10.2f} s  {client.longest_when}"
        for client in clients
    ]
    return "\n".join(lines)


def parsed() -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--log", choices=["bookkeeper", "file"], default="bookkeeper", help="file: all in directories, but ZooKeeper"
    )
    parser.add_argument("--bookies", action="store_true", help="kill and start bookies, too")
    parser.add_argument("--rust", metavar="PROGRAM", help="a client of Pravega's crate: PROGRAM ADDRESS SCOPE STREAM")
    parser.add_argument("--containers", type=int, default=8)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="have the logs of all processes there")
    return parser.parse_args()


def main() -> None:
    """Run it.  An error of a client is an error."""
    given = parsed()

    def say(text: str) -> None:
        print(text, flush=True)

    with tempfile.TemporaryDirectory(prefix="sarit-rolling-") as place, ExitStack() as stack:
        directory = Path(place)
        shared = given.log == "bookkeeper"
        (directory / "classes").mkdir()
        if shared:
            (directory / "s3").mkdir()
        s3 = stack.enter_context(s3_server(directory / "s3")) if shared else None
        say("starting the cluster")
        cluster = stack.enter_context(
            RunningCluster(directory / "cluster", containers=given.containers, bookies=3 if shared else 0, s3=s3)
        )
        if given.keep is not None:
            stack.callback(shutil.copytree, directory / "cluster", given.keep, ignore=_BUT_LOGS, dirs_exist_ok=True)
        clients = run(cluster, directory / "classes", say, bookies=given.bookies, rust=given.rust)
        say(table(clients))
        wrong = [f"{client.name}: {error}" for client in clients for error in client.errors]
        wrong += ["a process logged a traceback"] * ("Traceback" in cluster.log())
        say("\n".join(wrong) or "nothing is missing or doubled, and no client saw an error")
        sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
