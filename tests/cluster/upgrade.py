"""`make cluster-upgrade`: every process of a cluster is restarted with another version of Sarit, while clients write.

    python -m tests.cluster.upgrade                     from the version of 100 commits ago to this one, and back
    python -m tests.cluster.upgrade --from COMMIT       from that one

The older version makes the cluster and serves it.  Stores and controllers get SIGTERM, one by one, and are started
again with this version; so for a while both serve together.  Then the way back, which formats of both allow, or
`--no-way-back`.  Clients of both versions write all the time.  At the end each stream has exactly what its client was
acknowledged, in order by key, and no client has seen an error."""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers.maven import PeerMissing
from tests.cluster.loaded_clients import KINDS, available, finish, loaded_clients, table
from tests.cluster.processes import RunningCluster
from tests.cluster.rolling import keep_logs, restart
from tests.cluster.versions import VersionMissing, commits_ago, described, program_of, sha_of
from tests.contract.s3 import s3_server
from tests.nodes import SARIT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.cluster.loaded_clients import LoadedClient
    from tests.cluster.rolling import Events

COMMITS_AGO = 100
# A call of a controller takes a second or two on a busy machine.  One that waits until both ends have one version takes
# half a minute, and raises no error.
CALL_SECONDS = 15.0


def change_version(cluster: RunningCluster, program: str, events: Events, say: Callable[[str], None]) -> None:
    """Restart all of it with another command `sarit`."""
    for process in (*cluster.stores.values(), *cluster.controllers):
        restart(cluster, process.use(program), events, say)
    cluster.program = program


def run(
    cluster: RunningCluster, older: str, directory: Path, say: Callable[[str], None], *,
    kinds: Sequence[str] = ("sarit", "python"), way_back: bool = True,
) -> list[LoadedClient]:  # fmt: skip
    """Both ways under load; the clients with their errors.  `older`: the command that has started the cluster."""
    events: Events = []
    kinds = available(kinds, directory, say)
    with loaded_clients(cluster, directory, kinds, earlier=str(Path(older).with_name("python"))) as clients:
        say("restarting everything with this version")
        change_version(cluster, SARIT, events, say)
        if way_back:
            say("restarting everything with the older version")
            change_version(cluster, older, events, say)
        finish(clients, cluster.controller)
        for client in clients:
            if client.longest_call_ms / 1000 > CALL_SECONDS:
                client.errors.append(f"a call of a controller took {client.longest_call_ms / 1000:.1f} s")
        say(table(clients, events))
    return clients


def parsed() -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="commit", metavar="COMMIT", help=f"[default: {COMMITS_AGO} commits ago]")
    parser.add_argument("--no-way-back", action="store_true", help="end with this version")
    parser.add_argument("--log", choices=["bookkeeper", "file"], default="bookkeeper")
    parser.add_argument("--clients", nargs="+", choices=KINDS, default=("sarit", "python"), metavar="KIND")
    parser.add_argument("--containers", type=int, default=8)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="have the logs of all processes there")
    return parser.parse_args()


def main() -> None:
    """Run it.  An error of a client is an error."""
    given = parsed()

    def say(text: str) -> None:
        print(text, flush=True)

    try:
        commit = sha_of(given.commit) if given.commit else commits_ago(COMMITS_AGO)
        older = program_of(commit)
    except VersionMissing as error:
        sys.exit(f"no older version here: {error}")
    with tempfile.TemporaryDirectory(prefix="sarit-upgrade-") as place, ExitStack() as stack:
        directory = Path(place)
        shared = given.log == "bookkeeper"
        (directory / "clients").mkdir()
        (directory / "s3").mkdir()
        s3 = stack.enter_context(s3_server(directory / "s3")) if shared else None
        say(f"starting the cluster with {described(commit)}")
        try:
            cluster = RunningCluster(
                directory / "cluster", containers=given.containers, bookies=3 if shared else 0, s3=s3, program=older
            )
            stack.enter_context(cluster)
        except PeerMissing as error:
            sys.exit(f"no cluster here: {error}")
        keep_logs(stack, directory / "cluster", given.keep)
        clients = run(cluster, older, directory / "clients", say, kinds=given.clients, way_back=not given.no_way_back)
        wrong = [f"{client.name}: {error}" for client in clients for error in client.errors]
        wrong += ["a process logged a traceback"] * ("Traceback" in cluster.log())
        say("\n".join(wrong) or "nothing is missing or doubled, and no client saw an error")
        sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
