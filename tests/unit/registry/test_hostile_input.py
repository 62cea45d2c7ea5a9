"""The registry and bad input: large, malformed and impossible schemas, bounds, damaged rows."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest

from sarit.core.errors import Corrupt, Invalid
from sarit.registry import keys
from sarit.registry.errors import BadSchema, Full, Incompatible, NotThere
from sarit.registry.values import Group, GroupName, NewSchema, Reference
from sarit.schemas.compatibility import Level, policy_of
from sarit.schemas.definitions import Kind
from tests.unit.controller.fakes import FakeTables
from tests.unit.registry.world import ORDERS, avro, registry, using

PAYMENTS = GroupName("", "payments-value")


def run(coroutine):
    return asyncio.run(coroutine)


@pytest.fixture
def made():
    return registry()


def test_texts_larger_than_a_row_are_kept_whole(made) -> None:
    text = json.dumps({"type": "object", "title": "x" * 1_000_000})
    data = base64.b64encode(b"y" * 700_000).decode()

    async def test():
        got = await made.register(ORDERS, NewSchema(Kind.JSON, text))
        made._rows.forget(got.id)
        assert json.loads((await made.schema(got.id)).text) == json.loads(text)
        await made.register(PAYMENTS, NewSchema(Kind.OPAQUE, data, format_name="thing"))
        with pytest.raises(BadSchema):
            await made.register(ORDERS, NewSchema(Kind.JSON, json.dumps({"title": "x" * 1_100_000})))
        for group in (ORDERS, PAYMENTS):
            await made.delete_group(group)
            await made.delete_group(group, permanent=True)

    tables = FakeTables()
    made = registry(tables)
    run(test())
    left = {key[:2] for key in tables.tables[keys.REGISTRY_TABLE]}
    assert left == {b"n", b"t/", b"y/", b"d/"}, "only numbers that must not come back are left"


@pytest.mark.parametrize(
    "new",
    [
        NewSchema(Kind.AVRO, "{"),
        NewSchema(Kind.AVRO, '{"type": "record", "name": "A", "fields": []}', type="B"),
        NewSchema(Kind.JSON, "[" * 100_000),
        NewSchema(Kind.OPAQUE, "~"),
        NewSchema(Kind.AVRO, '"\ud800"'),
        NewSchema(Kind.JSON, '{"title": "\ud800"}'),
    ],
)
def test_malformed_schemas_are_refused(made, new) -> None:
    async def test():
        for call in (made.register(ORDERS, new), made.check(ORDERS, new), made.find_schema("", new)):
            try:
                await call
            except (BadSchema, NotThere):
                continue
            assert new.kind is Kind.JSON

    run(test())


@pytest.mark.parametrize("name", ["", "a\nb", "a\0b", "x" * 256, "\ud800", "a\u202eb"])
def test_impossible_names_are_refused(made, name) -> None:
    async def test():
        for call in (made.register(GroupName("", name), avro("a")), made.create_group(Group(GroupName("", name)))):
            with pytest.raises(Invalid):
                await call
        with pytest.raises(Invalid):
            await made.register(ORDERS, using("X", Reference("Y", name, 1)))

    run(test())


def test_bounds_are_named(made, monkeypatch) -> None:
    async def test():
        await made.register(ORDERS, avro("a"))
        with pytest.raises(Full, match="versions"):
            await made.register(ORDERS, avro("a", b=0))
        with pytest.raises(Full, match="groups"):
            await made.register(PAYMENTS, avro("a"))
        with pytest.raises(Full, match="groups"):
            await made.create_group(Group(PAYMENTS))
        with pytest.raises(Invalid, match="properties"):
            await made.register(ORDERS, avro("a"), properties={"p": "x" * 5000})

    monkeypatch.setattr("sarit.registry.decisions.MAX_VERSIONS_OF_GROUP", 1)
    monkeypatch.setattr("sarit.registry.decisions.MAX_SCHEMA_GROUPS", 1)
    run(test())


def test_comparison_stops_at_its_deadline(made, monkeypatch) -> None:
    async def test():
        await made.set_policy(ORDERS, policy_of(Level.FULL_TRANSITIVE))
        await made.register(ORDERS, avro("a"))
        with pytest.raises(Full, match="stopped"):
            await made.register(ORDERS, avro("a", b=0))

    monkeypatch.setattr("sarit.registry.parser.MAX_COMPARISON_SECONDS", -1.0)
    run(test())


def test_opaque_schemas_are_compatible_with_themselves_alone(made) -> None:
    async def test():
        one, two = (NewSchema(Kind.OPAQUE, base64.b64encode(data).decode()) for data in (b"1", b"2"))
        await made.register(ORDERS, one)
        assert await made.check(ORDERS, one) == []
        with pytest.raises(Incompatible):
            await made.register(ORDERS, two)

    run(test())


@pytest.mark.parametrize("row", [b"s/", b"g/", b"v/", b"p/", b"n"])
@pytest.mark.parametrize("value", [b"", b"\1", b"\1{}", b"\1[]", b"\1\xff", b"\2{}"])
def test_damaged_rows_are_named(row, value) -> None:
    tables = FakeTables()

    async def test():
        made = registry(tables)
        await made.register(ORDERS, avro("a"))
        rows = tables.tables[keys.REGISTRY_TABLE]
        for key, found in rows.items():
            if key.startswith(row):
                rows[key] = type(found)(value, found.version)
        fresh = registry(tables)
        with pytest.raises(Corrupt, match="registry"):
            await fresh.register(ORDERS, avro("a", b=0) if row != b"p/" else avro("a"))
            await fresh.version(ORDERS, 1)

    run(test())


def test_changed_text_of_a_schema_is_noticed() -> None:
    tables = FakeTables()

    async def test():
        await registry(tables).register(ORDERS, avro("abc"))
        rows = tables.tables[keys.REGISTRY_TABLE]
        key = keys.schema_key(1, 0)
        rows[key] = type(rows[key])(rows[key].value.replace(b"abc", b"abd"), 1)
        with pytest.raises(Corrupt, match="schema 1"):
            await registry(tables).schema(1)

    run(test())
