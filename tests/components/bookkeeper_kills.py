"""`make bookkeeper-kills`: a node on BookKeeper under load, while what it stands on is killed, one after the other.

Each turn strikes once with each fault: bookies 1, 2 and 3 are killed; one is stopped and goes on; ZooKeeper is killed;
the node is killed, alone and while a bookie is away; two bookies are killed at once.  Writers must get acknowledgements
*while* a bookie or ZooKeeper is away, and again after every fault.  Everything is judged as in `tests/chaos`: nothing
lost, doubled or out of order; transactions, tables, groups and synchronizers hold.  Ledgers are small, so that they
roll over all the time.  In the end every ledger that exists is one that a chain names.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from checkers.log import Violation
from sarit.log.bookkeeper import chain as chains
from sarit.log.bookkeeper import metadata as ledger_metadata
from simulation.ledger import write_line
from tests.chaos.node import ChaosNode
from tests.chaos.run import LIVENESS_SECONDS, Plan, Round, run_on
from tests.components.bookkeeper import BookKeeperCluster
from tests.components.zookeeper import ZooKeeperServer

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Awaitable, Callable

    from tests.chaos.workload import Workload
    from tests.components.bookkeeper import BookieServer

NODE: Final = (sys.executable, "-m", "tests.components.node_with_small_ledgers")
LEAK_SECONDS: Final = 60.0


class Site:
    """What is struck, and the workload that must go on."""

    def __init__(self, cluster: BookKeeperCluster, node: ChaosNode, workload: Workload, rng: random.Random) -> None:
        self.cluster = cluster
        self.node = node
        self.rng = rng
        self._workload = workload

    async def progress(self, while_: str) -> None:
        """All writers get something acknowledged."""
        await self._workload.progress(LIVENESS_SECONDS, while_)

    async def wait(self, least: float, most: float) -> None:
        await asyncio.sleep(self.rng.uniform(least, most))

    async def back(self, *bookies: BookieServer) -> None:
        """Start bookies; they serve when this returns."""
        for bookie in bookies:
            bookie.start()
        for bookie in bookies:
            await asyncio.to_thread(bookie.wait)


def kill_bookie(which: int) -> Callable[[Site], Awaitable[None]]:
    """kill -9 of one; it comes back after writers went on without it."""

    async def strike(site: Site) -> None:
        bookie = site.cluster.bookies[which]
        bookie.kill()
        await site.progress(f"bookie {which + 1} is away")
        await site.wait(0, 2)
        await site.back(bookie)

    return strike


async def stop_bookie(site: Site) -> None:
    """SIGSTOP of one, for less than a request's time-out or for more."""
    bookie = site.rng.choice(site.cluster.bookies)
    bookie.pause()
    try:
        await site.progress("a bookie is stopped")
        await site.wait(0.5, site.rng.choice((3.0, 12.0)))
    finally:
        bookie.resume()


async def kill_zookeeper(site: Site) -> None:
    """kill -9, and back: writes do not need it, but roll-overs wait."""
    zookeeper = site.cluster.zookeeper
    zookeeper.kill()
    await site.wait(0.2, 4)
    await asyncio.to_thread(zookeeper.start)
    # A node does not start while fewer than two are.
    await asyncio.to_thread(site.cluster.wait_registered)


async def kill_node(site: Site) -> None:
    """kill -9, and back."""
    await site.node.crash()
    await site.wait(0, 0.5)
    await site.node.begin()


async def kill_node_and_bookie(site: Site) -> None:
    """The node recovers its ledgers while a bookie that has entries of them is away."""
    bookie = site.rng.choice(site.cluster.bookies)
    bookie.kill()
    await kill_node(site)
    await site.progress("the node started without a bookie")
    await site.back(bookie)


async def kill_two_bookies(site: Site) -> None:
    """Nothing is acknowledged meanwhile."""
    two = site.rng.sample(site.cluster.bookies, 2)
    for bookie in two:
        bookie.kill()
    await site.wait(0.2, 3)
    await site.back(*two)


FAULTS: Final[dict[str, Callable[[Site], Awaitable[None]]]] = {
    "bookie 1": kill_bookie(0),
    "bookie 2": kill_bookie(1),
    "bookie 3": kill_bookie(2),
    "bookie stopped": stop_bookie,
    "zookeeper": kill_zookeeper,
    "node": kill_node,
    "node and bookie": kill_node_and_bookie,
    "two bookies": kill_two_bookies,
}


