"""The table of mutants in docs/testing.md: mutant, seeds until it was caught, kind of the violation."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from simulation.batch import summarize
from simulation.mutants import MUTANTS

if TYPE_CHECKING:
    from collections.abc import Iterable

_ROOT: Final = Path(__file__).parent.parent
PAGE: Final = _ROOT / "docs" / "testing.md"
MOST_SEEDS: Final = 50
_BEGIN: Final = "<!-- mutants: written by `python -m simulation mutants` -->"
_END: Final = "<!-- end of mutants -->"
_HEAD: Final = ("| mutant | invariant | fault | seeds | caught as |", "|---|---|---|---|---|")
MISSED: Final = "not caught"
_TEST_FAILED: Final = 1  # pytest's exit code; 2 and more are mistakes in calling it
RARE: Final = "rare"


@dataclass(frozen=True, slots=True)
class Catch:
    """The first seed, counted from 1, that fails with a mutant, and the kind of its first violation."""

    seeds: int
    kind: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """The result for one mutant.  `found`: by a seed, or by its test."""

    name: str
    caught: Catch | None
    found: bool


def kind_of(violation: str) -> str:
    """`stream: key-gap: ...` and `lost: ...` without the message; of an exception, its type or the kind in its
    message."""
    first, _, rest = violation.partition(": ")
    if first in ("exception", "AssertionError") and ": " in rest:
        return kind_of(rest)
    return f"{first} {rest.partition(': ')[0]}" if first == "stream" else first


def catch(name: str, most: int = MOST_SEEDS) -> Catch | None:
    """Run seeds from 1 on with a mutant until one fails."""
    for seed in range(1, most + 1):
        violations = summarize(seed, [name], MUTANTS[name].stores, MUTANTS[name].on_bookies).violations
        if violations:
            return Catch(seed, kind_of(violations[0]))
    return None


def fails_its_test(name: str) -> bool:
    """Whether the test named by a mutant fails with it, in a process of its own."""
    return fail_their_tests([name])[name]


def fail_their_tests(names: Iterable[str]) -> dict[str, bool]:
    """Whether each of these mutants fails the test that it names.  All modules are loaded once."""
    pairs = [part for name in names for part in (name, MUTANTS[name].found_by)]
    command = [sys.executable, "-m", "simulation.mutants.run_test", "--children", *pairs]
    # As many drawn cases as a test names: the default suite draws fewer.
    env = {**os.environ, "SARIT_TEST_FULL": "1"}
    printed = subprocess.run(command, cwd=_ROOT, env=env, capture_output=True, check=True, text=True).stdout
    return {name: int(code) == _TEST_FAILED for name, code in map(str.split, printed.splitlines())}


def rows_of(page: str) -> dict[str, str]:
    """The rows of the page, by mutant."""
    inside = page.partition(_BEGIN)[2].partition(_END)[0]
    rows = [line for line in inside.splitlines() if line.startswith("| ") and line not in _HEAD]
    return {line.split("|")[1].strip(): line for line in rows}


def row(name: str, caught: Catch | None) -> str:
    """One line of the table."""
    mutant = MUTANTS[name]
    if mutant.found_by:
        return f"| {name} | {mutant.invariant} | {mutant.fault} | {RARE} | {mutant.found_by} |"
    seeds, kind = (str(caught.seeds), caught.kind) if caught else (MISSED, f"not within {MOST_SEEDS} seeds")
    return f"| {name} | {mutant.invariant} | {mutant.fault} | {seeds} | {kind} |"


def attempt(name: str) -> Attempt:
    """Run seeds with a mutant until one fails, or its test; for a process of its own."""
    if MUTANTS[name].found_by:
        return Attempt(name, None, fails_its_test(name))
    caught = catch(name)
    return Attempt(name, caught, caught is not None)


def write_table(names: Iterable[str], page: Path = PAGE, processes: int = 1) -> list[str]:
    """Try the mutants of these names, write their rows into the page; return the names of those not caught."""
    missed = set()
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for one in pool.imap_unordered(attempt, names):
            line = row(one.name, one.caught)
            print(line, flush=True)
            if not one.found:
                missed.add(one.name)
            put_row(page, one.name, line)
    return [name for name in MUTANTS if name in missed]


def put_row(page: Path, name: str, line: str) -> None:
    """Write one row of the table, in the order of the mutants."""
    text = page.read_text()
    rows = rows_of(text) | {name: line}
    table = "\n".join([*_HEAD, *(rows[known] for known in MUTANTS if known in rows)])
    before, _, rest = text.partition(_BEGIN)
    page.write_text(f"{before}{_BEGIN}\n\n{table}\n\n{_END}{rest.partition(_END)[2]}")
