"""`python -m tests.scale`: the proof over ten million events, or with `--mixed` the load over time.

The proof: `--events N` are written at full speed while the stream scales and writers and readers are killed.  Mixed:
`--minutes N` of scales, transactions, reader churn, tables and synchronizers, checked by the memory and files of the
node.  Trickle: small appends to `--segments N`, a restart, a read of each, checked by memory, extents and index.  Each
run appends a line to benchmarks/results/reliability.jsonl with `--ledger`.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sarit.core.limits import MIB
from simulation.ledger import write_line
from tests.scale import mixed, proof, trickle

if TYPE_CHECKING:
    from collections.abc import Sequence


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=10_000_000, help="acknowledged, for the proof (10 million)")
    parser.add_argument("--writers", type=int, default=2, help="processes (2)")
    parser.add_argument("--readers", type=int, default=2, help="processes, each reads all (2)")
    parser.add_argument(
        "--members", type=int, default=2, help="of a reader group, processes, together they read all (2)"
    )
    parser.add_argument("--kill-seconds", type=float, default=2.0, help="mean time between two kills (2)")
    parser.add_argument("--scale-seconds", type=float, default=0.3, help="mean pause between two scales (0.3)")
    parser.add_argument("--mixed", action="store_true", help="mixed load over time instead of the proof")
    parser.add_argument("--minutes", type=float, default=60.0, help="of mixed load (60)")
    parser.add_argument(
        "--only", action="append", default=[], metavar="ACTOR", help="of the mixed load; again for more"
    )
    parser.add_argument("--samples", type=Path, metavar="FILE", help="where the samples of the mixed load go, as CSV")
    parser.add_argument("--trickle", action="store_true", help="small appends to many segments instead of the proof")
    parser.add_argument("--segments", type=int, default=16_000, help="of the trickle (16,000)")
    parser.add_argument("--rounds", type=int, default=15, help="of the trickle (15)")
    parser.add_argument("--event-bytes", type=int, default=6000, help="of an append of the trickle (6,000)")
    parser.add_argument("--memory", type=int, default=1024, help="MiB, of the node of the trickle (1,024)")
    parser.add_argument("--seed", type=int, help="drawn when not given")
    parser.add_argument("--directory", type=Path, help="where the data directory is made")
    parser.add_argument("--ledger", action="store_true", help="append a line to the ledger")
    return parser.parse_args(arguments)


def _mixed(directory: Path, options: argparse.Namespace, seed: int) -> bool:
    started = time.time()
    result = mixed.run_mixed(directory, mixed.Plan(options.minutes, seed, tuple(options.only)))
    if options.samples:
        _write_samples(options.samples, result)
    print(mixed.summary(result), flush=True)
    if options.ledger:
        fields: dict[str, Any] = {"first_seed": seed, "samples": len(result.seconds)}
        for name, found in result.verdicts().items():
            fields[name] = {"mean": round(found.mean), "rise": round(found.rise), "flat": found.flat}
        fields |= {"killed": result.visitors_killed, **result.report}
        write_line("mixed", started, fields)
    return result.good()


def _trickle(directory: Path, options: argparse.Namespace, seed: int) -> bool:
    started = time.time()
    plan = trickle.Plan(options.segments, options.rounds, options.event_bytes, options.memory * MIB)
    results = trickle.run_trickle(directory, plan)
    print(trickle.summary(plan, results), flush=True)
    wrong = [line for result in results for line in trickle.violations(plan, result)]
    if options.ledger:
        write_line(
            "trickle", started, {"plan": asdict(plan), "lives": [asdict(one) for one in results], "wrong": wrong}
        )
    return not wrong


def _proof(directory: Path, options: argparse.Namespace, seed: int) -> bool:
    started = time.time()
    plan = proof.Plan(
        options.events,
        seed,
        options.writers,
        options.readers,
        options.members,
        options.kill_seconds,
        options.scale_seconds,
    )
    result = proof.run_proof(directory, plan)
    print(proof.summary(result), flush=True)
    if options.ledger:
        fields = {
            "first_seed": seed,
            "acked_events": result.acked,
            "read": result.read,
            "scales": result.scales,
            "segments": result.segments,
            "writers_killed": result.writers_killed,
            "readers_killed": result.readers_killed,
            "writing_seconds": round(result.writing_seconds),
            "violations": {str(seed): str(result.violations[0])} if result.violations else {},
        }
        write_line("scale", started, fields)
    return not result.violations and not result.alarms


def _write_samples(path: Path, result: mixed.Result) -> None:
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["seconds", "node_bytes", "node_files", "node_threads", "client_bytes", "client_files", "disk"])
        for at, node, load, disk in zip(result.seconds, result.node, result.load, result.disk_bytes, strict=True):
            out.writerow([round(at, 1), node.memory_bytes, node.open_files, node.threads,
                          load.memory_bytes, load.open_files, disk])  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    options = _options(arguments)
    seed = int.from_bytes(os.urandom(3), "big") if options.seed is None else options.seed
    print(f"scale: seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="sarit-scale-", dir=options.directory) as directory:
        run = _trickle if options.trickle else _mixed if options.mixed else _proof
        good = run(Path(directory), options, seed)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
