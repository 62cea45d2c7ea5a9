"""Results of queries as JSON and as CSV."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pytest

from sarit.core.errors import Invalid
from sarit.sql.limits import MAX_QUERY_COLUMNS
from sarit.sql.result_text import columns_of, csv_head, csv_lines, row_texts, values

US = pa.timestamp("us", tz="UTC")
POINT = pa.struct([("x", pa.int64()), ("at", pa.timestamp("ns"))])


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (pa.int64(), [1, -(1 << 53), 1 << 60, None], [1, -(1 << 53), str(1 << 60), None]),
        (pa.uint64(), [(1 << 64) - 1], [str((1 << 64) - 1)]),
        (pa.float64(), [1.5, float("nan"), float("-inf"), None], [1.5, "nan", "-inf", None]),
        (pa.bool_(), [True, None], [True, None]),
        (pa.decimal128(38, 2), [Decimal("1.50")], ["1.50"]),
        (pa.binary(), [b"text", b"\xff\x00", None], ["text", "\\xff00", None]),
        (US, [0, 1_767_225_600_000_001, None], ["1970-01-01 00:00:00.000000Z", "2026-01-01 00:00:00.000001Z", None]),
        (pa.timestamp("ns"), [1], ["1970-01-01 00:00:00.000000001"]),
        (pa.date32(), [20_454], ["2026-01-01"]),
        (pa.date32(), [2**31 - 1], ["<value out of range: 2147483647>"]),
        (pa.list_(US), [[0, None], None, []], [["1970-01-01 00:00:00.000000Z", None], None, []]),
        (pa.list_(pa.int64(), 2), [[1, 2], None], [[1, 2], None]),
        (POINT, [{"x": 1, "at": 5}, None], [{"x": 1, "at": "1970-01-01 00:00:00.000000005"}, None]),
        (pa.map_(pa.string(), pa.int64()), [[("a", 1)], None], [[{"key": "a", "value": 1}], None]),
        (pa.dictionary(pa.int8(), pa.string()), ["a", None, "a"], ["a", None, "a"]),
        (
            pa.month_day_nano_interval(),
            [(0, 0, 0), (14, -3, -3_600_000_000_000), (0, 1, 0), None, (0, 0, 1_500_000_000)],
            ["00:00:00", "14 months -3 days -01:00:00", "1 days", None, "00:00:01.5"],
        ),
        (pa.null(), [None], [None]),
    ],
)
def test_values_are_what_json_has(kind, given, expected):
    column = pa.array(given, kind)
    assert values(column) == expected
    for start in range(len(given)):
        assert values(column.slice(start)) == expected[start:]
    json.dumps(expected, allow_nan=False)


def batch(**columns):
    return pa.record_batch(columns)


def test_long_cells_and_rows_are_cut():
    found = batch(a=["x" * 50, "é" * 10], b=[b"y" * 50, b"y"], c=[{"k": "z" * 50}, {"k": ""}])
    first, second = map(json.loads, row_texts(found, 10, 1000))
    assert first == ["x" * 10 + "…", "y" * 10 + "…", '{"k": "zzz…']
    assert second == ["é" * 10, "y", '{"k": ""}']
    (row,) = row_texts(batch(a=["x" * 900], b=["x" * 900]), 1000, 1000)
    assert json.loads(row) == ["x" * 40 + "…"] * 2


def test_csv_has_quotes_where_it_needs_them():
    found = batch(**{'a"b': ["one", "", None, 'x,"y"\r\nz'], "n": [1, None, 1 << 60, 4], "l": [[1], None, [], [2]]})
    assert csv_head(found.schema) == '"a""b",n,l\r\n'
    assert list(csv_lines(found)) == [
        "one,1,[1]\r\n",
        '"",,\r\n',
        f",{1 << 60},[]\r\n",
        '"x,""y""\r\nz",4,[2]\r\n',
    ]


def test_columns_have_types():
    found = columns_of(pa.schema([("a", pa.int64()), ("b", US), ("c", pa.decimal128(10, 2))]))
    assert [(each["name"], each["type"], each["number"]) for each in found] == [
        ("a", "int64", True), ("b", "timestamp[us, tz=UTC]", False), ("c", "decimal128(10, 2)", True),
    ]  # fmt: skip
    with pytest.raises(Invalid, match="the result has 1,001 columns, of at most 1,000"):
        columns_of(pa.schema([(f"c{place}", pa.int8()) for place in range(MAX_QUERY_COLUMNS + 1)]))
