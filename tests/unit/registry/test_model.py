"""Random calls of the registry against plain dictionaries, with faults of the tables; and mutants, all caught."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from sarit.core.errors import Conflict, SaritError, Unavailable
from sarit.registry import changes, decisions, deletion, registration
from sarit.registry.rows import Rows
from tests.limits import examples
from tests.unit.controller.fakes import FakeTables, Faults
from tests.unit.registry.model import Model, carry_out, drawn, expected, shown
from tests.unit.registry.world import beside, registry

CALLS = 120


def faulty(chance: random.Random, rate: float) -> Faults:
    """Some updates conflict, and some calls are Unavailable, half of these after they took effect."""

    def before(_: int, call: str) -> None:
        if call.startswith("tables.update") and chance.random() < rate:
            raise Conflict("another controller was faster")
        if chance.random() < rate / 2:
            raise Unavailable("before")

    def after(_: int, call: str) -> None:
        if chance.random() < rate / 2:
            raise Unavailable("after")

    return Faults(before, after)


async def compare(seed: int, rate: float) -> Model:
    """Make random calls; each answer and all that is shown afterwards must be the model's."""
    chance = random.Random(seed)
    tables, model = FakeTables(), Model()
    real = registry(beside(tables, faulty(chance, rate)), "node-0", seed)
    watcher = registry(tables, "node-0")
    before = model.shows()
    for step in range(CALLS):
        if chance.random() < 0.02 and model.shows() != before:  # numbers rise for a restore that a change follows
            model.restore()
            before = model.shows()
            real = registry(beside(tables, faulty(chance, rate)), f"node-{model.restores}", seed)
            watcher = registry(tables, f"node-{model.restores}")
        elif chance.random() < 0.1:  # another process, with nothing cached
            real = registry(beside(tables, faulty(chance, rate)), f"node-{model.restores}", seed + step)
        call = drawn(chance, model)
        after, wanted = expected(model, call)
        try:
            got = await carry_out(real, call)
        except Unavailable:
            # Either nothing happened, or all of it.
            seen = await shown(watcher, after)
            assert seen in (after.shows(), model.shows()), (step, call)
            if seen == after.shows():
                model = after
            elif seen != model.shows():
                raise
            continue
        except SaritError as error:
            got = type(error)
        assert got == wanted, (step, call, got, wanted)
        model = after
        assert await shown(watcher, model) == model.shows(), (step, call)
    return model


@pytest.mark.parametrize("seed", range(examples(25)))
@pytest.mark.parametrize("rate", [0.0, 0.05])
def test_registry_does_what_the_model_does(seed, rate) -> None:
    asyncio.run(compare(seed, rate))


# -- mutants -----------------------------------------------------------------------------------


def _ids_twice(monkeypatch) -> None:
    real = decisions._schema_id
    monkeypatch.setattr(decisions, "_schema_id", lambda rows, wanted: (rows.counters, real(rows, wanted)[1]))


def _versions_again(monkeypatch) -> None:
    real = decisions._first_numbers
    monkeypatch.setattr(decisions, "_first_numbers", lambda _, counters: real(None, counters))


def _deleted_versions_count(monkeypatch) -> None:
    real = Rows.versions

    async def every(self, *arguments):
        return [replace(one, deleted=False) for one in await real(self, *arguments)]

    monkeypatch.setattr(registration.Registrations, "_history", _history_with(every))


def _history_with(versions):
    async def history(self, name, head, policy, type):
        return await versions(self._rows, name, head)

    return history


def _references_hold_nothing(monkeypatch) -> None:
    async def unused(self, ids, **_):
        return None

    monkeypatch.setattr(deletion.Deletions, "_in_use", unused)


def _schema_goes_with_any_version(monkeypatch) -> None:
    real = Rows.scan

    async def scan(self, prefix, start=b"", limit=0, end=None):
        found = await real(self, prefix, start, limit, end)
        return found[: limit - 1] if prefix.startswith(b"h/") and limit else found

    monkeypatch.setattr(Rows, "scan", scan)


def _restore_is_not_seen(monkeypatch) -> None:
    monkeypatch.setattr("sarit.registry.records.Counters.of", lambda self, _: self)


def _restore_is_seen_at_each_change(monkeypatch) -> None:
    real = changes.Changes.make

    async def make(self, decide):
        self._installation += "+"
        return await real(self, decide)

    monkeypatch.setattr(changes.Changes, "make", make)


def _group_deletion_is_forgotten(monkeypatch) -> None:
    real = decisions.delete_group

    def delete(group, counters, versions, referred):
        change = real(group, counters, versions, referred)
        return replace(change, rows={})

    monkeypatch.setattr(decisions, "delete_group", delete)


BUGS = [
    _ids_twice, _versions_again, _deleted_versions_count, _references_hold_nothing, _schema_goes_with_any_version,
    _restore_is_not_seen, _restore_is_seen_at_each_change, _group_deletion_is_forgotten,
]  # fmt: skip


@pytest.mark.parametrize("plant", BUGS)
def test_mutant_is_caught(plant, monkeypatch) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, SaritError)):
        for seed in range(25):
            asyncio.run(compare(seed, 0.0))
