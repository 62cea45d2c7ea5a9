"""The table of planted bugs in docs/testing.md: bug -> seeds to catch it -> who caught it."""

from __future__ import annotations

import multiprocessing
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
_BEGIN: Final = "<!-- planted bugs: written by `python -m simulation mutants` -->"
_END: Final = "<!-- end of planted bugs -->"
_HEAD: Final = ("| bug | invariant | what is wrong | seeds | caught as |", "|---|---|---|---|---|")
MISSED: Final = "not"
_TEST_FAILED: Final = 1  # pytest's exit code; 2 and more are mistakes in calling it
SELDOM: Final = "seldom"


@dataclass(frozen=True, slots=True)
class Catch:
    """The first seed, counted from 1, that fails with a bug planted, and the kind of its first violation."""

    seeds: int
    kind: str


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of one bug.  `found`: by a seed, or by its test."""

    name: str
    caught: Catch | None
    found: bool


def kind_of(violation: str) -> str:
    """`stream: key-gap: ...` and `lost: ...` without what follows the kind; of an exception, what it says it is."""
    first, _, rest = violation.partition(": ")
    if first in ("exception", "AssertionError") and ": " in rest:
        return kind_of(rest)
    return f"{first} {rest.partition(': ')[0]}" if first == "stream" else first


def catch(name: str, most: int = MOST_SEEDS) -> Catch | None:
    """Run seeds from 1 on with a bug planted until one fails."""
    for seed in range(1, most + 1):
        violations = summarize(seed, [name]).violations
        if violations:
            return Catch(seed, kind_of(violations[0]))
    return None


def fails_its_test(name: str) -> bool:
    """Whether the test that is to find a bug does, in a process of its own."""
    test = MUTANTS[name].found_by
    command = [sys.executable, "-m", "simulation.mutants.run_test", name, test]
    return subprocess.run(command, cwd=_ROOT, capture_output=True, check=False).returncode == _TEST_FAILED


def rows_of(page: str) -> dict[str, str]:
    """The rows there are, by bug."""
    inside = page.partition(_BEGIN)[2].partition(_END)[0]
    rows = [line for line in inside.splitlines() if line.startswith("| ") and line not in _HEAD]
    return {line.split("|")[1].strip(): line for line in rows}


def row(name: str, caught: Catch | None) -> str:
    """One line of the table."""
    mutant = MUTANTS[name]
    if mutant.found_by:
        return f"| {name} | {mutant.invariant} | {mutant.wrong} | {SELDOM} | {mutant.found_by} |"
    seeds, kind = (str(caught.seeds), caught.kind) if caught else (MISSED, f"not within {MOST_SEEDS} seeds")
    return f"| {name} | {mutant.invariant} | {mutant.wrong} | {seeds} | {kind} |"


def tried(name: str) -> Tried:
    """Plant a bug until it is caught, or its test fails; for a process of its own."""
    if MUTANTS[name].found_by:
        return Tried(name, None, fails_its_test(name))
    caught = catch(name)
    return Tried(name, caught, caught is not None)


def write_table(names: Iterable[str], page: Path = PAGE, processes: int = 1) -> list[str]:
    """Try the bugs of these names, put their rows into the page as they come; the names of those not caught."""
    missed = set()
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for one in pool.imap_unordered(tried, names):
            line = row(one.name, one.caught)
            print(line, flush=True)
            if not one.found:
                missed.add(one.name)
            put_row(page, one.name, line)
    return [name for name in MUTANTS if name in missed]


def put_row(page: Path, name: str, line: str) -> None:
    """Write one row of the table, among the others in the order of the bugs."""
    text = page.read_text()
    rows = rows_of(text) | {name: line}
    table = "\n".join([*_HEAD, *(rows[known] for known in MUTANTS if known in rows)])
    before, _, rest = text.partition(_BEGIN)
    page.write_text(f"{before}{_BEGIN}\n\n{table}\n\n{_END}{rest.partition(_END)[2]}")
