"""`make cluster-rolling`: everything of a cluster is restarted, one by one, while clients write; none sees an error.

ZooKeeper, three bookies, an S3 server, three stores, two controllers.  Stores and controllers get SIGTERM and are
started again; with `--bookies`, bookies are killed and started, too.  The clients are those of `loaded_clients.py`:
Sarit's and Pravega's for Python and Java, and with `--rust` the one for Rust.  At the end each stream has exactly what
its client was acknowledged, in order by key."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.loaded_clients import KINDS, available, finish, loaded_clients, table
from tests.cluster.processes import RunningCluster
from tests.contract.s3 import s3_server
from tests.limits import HANG_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.cluster.loaded_clients import LoadedClient
    from tests.cluster.processes import ClusterProcess

    Say = Callable[[str], None]
    # What was done to the cluster, by the monotonic clock.
    Events = list[tuple[float, str]]

# Between two restarts: the clients go on, and a store that is back gets containers again.
PAUSE_SECONDS = 3.0
PARTS = ("stores", "controllers", "bookies")
_BUT_LOGS = shutil.ignore_patterns("bookie-*", "zookeeper", "log", "index", "chunks")


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


def roll_by_probes(cluster: RunningCluster, say: Say) -> Events:
    """Restart all, one by one, each when `/readyz` of the one before answers 200.

    As an orchestrator does: it knows nothing of containers, and does not pause."""
    events: Events = []
    for process in (*cluster.stores.values(), *cluster.controllers):
        assert ready(process.http), process.name
        events.append((began := time.monotonic(), f"{process.name} was stopped"))
        code = process.stop()
        assert code == 0, process.log()[-4000:]
        process.begin()
        while not ready(process.http):
            assert process.running, process.log()[-4000:]
            assert time.monotonic() < began + HANG_SECONDS, process.log()[-4000:]
            time.sleep(0.1)
        say(f"{process.name}: ready again {time.monotonic() - began:.1f} s after SIGTERM")
    return events


def whole(cluster: RunningCluster) -> Callable[[dict], bool]:
    """Whether all stores are members, and each container is served by one of them."""

    def holds(status: dict) -> bool:
        serving = all(entry["store"] != "-" and entry["moving to"] == "-" for entry in status["containers"])
        return serving and len(status["stores"]) == len(cluster.stores)

    return holds


def restart(cluster: RunningCluster, process: ClusterProcess, events: Events, say: Say) -> None:
    """Stop it by SIGTERM and start it again."""
    events.append((began := time.monotonic(), f"{process.name} was stopped"))
    code = process.stop()
    took = time.monotonic() - began
    events.append((time.monotonic(), f"{process.name} was started"))
    process.begin().wait()
    cluster.until(whole(cluster))
    say(f"{process.name}: stopped in {took:.1f} s, all served again {time.monotonic() - began:.1f} s after SIGTERM")
    assert code == 0, process.log()[-4000:]
    time.sleep(PAUSE_SECONDS)


def roll(cluster: RunningCluster, say: Say, parts: Sequence[str]) -> Events:
    """Restart these parts of it, one process after the other."""
    events: Events = []
    for process in cluster.stores.values() if "stores" in parts else ():
        restart(cluster, process, events, say)
    for process in cluster.controllers if "controllers" in parts else ():
        restart(cluster, process, events, say)
    if "bookies" in parts and cluster.bookkeeper is not None:
        for bookie in cluster.bookkeeper.bookies:
            events.append((began := time.monotonic(), f"bookie {bookie.name} was killed"))
            bookie.kill()
            bookie.start_until_it_serves()
            events.append((time.monotonic(), f"bookie {bookie.name} was back"))
            say(f"bookie {bookie.name}: killed, and back after {time.monotonic() - began:.1f} s")
            time.sleep(PAUSE_SECONDS)
    return events


def keep_logs(stack: ExitStack, directory: Path, folder: Path | None) -> None:
    """Have the logs of all processes in a folder at the end."""
    if folder is not None:
        stack.callback(shutil.copytree, directory, folder, ignore=_BUT_LOGS, dirs_exist_ok=True)


def run(
    cluster: RunningCluster, directory: Path, say: Say, *, parts: Sequence[str] = PARTS[:2],
    kinds: Sequence[str] = KINDS[:3], probes: bool = False,
) -> list[LoadedClient]:  # fmt: skip
    """Clients, the restarts, and the check of what they wrote; the clients with their errors.

    `parts`: what is restarted.  `kinds`: of clients; one that cannot be started here is left out.
    `probes`: restart as `roll_by_probes` does."""
    with loaded_clients(cluster, directory, available(kinds, directory, say)) as clients:
        time.sleep(PAUSE_SECONDS)
        events = roll_by_probes(cluster, say) if probes else roll(cluster, say, parts)
        finish(clients, cluster.controller)
        say(table(clients, events))
    return clients


def parsed() -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--log", choices=["bookkeeper", "file"], default="bookkeeper", help="file: all in directories, but ZooKeeper"
    )
    parser.add_argument("--bookies", action="store_true", help="kill and start bookies, too")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=f"restart these of {', '.join(PARTS)}")
    parser.add_argument(
        "--clients", nargs="+", choices=KINDS, default=KINDS[:3], metavar="KIND", help=f"these of {', '.join(KINDS)}"
    )
    parser.add_argument(
        "--rust", action="store_true", help="Pravega's client for Rust, too; cargo builds it the first time"
    )
    parser.add_argument("--sockets", action="store_true", help="ports of controllers stay open, as by systemd")
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
            RunningCluster(
                directory / "cluster",
                containers=given.containers,
                bookies=3 if shared else 0,
                s3=s3,
                sockets=given.sockets,
            )
        )
        keep_logs(stack, directory / "cluster", given.keep)
        parts = given.only or (PARTS if given.bookies else PARTS[:2])
        kinds = (*given.clients, "rust") if given.rust and "rust" not in given.clients else given.clients
        clients = run(cluster, directory / "classes", say, parts=parts, kinds=kinds)
        wrong = [f"{client.name}: {error}" for client in clients for error in client.errors]
        wrong += ["a process logged a traceback"] * ("Traceback" in cluster.log())
        say("\n".join(wrong) or "nothing is missing or doubled, and no client saw an error")
        sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
