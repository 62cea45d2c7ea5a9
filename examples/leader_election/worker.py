"""One of several workers leads, the others wait to take over; late writes of a former leader are refused.

    python examples/leader_election/worker.py --name worker-1 jobs/leader jobs/ledger

Start it several times.  The leader writes numbers 1, 2, 3 ... to a ledger.  Kill it, and the next leader continues
there.

* The election decides who leads.  It gives the leader a token that rises with every change of leader.
* A worker may be suspended at any moment, for any time, and resume when another one leads.  So the *ledger* checks the
  token: it refuses an entry whose token is lower than the highest it has seen.  Here the ledger is a shared state.
  With a database, the token would be a column that the same transaction compares.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from typing import Any, Final

import sarit

PAUSE_SECONDS: Final = 0.02


def empty(data: bytes) -> dict[str, Any]:
    """The ledger as it begins, or as it was compacted."""
    return dict(json.loads(data))


def book(ledger: dict[str, Any], update: bytes, _: sarit.Revision) -> dict[str, Any]:
    """The ledger after an entry: one of an outdated token changes nothing but the count of refusals."""
    entry = json.loads(update)
    if entry["token"] < ledger["token"]:
        return {**ledger, "refused": ledger["refused"] + 1}
    return {**ledger, "token": entry["token"], "newest": ledger["newest"] + 1, "by": entry["by"]}


def open_ledger(client: sarit.Client, stream: str) -> sarit.StateSynchronizer[dict[str, Any]]:
    """The shared ledger."""
    ledger = client.coordination.synchronizer(
        stream, empty, book, snapshot=lambda state: json.dumps(state).encode(), compact_after_bytes=20_000
    )
    ledger.initialize(json.dumps({"token": 0, "newest": 0, "by": "", "refused": 0}).encode())
    return ledger


def work(client: sarit.Client, name: str, election_stream: str, ledger_stream: str, lease_seconds: float) -> None:
    """Wait for the lead, work while it lasts, and so on."""
    ledger = open_ledger(client, ledger_stream)
    with client.coordination.leader_election(election_stream, name, lease_seconds=lease_seconds) as election:
        while True:
            token = election.lead()
            print(f"{name} leads with token {token}", flush=True)
            entry = json.dumps({"token": token, "by": name}).encode()
            while election.token == token:
                ledger.update(lambda _, entry=entry: [entry])  # a check here could be outdated: the ledger checks
                time.sleep(PAUSE_SECONDS)
            print(f"{name} lost the lead", flush=True)


def main() -> None:
    """Work until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--controller", help="HOST:PORT; without it SARIT_CONTROLLER, or the context in use")
    parser.add_argument("--name", required=True)
    parser.add_argument("--lease", type=float, default=10.0, help="seconds after which a dead leader is replaced")
    parser.add_argument("election")
    parser.add_argument("ledger")
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt), sarit.connect(options.controller, wait=60) as client:
        work(client, options.name, options.election, options.ledger, options.lease)


if __name__ == "__main__":
    main()
