"""Mutants of the schema registry: ids, versions, and the condition of every change."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sarit.registry import decisions
from sarit.registry.changes import Changes
from sarit.registry.records import Remains
from sarit.wire.limits import NO_VERSION
from simulation.mutants.patching import patched
from simulation.mutants.registry import mutant

if TYPE_CHECKING:
    from collections.abc import Iterator

_RACE: Final = (
    "tests/unit/registry/test_race.py::test_controllers_that_register_at_once_give_different_ids_and_versions"
)


@mutant("one id for a schema, one schema for an id")
@contextmanager
def schema_id_given_twice() -> Iterator[None]:
    """A new schema gets the next id, which stays the next one."""
    right = decisions._schema_id

    def wrong(rows: Any, wanted: Any) -> Any:
        return rows.counters, right(rows, wanted)[1]

    with patched(decisions, decisions._schema_id, wrong):
        yield


@mutant("one id for a schema, one schema for an id", found_by=_RACE)
@contextmanager
def registry_changed_without_condition() -> Iterator[None]:
    """A controller writes its change of the registry over that of another one."""
    right = Changes._write

    async def wrong(self: Any, change: Any, version: int) -> bool:
        return await right(self, change, NO_VERSION)

    with patched(Changes, Changes._write, wrong):
        yield


@mutant("one id for a schema, one schema for an id", found_by=_RACE)
@contextmanager
def refused_registration_answered() -> Iterator[None]:
    """A change of the registry that was refused is answered as if it had been made."""
    right = Changes._write

    async def wrong(self: Any, change: Any, version: int) -> bool:
        await right(self, change, version)
        return True

    with patched(Changes, Changes._write, wrong):
        yield


@mutant("no schema id returns")
@contextmanager
def deleted_schema_id_given_again() -> Iterator[None]:
    """A permanent deletion gives the id of its schema back."""
    right = decisions.purge

    def wrong(group: Any, counters: Any, purged: Any, own_settings: bool, *, end: bool) -> Any:
        change = right(group, counters, purged, own_settings, end=end)
        lowered = change.counters.next_schema - len(change.removed)
        change.counters = replace(change.counters, next_schema=lowered)
        return change

    with patched(decisions, decisions.purge, wrong):
        yield


@mutant("no version of a group returns")
@contextmanager
def version_given_again() -> Iterator[None]:
    """A group that was deleted permanently and is made again counts its versions from 1."""
    with patched(decisions, decisions._first_numbers, lambda remains, counters: Remains()):
        yield


@mutant("no version of a group returns")
@contextmanager
def soft_deletion_undone() -> Iterator[None]:
    """A softly deleted version answers the registration of its schema."""
    right = decisions.holding

    def wrong(rows: Any, wanted: Any) -> Any:
        shown = replace(rows, held=[replace(one, deleted=False) for one in rows.held])
        return right(shown, wanted)

    with patched(decisions, decisions.holding, wrong):
        yield
