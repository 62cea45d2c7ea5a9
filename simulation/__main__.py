"""The simulation's commands.

python -m simulation --seed N [--mutant NAME] [--trace FILE]   one seed; on failure a full report
python -m simulation seeds --seeds N [--first N] [--stores N]  many seeds; with several stores on one set of logs
                           [--minutes M] [--ledger]            for M minutes at most; a line in the ledger
python -m simulation crashes --states N [--first N]            recover every state that a power cut can leave
python -m simulation damage --seeds N [--first N]              damage chunks, and read everything
python -m simulation prove --seeds N --states N                both with fresh seeds, and a line in the ledger
python -m simulation mutants [--mutant NAME] [--processes N]   run mutants, and write the table of docs/testing.md
python -m simulation options --seed N                          the options that a seed draws
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time
from contextlib import nullcontext
from math import inf
from typing import TYPE_CHECKING, Any, Final

from simulation.batch import Totals, explain, forget_modules, summaries, summarize_pinned, summarize_proof
from simulation.crashes.run import crash_everywhere
from simulation.damage import damaged_storage
from simulation.ledger import code_now, write_line
from simulation.mutants import MUTANTS
from simulation.options import options_of
from simulation.pinned_seeds import PINNED
from simulation.required_probes import missed_probes
from simulation.run import run_seed
from simulation.stopping import stop_requests
from simulation.table import write_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from simulation.batch import Summary
    from simulation.options import Options
    from simulation.stopping import StopRequest

_FRESH_BYTES: Final = 4
_CRASH_SEEDS: Final = 1_000_000


def one(mutants: Sequence[str], quiet: bool, path: str | None, options: Options) -> int:
    """Run one seed and print its result."""
    started, seed = time.perf_counter(), options.seed
    with open(path, "w") if path else nullcontext() as sink:
        result = run_seed(seed, mutants, options, sink=sink)
    if result.violations and not quiet:
        print(explain(result, mutants))
    probes = ", ".join(f"{name} {count}" for name, count in sorted(result.trace.probes.items()))
    print(
        f"seed {seed}: {len(result.violations)} violations, {result.acked_events} events acknowledged, "
        f"{result.starts} starts, {result.outcome.virtual_seconds:.1f} virtual s, {result.outcome.steps} steps, "
        f"{time.perf_counter() - started:.1f} s; {probes}"
    )
    if not quiet:
        print(f"digest {result.digest}")
    return bool(result.violations)


def report(
    coming: Iterable[Summary], stop: bool = False, until: float = inf, request: StopRequest | None = None
) -> Totals:
    """Sum up results until a monotonic time or a request; print the first failed seed in full, others in a line."""
    totals, started, reported = Totals(), time.monotonic(), 0
    for summary in coming:
        if summary.violations:
            print(f"seed {summary.seed}: {summary.violations[0][:300]}", flush=True)
            if not totals.broken:
                print(summary.explanation, flush=True)
        totals.add(summary)
        minutes = int(time.monotonic() - started) // 60
        if minutes > reported:
            reported = minutes
            print(f"  {minutes} min: {totals.seeds} seeds, {len(totals.broken)} failed", flush=True)
        if (summary.violations and stop) or time.monotonic() >= until or (request is not None and request.asked):
            break
    print(f"{totals.seeds} seeds, {len(totals.broken)} failed {sorted(totals.broken)}; {totals.line()}", flush=True)
    return totals


def crashes(states: int, first: int) -> None:
    """Recover at least `states` crash states."""
    started = time.perf_counter()
    found = crash_everywhere(states, first)
    print(f"crash states, seeds from {first}: {found}; {time.perf_counter() - started:.0f} s", flush=True)


def damages(seeds: int, first: int) -> int:
    """Run seeds with damaged long-term storage."""
    broken = chunks = refused = read = 0
    logging.disable(logging.ERROR)  # the node reports each damaged chunk
    for seed in range(first, first + seeds):
        try:
            damage = damaged_storage(seed)
        except AssertionError as error:
            broken += 1
            print(f"damaged_storage({seed}): {error}", flush=True)
            continue
        chunks, refused, read = chunks + len(damage.chunks), refused + damage.refused, read + damage.read_bytes
    print(f"{seeds} seeds, {broken} failed; {chunks} damaged chunks, {refused} reads refused, {read} bytes read right")
    return bool(broken)


def many(given: argparse.Namespace) -> int:
    """Run many seeds, until a signal at most, and append a line to the ledger when that was asked for."""
    first, started = given.first or 1, time.time()
    fields = {**code_now(), "first_seed": first, "stores": given.stores, "bookkeeper": given.bookkeeper}
    until = time.monotonic() + given.minutes * 60
    seeds = range(first, first + given.seeds)
    forget_modules()
    with stop_requests() as request:
        coming = summaries(seeds, given.mutant, given.processes, given.stores, given.bookkeeper)
        totals = report(coming, given.stop, until, request)
        if given.ledger:
            if totals.seeds < given.seeds:
                fields["wanted_seeds"] = given.seeds
            write_line("several stores" if given.stores else "one node", started, fields | totals.line())
    return bool(totals.broken)


def prove(seeds: int, first: int, states: int, processes: int, minutes: float) -> int:
    """Crash states and seeds (as many as fit into `minutes`), and a line in the ledger."""
    started = time.time()
    until = time.monotonic() + minutes * 60
    print(f"fresh seeds: {first} to {first + seeds - 1} (to repeat: --first {first})", flush=True)
    fields: dict[str, Any] = {"first_seed": first}
    with multiprocessing.get_context("spawn").Pool(processes, forget_modules) as pool:
        broken, wrong = False, {}
        try:
            crashed = crash_everywhere(states, first % _CRASH_SEEDS, pool.imap_unordered)
            fields["crash_states"] = crashed.count
            print(f"crash states: {crashed}", flush=True)
        except AssertionError as error:
            broken = True
            fields["crash_states"] = 0
            wrong = {"crash states": str(error)}
            print(f"crash states: {error}", flush=True)
        pinned = report(pool.imap_unordered(summarize_pinned, PINNED), until=until)
        totals = report(pool.imap_unordered(summarize_proof, range(first, first + seeds)), until=until)
        fields |= totals.line()
        fields["violations"] |= pinned.line()["violations"] | wrong
        broken |= bool(totals.broken or pinned.broken)
        if missed := missed_probes(totals.seeds, totals.probes):
            broken = True
            print(f"never reached: {', '.join(missed)}", flush=True)
    write_line("prove", started, fields)
    return broken


def fresh() -> int:
    """A random first seed."""
    return int.from_bytes(os.urandom(_FRESH_BYTES), "big")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m simulation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = ("run", "seeds", "crashes", "damage", "prove", "mutants", "options")
    parser.add_argument("command", nargs="?", choices=commands, default="run")
    parser.add_argument("--seed", type=int, default=1, help="the seed of run and options")
    parser.add_argument("--seeds", type=int, default=50, help="how many seeds to run")
    parser.add_argument("--states", type=int, default=20_000, help="how many crash states to recover, at least")
    parser.add_argument("--first", type=int, help="the first seed; prove draws it")
    parser.add_argument("--processes", type=int, default=1, help="how many processes run seeds in parallel")
    parser.add_argument("--minutes", type=float, default=inf, help="the longest time that seeds and prove run seeds")
    parser.add_argument(
        "--mutant", action="append", default=[], choices=sorted(MUTANTS), metavar="NAME",
        help="apply a mutant of docs/testing.md; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--stores", type=int, default=0, choices=range(-1, 6),
        help="how many stores run and options have; 0: one node; -1: as many as the seed draws",
    )  # fmt: skip
    parser.add_argument("--bookkeeper", action="store_true", help="several stores have their log on BookKeeper")
    parser.add_argument("--quiet", action="store_true", help="one line, no trace")
    parser.add_argument("--stop", action="store_true", help="stop at the first failed seed")
    parser.add_argument("--ledger", action="store_true", help="seeds appends a line to the ledger, also when stopped")
    parser.add_argument("--trace", help="write all lines of the trace to this file, for diff")
    given = parser.parse_args()
    if given.command == "options":
        print("\n".join(options_of(given.seed, given.stores, on_bookies=given.bookkeeper).lines()))
        return 0
    if given.command == "damage":
        return damages(given.seeds, given.first or 1)
    if given.command == "seeds":
        if given.ledger and given.mutant:
            parser.error("the ledger has no runs of mutants")
        return many(given)
    if given.command == "crashes":
        crashes(given.states, given.first or 1)
        return 0
    if given.command == "prove":
        first = fresh() if given.first is None else given.first
        return prove(given.seeds, first, given.states, given.processes, given.minutes)
    if given.command == "mutants":
        missed = write_table(given.mutant or MUTANTS, processes=given.processes)
        print(f"not caught: {missed}" if missed else "all caught")
        return bool(missed)
    options = options_of(given.seed, given.stores, on_bookies=given.bookkeeper)
    return one(given.mutant, given.quiet, given.trace, options)


if __name__ == "__main__":
    sys.exit(main())