async def run(directory: Path, cluster: BookKeeperCluster, plan: Plan) -> Round:
    """A node of its own on the cluster."""
    result, begun = Round(plan), time.monotonic()
    options = ("--log", f"bookkeeper://{cluster.zookeeper.hosts}/ledgers")
    node = ChaosNode(directory / "data", options=options, sarit=NODE)

    async def strike(workload: Workload) -> None:
        site = Site(cluster, node, workload, random.Random(plan.seed))
        names = list(plan.classes) or list(FAULTS)
        for number in range(plan.faults):
            name = names[number % len(names)]
            began = time.monotonic()
            await FAULTS[name](site)
            healed = time.monotonic()
            result.struck[name] += 1
            await site.progress(f"fault {number + 1}, {name}")
            seconds = time.monotonic() - healed
            print(f"  {name}: {healed - began:.1f} s, all write again after {seconds:.1f} s", flush=True)

    await run_on(node, result, strike)
    result.violations += await asyncio.to_thread(leaked, cluster)
    result.seconds = time.monotonic() - begun
    return result


def leaked(cluster: BookKeeperCluster) -> list[Violation]:
    """Ledgers that no chain names.  The node has ended."""
    client = KazooClient(cluster.zookeeper.hosts)
    client.start()
    try:
        named, there = named_ledgers(client), existing_ledgers(client)
        print(f"  {len(there)} ledgers exist, {len(named)} are in chains", flush=True)
        return [Violation("leak", f"ledger {ledger} is in no chain: {there[ledger]}") for ledger in set(there) - named]
    finally:
        client.stop()
        client.close()


def named_ledgers(client: KazooClient) -> set[int]:
    """The ledgers of all chains, with those that are to be deleted."""
    named: set[int] = set()
    for node in client.get_children("/sarit"):
        with suppress(NoNodeError):
            for container in client.get_children(f"/sarit/{node}/log"):
                value, _ = client.get(f"/sarit/{node}/log/{container}")
                chain = chains.decode(value[1:])
                named |= {each.ledger for each in chain.ledgers} | {ledger for ledger, _ in chain.retired}
    return named


def existing_ledgers(client: KazooClient, path: str = "/ledgers", digits: str = "") -> dict[int, str]:
    """The metadata that there is below the path of ledgers."""
    found: dict[int, str] = {}
    for name in client.get_children(path):
        part = name.removeprefix("L")
        if not part.isdigit():
            continue
        if len(digits + part) == len(f"{0:019d}"):
            value, _ = client.get(f"{path}/{name}")
            custom = ledger_metadata.decode(value, name).custom
            found[int(digits + part)] = json.dumps({key: text.decode() for key, text in custom.items()})
        else:
            found |= existing_ledgers(client, f"{path}/{name}", digits + part)
    return found


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.components.bookkeeper_kills", description=__doc__)
    parser.add_argument("--faults", type=int, default=40)
    parser.add_argument("--seed", type=int, help="drawn when not given")
    parser.add_argument("--fault", action="append", default=[], choices=list(FAULTS), help="only these")
    parser.add_argument("--bookies", type=int, default=3)
    parser.add_argument("--directory", help="where data directories are made")
    parser.add_argument("--no-official", action="store_true", help="without the writer of the official client")
    parser.add_argument("--ledger", action="store_true", help="append a line to the ledger")
    given = parser.parse_args()
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it counts every write to a connection that was reset
    started = time.time()
    seed = int.from_bytes(os.urandom(3), "big") if given.seed is None else given.seed
    print(f"{given.faults} faults on {given.bookies} bookies, seed {seed}", flush=True)
    plan = Plan(seed, given.faults, tuple(given.fault), official=not given.no_official, verbose=True)
    with tempfile.TemporaryDirectory(prefix="sarit-kills-", dir=given.directory) as name:
        zookeeper = ZooKeeperServer(Path(name) / "zookeeper").start()
        cluster = BookKeeperCluster(Path(name), zookeeper, given.bookies)
        try:
            cluster.start()
            result = asyncio.run(run(Path(name), cluster, plan))
        finally:
            cluster.kill()
            zookeeper.kill()
    print(result.line(), flush=True)
    for violation in result.violations[:10]:
        print(f"  {violation}", flush=True)
    if result.violations:
        print(result.last_words, flush=True)
    if given.ledger:
        struck: Counter[str] = result.struck
        fields = {
            "first_seed": seed,
            "rounds": 1,
            "real_faults": struck.total(),
            "faults": dict(sorted(struck.items())),
            "node_starts": result.starts,
            "acked_events": result.acked_events,
            "violations": {str(seed): str(result.violations[0])} if result.violations else {},
        }
        write_line("bookkeeper-kills", started, fields)
    return bool(result.violations)


if __name__ == "__main__":
    sys.exit(main())
