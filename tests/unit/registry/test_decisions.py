"""Decisions of the registry at the ends of its numbers, and what each writes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sarit.core.errors import Invalid
from sarit.registry import decisions, keys
from sarit.registry.decisions import GroupRows, Purged, RegisterRows, Registration
from sarit.registry.errors import Full
from sarit.registry.limits import MAX_ENCODINGS_OF_GROUP, MAX_IMPORTED_NUMBER, MAX_REGISTRY_NUMBER
from sarit.registry.records import Counters, Head, Remains
from sarit.registry.values import GroupName, Mode, Reference, Schema, Settings, Version
from sarit.schemas.definitions import Kind

NAME = GroupName("", "g")
SCHEMA = Schema(0, Kind.AVRO, '"string"')
WANTED = Registration(SCHEMA, "", False, {})
VERSION = Version(1, 1, Kind.AVRO)
IMPORTING = Settings(mode=Mode.IMPORT)


def rows(head: Head | None = None, counters: Counters | None = None, own: Settings = Settings()) -> RegisterRows:  # noqa: B008
    return RegisterRows(GroupRows(NAME, head, None, (own, Settings())), counters or Counters())


def test_last_number_is_given_and_none_after_it() -> None:
    last = decisions.register(rows(counters=Counters(MAX_REGISTRY_NUMBER)), WANTED, 0)
    assert last.answer.id == MAX_REGISTRY_NUMBER
    with pytest.raises(Full, match="ids"):
        decisions.register(rows(counters=last.counters), WANTED, 0)
    head = Head(Remains(MAX_REGISTRY_NUMBER))
    assert decisions.register(rows(head), WANTED, 0).answer.version == MAX_REGISTRY_NUMBER
    with pytest.raises(Full, match="versions"):
        decisions.register(rows(Head(Remains(MAX_REGISTRY_NUMBER + 1))), WANTED, 0)
    for full in (Head(Remains(2, 5), encodings=MAX_ENCODINGS_OF_GROUP, live=1, versions=1),
                 Head(Remains(2, MAX_REGISTRY_NUMBER + 1), live=1, versions=1)):  # fmt: skip
        with pytest.raises(Full, match="encodings"):
            decisions.encode(GroupRows(NAME, full, None), Counters(), VERSION, 1, "", None)


def test_imported_numbers_are_not_the_last_ones() -> None:
    done = decisions.register(rows(own=IMPORTING), replace(WANTED, id=MAX_IMPORTED_NUMBER, version=9), 0)
    assert (done.answer.id, done.answer.version) == (MAX_IMPORTED_NUMBER, 9)
    assert done.counters.next_schema == MAX_IMPORTED_NUMBER + 1
    for wanted in (
        replace(WANTED, id=MAX_IMPORTED_NUMBER + 1),
        replace(WANTED, id=0),
        replace(WANTED, id=1, version=MAX_IMPORTED_NUMBER + 1),
        replace(WANTED, id=1, version=0),
    ):
        with pytest.raises(Invalid):
            decisions.register(rows(own=IMPORTING), wanted, 0)


def test_registration_writes_what_a_deletion_removes() -> None:
    schema = replace(SCHEMA, references=(Reference("r", "other", 3),))
    added = decisions.register(rows(), replace(WANTED, schema=schema), 0)
    head = Head(Remains(2), versions=1)
    purged = Purged(VERSION, replace(schema, id=1))
    removed = decisions.purge(GroupRows(NAME, head, None), added.counters, [purged], False, end=False)
    put = {key for key, value in added.rows.items() if value is not None}
    assert {key for key, value in removed.rows.items() if value is None} == put - {keys.type_key(NAME, "")}
    assert {key for key, value in removed.rows.items() if value is not None} == {
        keys.remains_key(NAME),
        keys.deleted_schema_key(1),
    }
    assert removed.counters == replace(added.counters, schemas=0, groups=0)


def test_schema_that_others_hold_stays() -> None:
    head = Head(Remains(2), versions=1)
    change = decisions.purge(GroupRows(NAME, head, None), Counters(2, 1, 1), [Purged(VERSION)], True, end=False)
    assert not any(key.startswith((b"s/", b"p/", b"d/", b"r/")) for key in change.rows)
    assert change.rows[keys.settings_keys(NAME)[0]] is None
    assert change.removed == ()
