"""Options of metadata and tables, and the names of views."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sarit.core.errors import Invalid
from sarit.core.names import StreamName
from sarit.spark.options import OPTIONS as COMMON
from sarit.spark.tables.catalog import view_name
from sarit.spark.tables.columns import TIMESTAMP, batch_of
from sarit.spark.tables.options import (
    OPTIONS,
    NewTable,
    is_metadata,
    is_table,
    parse_metadata,
    parse_table_read,
    parse_table_write,
)


def test_metadata_of_one_stream_is_parsed():
    given = {"metadata": "Segments", "stream": "a/b", "controller": "host:1"}
    found = parse_metadata(given)
    assert (found.kind, found.stream, found.scope) == ("segments", StreamName("a", "b"), None)
    assert is_metadata(given)
    assert not is_table(given)
    assert parse_metadata({"METADATA": "heat", "path": "a/b", "sampleSeconds": "7"}).sample_seconds == 7


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"metadata": "rows"}, "give streams or segments or groups or heat or tables"),
        ({"metadata": "streams", "scope": "a/b"}, "no name of a scope"),
        ({"metadata": "streams", "scope": "a", "stream": "b/c"}, "not both"),
        ({"metadata": "tables", "stream": "b/c"}, "no option stream"),
        ({"metadata": "heat", "sampleSeconds": "0"}, "at least 1"),
        ({"metadata": "streams", "table": "a/b"}, "unknown option table"),
    ],
)
def test_wrong_metadata_options_are_refused(given, text):
    with pytest.raises(Invalid, match=text):
        parse_metadata(given)


def test_table_to_be_created_is_parsed():
    given = {"table": "a/b", "writeMode": "INSERT", "createTable": "true", "primaryKeyBytes": "8"}
    found = parse_table_write(given)
    assert (found.table, found.mode, found.create) == (StreamName("a", "b"), "insert", NewTable(8, 0, 1))
    assert parse_table_write({"table": "a/b"}).create is None


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"table": "a"}, "SCOPE/STREAM"),
        ({"table": "a/b", "path": "a/c"}, "not both"),
        ({"table": "a/b", "createTable": "true"}, "needs primaryKeyBytes"),
        ({"table": "a/b", "primaryKeyBytes": "8"}, "with createTable alone"),
        ({"table": "a/b", "writeMod": "insert"}, "did you mean writeMode"),
    ],
)
def test_wrong_table_options_are_refused(given, text):
    with pytest.raises(Invalid, match=text):
        parse_table_write(given)


def test_read_of_a_table_has_no_options_of_writes():
    with pytest.raises(Invalid, match="unknown option writeMode"):
        parse_table_read({"table": "a/b", "writeMode": "upsert"})


def test_option_names_are_unique():
    names = [option.name.lower() for option in (*COMMON, *OPTIONS)]
    assert len(set(names)) == len(names)


def test_view_names_are_sql_names():
    assert view_name(StreamName("shop", "card-payments.v2")) == "shop_card_payments_v2"


def test_rows_become_the_wanted_columns_of_a_batch():
    schema = pa.schema([("a", pa.int64()), ("at", TIMESTAMP)])
    batch = batch_of(schema, [(1, 1_500), (2, None)], ["at", "a"])
    assert batch.schema.names == ["at", "a"]
    assert batch.column("a").to_pylist() == [1, 2]
    assert batch.column("at").cast(pa.int64()).to_pylist() == [1_500_000, None]
    assert batch_of(schema, [], ["a"]).num_rows == 0
