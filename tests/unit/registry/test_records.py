"""Rows of the registry: the example of docs/formats/registry.md, all fields there and back, and damage."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from sarit.core.errors import Corrupt
from sarit.registry import keys, records
from sarit.registry.records import Counters, Head, Remains, TypeNumbers
from sarit.registry.values import Encoding, GroupName, Mode, NewSchema, Reference, Schema, Settings, Version
from sarit.schemas.compatibility import Policy, PolicyName, Span, Till
from sarit.schemas.definitions import Kind
from tests.unit.controller.fakes import FakeTables
from tests.unit.registry.world import registry

NAME = GroupName("team", "orders-value")


def test_rows_are_those_of_the_page() -> None:
    page = (Path(__file__).parents[3] / "docs/formats/registry.md").read_text()
    example = page[page.index("The rows of one group") :]
    wanted = {}
    for key, value in re.findall(r"^    (\S.*)\n        01 (.*(?:\n        .*)*)", example, re.MULTILINE):
        head, _, text = value.replace("\n        ", "").partition(" 0a ")
        wanted[key.replace(" 00 ", "\0").replace(" 00", "\0").encode()] = b"\1" + (
            head.encode() + (b"\n" + text.encode() if text else b"")
        )
    tables = FakeTables()

    async def test():
        made = registry(tables, "node-1")
        made._clock.seconds, made._clock.wall_offset_ms = 1.0, 0
        await made.register(GroupName("", "g"), NewSchema(Kind.AVRO, '"string"'))
        await made.encodings.encode(GroupName("", "g"), 1, "")

    asyncio.run(test())
    rows = {key: found.value for key, found in tables.tables[keys.REGISTRY_TABLE].items()}
    assert len(wanted) == 6
    assert {key: rows.get(key) for key in wanted} == wanted
    assert {key[:2] for key in rows} - {key[:2] for key in wanted} == {b"p/", b"h/"}


def test_rows_come_back_with_all_fields() -> None:
    head = Head(
        Remains(9, 8, 7), 6, 5, 4, 3, 2, True, True, Kind.JSON, "f", True, {"p": "ü"}, {"gzip": {"a": "b"}}, 12
    )  # fmt: skip
    assert records.decode_head(records.encode_head(head), "") == head
    version = Version(3, 2, Kind.OPAQUE, "t", 1, True, {"a": "b"}, 77)
    assert records.decode_version(3, records.encode_version(version), head, "") == version
    counters = Counters(4, 3, 2, "x", 1)
    assert records.decode_counters(records.encode_counters(counters)) == counters
    for settings in (Settings(), Settings(Policy(PolicyName.ADVANCED, Till(4), Span.LATEST), Mode.IMPORT)):
        assert records.decode_settings(records.encode_settings(settings), "") == settings
    for name in PolicyName:
        if name is not PolicyName.ADVANCED:
            assert records.decode_settings(records.encode_settings(Settings(Policy(name))), "").policy == Policy(name)
    encoding = Encoding(5, 4, "gzip")
    assert records.decode_encoding(5, records.encode_encoding(encoding), "") == encoding
    assert records.decode_remains(records.encode_remains(Remains(3, 2, 1)), "") == Remains(3, 2, 1)
    assert records.decode_type_numbers(records.encode_type_numbers(TypeNumbers(3, 2)), "") == TypeNumbers(3, 2)


@pytest.mark.parametrize("size", [0, 1, 300_000, 524_000, 524_288, 1_000_000, 1_048_576])
@pytest.mark.parametrize("references", [0, 200])
def test_schema_is_in_rows_that_a_table_takes(size, references) -> None:
    named = tuple(Reference(f"{number:03}" + "☃" * 500, "☃" * 255, 1) for number in range(references))
    schema = Schema(7, Kind.JSON, "x" * size, named, "t", "", "team")
    rows = records.encode_schema(schema)
    assert max(map(len, rows)) < 1_000_000
    assert records.further_parts(rows[0]) == len(rows) - 1
    assert records.decode_schema(7, rows) == schema


def test_keys_are_read_again() -> None:
    for name in (NAME, GroupName("", "a/b"), GroupName("n", "ü/0000")):
        assert keys.parse_head(keys.head_key(name)) == name
        assert keys.parse_holder(keys.holder_key(12, name, 0x1234)) == (name, 0x1234)
        assert keys.parse_number(keys.version_key(name, 99)) == 99
        assert keys.parse_referrer(keys.referrer_key(name.namespace, Reference("r", name.group, 2), 77)) == 77


@pytest.mark.parametrize("key", [b"h/", b"h/0/x", b"h/0/\xff\0a\0b", b"g/a", b"g/a\0b\0c"])
def test_keys_that_no_registry_writes_are_named(key) -> None:
    with pytest.raises(Corrupt, match="holds the key"):
        (keys.parse_holder if key.startswith(b"h/") else keys.parse_head)(key)
