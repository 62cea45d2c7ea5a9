"""The registry and bad input: large, malformed and impossible schemas, bounds, damaged rows."""

from __future__ import annotations

import asyncio
import base64
import json
import random

import pytest

from sarit.core.errors import Corrupt, Invalid, Unavailable
from sarit.registry import keys
from sarit.registry.errors import BadSchema, Full, Incompatible, NotThere, WrongKind
from sarit.registry.values import Group, GroupName, NewSchema, Reference
from sarit.schemas.compatibility import Level, policy_of
from sarit.schemas.definitions import Kind
from tests.limits import examples
from tests.unit.controller.fakes import FakeTables
from tests.unit.registry.world import ORDERS, InlineWorker, avro, registry, using

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


SEEDS = {
    Kind.AVRO: [
        avro("a", b=0).text,
        '{"type":"record","name":"n.R","fields":[{"name":"f","type":["null",{"type":"enum","name":"E","symbols":["A"]}]}]}',
        '{"type":"fixed","name":"F","size":16,"logicalType":"decimal","precision":4}',
    ],
    Kind.JSON: ['{"type":"object","properties":{"a":{"type":["string","null"]}},"required":["a"]}', '{"enum":[1,2.5]}'],
    Kind.PROTOBUF: ['syntax = "proto3"; package p; message M { repeated int32 a = 1; oneof o { string s = 2; } }'],
    Kind.OPAQUE: [base64.b64encode(b"bytes").decode()],
}
PIECES = [*'"{}[]:,=é\0\ud800', "null", "-1", "1e999", '"type"', '"record"', "\\u0000"]


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("seed", range(examples(4)))
def test_damaged_texts_are_refused_in_one_way_or_kept(kind, seed) -> None:
    chance = random.Random(seed)
    tables = FakeTables()
    made = registry(tables)

    async def test():
        kept: dict[int, str] = {}
        said: set[str] = set()
        await made.set_policy(ORDERS, policy_of(Level.FULL))
        for _ in range(60):
            text = chance.choice(SEEDS[kind])
            for _ in range(chance.randint(1, 3)):
                at, piece = chance.randrange(len(text) + 1), chance.choice(PIECES) * chance.choice([1, 1, 1, 200])
                text = text[:at] + piece + text[at + chance.randint(0, 9) :]
            before = dict(tables.tables.get(keys.REGISTRY_TABLE, {}))
            try:
                done = await made.register(ORDERS, NewSchema(kind, text))
            except (BadSchema, Incompatible, WrongKind) as error:
                said.add(str(error))
                assert tables.tables[keys.REGISTRY_TABLE] == before, "nothing is half done"
            else:
                kept[done.id] = text
        assert all(text.isprintable() and text.isascii() and len(text) < 1000 for text in said), said
        for id, text in kept.items():
            made._rows.forget(id)
            found = await made.schema(id)
            assert (await made.find_schema("", NewSchema(kind, found.text))).id == id
            assert (await made.find_schema("", NewSchema(kind, text))).id == id

    run(test())


def test_requests_that_wait_for_the_parser_are_bounded(made, monkeypatch) -> None:
    monkeypatch.setattr("sarit.registry.parser.MAX_WAITING_FOR_PARSER", 2)
    monkeypatch.setattr("sarit.registry.parser.MAX_WAITING_PARSER_BYTES", 1000)

    async def test():
        go_on = asyncio.Event()

        class Waiting(InlineWorker):
            async def run(self, call):
                await go_on.wait()
                return call()

        made._parser._worker = Waiting()
        first = asyncio.create_task(made.register(ORDERS, avro("a")))
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="try again"):
            await made.register(PAYMENTS, NewSchema(Kind.JSON, " " * 1000))
        second = asyncio.create_task(made.register(PAYMENTS, avro("b")))
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="try again"):
            await made.find_schema("", avro("c"))
        go_on.set()
        assert sorted([(await first).id, (await second).id]) == [1, 2]
        assert (await made.register(ORDERS, avro("a", c=0))).version == 2
        await made.close()
        with pytest.raises(Unavailable, match="closed"):
            await made.register(ORDERS, avro("a"))

    run(test())
