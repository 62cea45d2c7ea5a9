"""`python -m simulation --seed N`: one seed.  `python -m simulation prove --seeds N [--first N]`: many."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from contextlib import nullcontext

from simulation.mutants import MUTANTS
from simulation.options import draw
from simulation.run import Result, run_seed


def report(result: Result, mutants: list[str]) -> None:
    """Seed, options, what broke first, the last lines, and how to see it again."""
    seed = result.options.seed
    print(f"seed {seed}: {len(result.violations)} broken")
    for line in result.options.lines():
        print(f"    {line}")
    for line in result.trace.last:
        print(line)
    for violation in result.violations[:10]:
        print(f"  {violation}")
    planted = "".join(f" --mutant {name}" for name in mutants)
    print(f"replay: python -m simulation --seed {seed}{planted}")


def one(seed: int, mutants: list[str], quiet: bool, path: str | None) -> int:
    """Run one seed and tell."""
    started = time.perf_counter()
    with open(path, "w") if path else nullcontext() as sink:
        result = run_seed(seed, mutants, sink=sink)
    if result.violations and not quiet:
        report(result, mutants)
    marks = ", ".join(f"{name} {count}" for name, count in sorted(result.trace.marks.items()))
    print(
        f"seed {seed}: {len(result.violations)} broken, {result.acked_events} events acknowledged, "
        f"{result.starts} starts, {result.outcome.virtual_seconds:.1f} virtual s, {result.outcome.steps} steps, "
        f"{time.perf_counter() - started:.1f} s; {marks}"
    )
    if not quiet:
        print(f"digest {result.digest}")
    return bool(result.violations)


def prove(seeds: int, first: int, mutants: list[str], stop: bool) -> int:
    """Run many seeds; the first broken one is reported in full."""
    broken: list[int] = []
    kinds: Counter[str] = Counter()
    for seed in range(first, first + seeds):
        result = run_seed(seed, mutants)
        if result.violations:
            if not broken:
                report(result, mutants)
            broken.append(seed)
            kinds[result.violations[0].partition(":")[0]] += 1
            print(f"seed {seed}: {result.violations[0][:300]}", flush=True)
            if stop:
                break
    print(f"{seeds} seeds, {len(broken)} broken: {broken[:50]} {dict(kinds)}")
    return bool(broken)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument("command", nargs="?", choices=("run", "prove", "options"), default="run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--mutant", action="append", default=[], choices=sorted(MUTANTS))
    parser.add_argument("--quiet", action="store_true", help="one line, no trace")
    parser.add_argument("--stop", action="store_true", help="stop at the first broken seed")
    parser.add_argument("--trace", help="write all lines of the trace to this file, for diff")
    arguments = parser.parse_args()
    if arguments.command == "options":
        print("\n".join(draw(arguments.seed).lines()))
        return 0
    if arguments.command == "prove":
        return prove(arguments.seeds, arguments.first, arguments.mutant, arguments.stop)
    return one(arguments.seed, arguments.mutant, arguments.quiet, arguments.trace)


sys.exit(main())
