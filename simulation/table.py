"""The table of planted bugs in docs/testing.md: bug -> seeds to catch it -> who caught it."""

from __future__ import annotations

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
    command = [sys.executable, "-m", "simulation.mutants.under", name, test]
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


def write_table(names: Iterable[str], page: Path = PAGE) -> list[str]:
    """Try the bugs of these names, put their rows into the page; the names of those not caught."""
    missed = []
    for name in names:
        by_test = bool(MUTANTS[name].found_by)
        caught = None if by_test else catch(name)
        line = row(name, caught)
        print(line, flush=True)
        if not (fails_its_test(name) if by_test else caught):
            missed.append(name)
        text = page.read_text()
        rows = rows_of(text) | {name: line}
        table = "\n".join([*_HEAD, *(rows[known] for known in MUTANTS if known in rows)])
        before, _, rest = text.partition(_BEGIN)
        page.write_text(f"{before}{_BEGIN}\n\n{table}\n\n{_END}{rest.partition(_END)[2]}")
    return missed
