"""The table of mutants: rows are parsed again, kinds are extracted from messages."""

from __future__ import annotations

import pytest

from simulation.mutants import MUTANTS
from simulation.table import PAGE, Catch, kind_of, put_row, row, rows_of


def test_written_row_is_parsed_again(tmp_path) -> None:
    name = next(iter(MUTANTS))
    line = row(name, Catch(3, "lost"))
    before, begin, rest = PAGE.read_text().partition("<!-- mutants")
    head = rest.partition("-->")[0]
    table = f"| mutant | invariant | fault | seeds | caught as |\n|---|---|---|---|---|\n{line}\n"
    page = f"{before}{begin}{head}-->\n\n{table}"
    assert rows_of(page) == {name: line}
    assert line.endswith("| 3 | lost |")


@pytest.mark.parametrize(
    ("violation", "kind"),
    [
        ("lost: scan 3: writer 1 event 2", "lost"),
        ("stream: key-gap: reader 1", "stream key-gap"),
        ("Corrupt: the node cannot start: x", "Corrupt"),
        ("exception: AssertionError: liveness: stream at x", "liveness"),
        ("exception: Sealed: stream app/orders is sealed: it", "Sealed"),
        ("exception: TimeoutError", "exception"),
    ],
)
def test_kind_is_extracted_from_violation(violation, kind) -> None:
    assert kind_of(violation) == kind


def test_every_mutant_has_description_and_invariant() -> None:
    for mutant in MUTANTS.values():
        assert mutant.fault, mutant
        assert mutant.invariant, mutant
        assert "|" not in mutant.fault


@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_can_be_applied(name) -> None:
    """A mutant with another signature would be caught by its own TypeError, which proves nothing."""
    with MUTANTS[name].apply():
        pass


def test_rows_are_in_order_of_mutants_whichever_runs_first(tmp_path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text())
    first, second = list(MUTANTS)[:2]
    put_row(page, second, f"| {second} | new |")
    put_row(page, first, f"| {first} | new |")
    rows = rows_of(page.read_text())
    assert list(rows) == [name for name in MUTANTS if name in rows]
    assert rows[first].endswith("new |")
    assert rows[second].endswith("new |")
    assert page.read_text().count("| mutant | invariant |") == 1
