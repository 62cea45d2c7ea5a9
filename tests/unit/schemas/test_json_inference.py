"""The columns of JSON documents, from a sample: types, conflicts, names that no column can have, bounds."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sarit.core.errors import Invalid
from sarit.schemas.column_types import sql_name
from sarit.schemas.json_inference import infer_json
from sarit.schemas.json_reader import JsonReader
from sarit.schemas.limits import INFERRED_SAMPLE_EVENTS, MAX_INFERRED_COLUMNS, MAX_INFERRED_LEVELS, MAX_INFERRED_NAMES
from tests.limits import examples


def inferred(*documents):
    found = infer_json([one if isinstance(one, bytes) else json.dumps(one).encode() for one in documents])
    return {field.name: sql_name(field.type) for field in found}


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, -(2**63), 2**63 - 1, None], "bigint"),
        ([1, 2.5], "double"),
        ([2**53, 0.5], "double"),
        ([2**53 + 1, 0.5], "string"),
        ([2**63], "string"),
        ([10**399, 0.5], "string"),
        ([True, False], "boolean"),
        ([True, 1], "string"),
        (["a", 1], "string"),
        (["a", {"x": 1}], "string"),
        ([[1], {"x": 1}], "string"),
        (["2026-01-31T12:00:00Z", "2026-01-31T12:00:00.123456+02:00"], "timestamp"),
        (["2026-01-31T12:00:00Z", "soon"], "string"),
        (["2026-02-31T12:00:00Z"], "string"),
        (["2026-01-31T12:00:00"], "string"),
        (["2026-01-31T12:00:00.1234567Z"], "string"),
        (["2026-01-31"], "string"),
        ([[1, 2], [], [None, 3]], "array<bigint>"),
        ([[1, "a"]], "array<string>"),
        ([[{"x": 1}], [{"y": [0.5]}]], "array<struct<x:bigint,y:array<double>>>"),
        ([{"x": {"y": 1}}, {"x": {"z": "a"}}], "struct<x:struct<y:bigint,z:string>>"),
        ([{"x": 1}, {"x": "a"}], "struct<x:string>"),
        ([{"x": None, "y": 1}], "struct<y:bigint>"),
    ],
)
def test_types_of_values(values, kind):
    documents = [{"a": one, "z": 0} for one in values]
    assert inferred(*documents) == {"a": kind, "z": "bigint"}
    # Of a struct, the order of the fields alone may differ.
    assert sorted(inferred(*reversed(documents))["a"]) == sorted(kind)


@pytest.mark.parametrize("values", [[None], [[]], [{}], [[[]], [[], []]], [{"x": None}]])
def test_values_without_a_type_have_no_column(values):
    assert inferred(*[{"a": one, "z": 0} for one in values]) == {"z": "bigint"}


def test_columns_are_in_the_order_of_their_first_names():
    assert list(inferred({"b": 1}, {"a": 1, "c": 1}, {"c": 1, "b": 1})) == ["b", "a", "c"]


def test_names_that_no_column_can_have():
    assert inferred({"": 1, "a\n": 2, "b" * 256: 3, "id": 4, "ID": 5, "\ud800": 6}) == {"id": "bigint"}
    assert inferred({"a": {"x": 1}}, {"a": {"": 1}}) == {"a": "string"}
    assert inferred({"a": {"x": 1, "X": 1}}) == {"a": "string"}


def test_what_is_no_object_is_left_aside():
    assert inferred(b"", b"[1]", b"{", b"7", b'{"a":1}', b'{"a":"' + b"\xff" + b'"}') == {"a": "bigint"}
    for none in ([], [b"x"], [None], [b"{}"], [b'{"a":null}']):
        with pytest.raises(Invalid, match="no member of them has a value"):
            infer_json(none)


def test_bounds():
    many = {f"n{at}": at for at in range(MAX_INFERRED_NAMES + 1)}
    assert inferred({"a": many}) == {"a": "string"}
    assert len(inferred({f"n{at}": at for at in range(MAX_INFERRED_COLUMNS)})) == MAX_INFERRED_COLUMNS
    with pytest.raises(Invalid, match="more than 1,000 names"):
        inferred({f"n{at}": at for at in range(MAX_INFERRED_COLUMNS + 1)})
    with pytest.raises(Invalid, match="16,384 characters"):
        inferred({f"{at:0200}": at for at in range(100)})
    deep = 1
    for _ in range(MAX_INFERRED_LEVELS + 5):
        deep = {"x": deep}
    assert inferred({"a": deep})["a"].count("struct") == MAX_INFERRED_LEVELS
    assert inferred(b'{"z":1,"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", {"z": 1}) == {"z": "bigint"}
    endless = ({"a": 1} if at < INFERRED_SAMPLE_EVENTS else 1 / 0 for at in range(10**9))
    assert infer_json(json.dumps(one).encode() for one in endless).names == ["a"]


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(
    ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00", "x"]
)  # fmt: skip
NAMES = st.sampled_from(["a", "b", "A", "", "row"]) | st.text(max_size=3)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=12
)


@given(st.lists(st.dictionaries(NAMES, VALUES, max_size=4), max_size=6))
@settings(max_examples=examples(300))
def test_each_document_of_the_sample_fits_the_columns(documents):
    payloads = [json.dumps(one).encode() for one in documents]
    try:
        columns = infer_json(payloads)
    except Invalid:
        return
    assert infer_json(payloads) == columns
    reader = JsonReader(columns)
    rows = reader.read(pa.array(payloads, pa.binary()))
    assert not rows.bad.any(), [reader.problem(one) for one in payloads]
    for field, column in zip(columns, rows.columns, strict=True):
        if pa.types.is_int64(field.type) or pa.types.is_boolean(field.type):
            assert column.to_pylist() == [one.get(field.name) for one in documents]
