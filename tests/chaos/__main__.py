"""`python -m tests.chaos --faults N --seed S`: rounds of faults on real nodes, until N faults were injected.

`--ledger` appends a line to benchmarks/results/reliability.jsonl.  A failed round prints its seed; the same
seed draws the same faults, but a real machine is not deterministic: repeat it a few times.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from simulation.ledger import write_line
from tests.chaos.faults import FAULTS
from tests.chaos.node import can_mount
from tests.chaos.run import Plan, Round, run_round

_FAULTS_PER_ROUND: Final = 20


def rounds(given: argparse.Namespace, first: int) -> list[Round]:
    """Run all rounds; every other one on a small disk, where the machine allows one."""
    done: list[Round] = []
    left, started = given.faults, time.monotonic()
    while left > 0 and time.monotonic() - started < given.minutes * 60:
        seed = first + len(done)
        small = can_mount() and (len(done) % 2 == 0 or list(given.fault) == ["full_disk"])
        # The official client waits up to 10 s after each fault: every other pair of rounds does without it.
        plan = Plan(
            seed,
            min(left, _FAULTS_PER_ROUND),
            tuple(given.fault),
            official=len(done) % 4 < 2,
            small_disk=small,
            short=given.short,
            verbose=True,
        )
        with tempfile.TemporaryDirectory(prefix="sarit-chaos-", dir=given.directory) as directory:
            result = asyncio.run(run_round(Path(directory), plan))
        print(result.line(), flush=True)
        for violation in result.violations[:10]:
            print(f"  {violation}", flush=True)
        if result.violations:
            print(result.last_words, flush=True)
        done.append(result)
        left -= max(1, result.struck.total())
    return done


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--seed", type=int, help="of the first round; drawn when not given")
    parser.add_argument("--fault", action="append", default=[], choices=sorted(FAULTS), help="only these")
    parser.add_argument("--minutes", type=float, default=55.0, help="begin no round after that")
    parser.add_argument("--short", action="store_true", help="no fault of more than a few seconds")
    parser.add_argument("--directory", help="where data directories are made")
    parser.add_argument("--ledger", action="store_true", help="append a line to the ledger")
    given = parser.parse_args()
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it counts every write to a connection that was reset
    started = time.time()
    first = int.from_bytes(os.urandom(3), "big") if given.seed is None else given.seed
    print(f"chaos: {given.faults} faults, seeds from {first} (the same again: --seed {first})", flush=True)
    done = rounds(given, first)
    struck: Counter[str] = sum((one.struck for one in done), Counter())
    broken = {str(one.plan.seed): str(one.violations[0]) for one in done if one.violations}
    print(f"{len(done)} rounds, {struck.total()} faults, {len(broken)} rounds broken", flush=True)
    if given.ledger:
        fields = {
            "first_seed": first,
            "rounds": len(done),
            "real_faults": struck.total(),
            "faults": dict(sorted(struck.items())),
            "node_starts": sum(one.starts for one in done),
            "scales": sum(one.scales for one in done),
            "readers_killed": sum(one.reader_kills for one in done),
            "acked_events": sum(one.acked_events for one in done),
            "violations": broken,
        }
        write_line("chaos", started, fields)
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
