"""Columns that also hold what later columns hold, and rows in wider columns."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sarit.core.errors import Invalid
from sarit.schemas.column_types import TIMESTAMP
from sarit.serializers.widening import grown, widened, wider
from tests.limits import examples


def both(old, new):
    return wider(pa.schema([("a", old)]), pa.schema([("a", new)])).field("a").type


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int64(), pa.int32(), pa.int64()),
        (pa.int8(), pa.int32(), pa.int32()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.decimal128(9, 2), pa.decimal128(12, 2), pa.decimal128(12, 2)),
        (pa.large_string(), pa.string(), pa.string()),
        (pa.large_list(pa.large_binary()), pa.list_(pa.binary()), pa.list_(pa.binary())),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), pa.list_(pa.int64())),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int64())),
        (
            pa.struct([("x", pa.int32()), ("y", pa.string())]),
            pa.struct([("z", pa.bool_()), ("x", pa.int64())]),
            pa.struct([("x", pa.int64()), ("y", pa.string()), ("z", pa.bool_())]),
        ),
    ],
)
def test_types_that_hold_both(old, new, found):
    assert both(old, new) == found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (pa.int32(), pa.string()),
        (pa.int64(), pa.float64()),
        (pa.decimal128(9, 2), pa.decimal128(12, 3)),
        (pa.date32(), TIMESTAMP),
        (TIMESTAMP, pa.timestamp("us")),
        (pa.string(), pa.binary()),
        (pa.struct([("x", pa.int32())]), pa.int32()),
        (pa.map_(pa.int32(), pa.int32()), pa.map_(pa.int64(), pa.int32())),
    ],
)
def test_types_that_nothing_holds_are_named_with_their_column(old, new):
    for first, second in ((old, new), (new, old)):
        with pytest.raises(Invalid, match="column a is .*, which cannot be widened to "):
            both(first, second)
    for wrap, path in (
        (lambda kind: pa.struct([("x", kind)]), "a.x"),
        (lambda kind: pa.list_(kind), r"a\[\]"),
        (lambda kind: pa.map_(pa.string(), pa.list_(pa.struct([("y", kind)]))), r"a\{\}\[\].y"),
    ):
        with pytest.raises(Invalid, match=f"column {path} is "):
            both(wrap(old), wrap(new))


def test_columns_that_one_side_lacks_may_be_null():
    def column(name, null=False):
        return pa.field(name, pa.int32(), nullable=null)

    old = pa.schema([column("a"), column("b"), pa.field("s", pa.struct([column("x")]), nullable=False)])
    new = pa.schema([column("c"), column("a"), pa.field("s", pa.struct([column("y")]), nullable=False)])
    found = wider(old, new)
    assert found.names == ["a", "b", "s", "c"]
    assert [one.nullable for one in found] == [False, True, False, True]
    assert [(one.name, one.nullable) for one in found.field("s").type] == [("x", True), ("y", True)]
    with pytest.raises(Invalid, match="column a is there twice"):
        wider(pa.schema([column("a"), column("a")]), old)


SIMPLE = st.sampled_from(
    [
        pa.int8(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.decimal128(5, 1),
        pa.decimal128(9, 1),
    ]
)
NAMES = st.sampled_from("abc")


def fields_of(kinds):
    one = st.tuples(NAMES, kinds, st.booleans()).map(lambda drawn: pa.field(drawn[0], drawn[1], nullable=drawn[2]))
    return st.lists(one, min_size=1, max_size=3, unique_by=lambda field: field.name)


TYPES = st.recursive(
    SIMPLE,
    lambda inner: (
        fields_of(inner).map(pa.struct) | inner.map(pa.list_) | inner.map(lambda kind: pa.map_(pa.string(), kind))
    ),
    max_leaves=4,
)
SCHEMAS = fields_of(TYPES).map(pa.schema)


def tried(make):
    try:
        return make()
    except Invalid:
        return None


@given(SCHEMAS, SCHEMAS, SCHEMAS)
@settings(max_examples=examples(400))
def test_how_schemas_are_grouped_does_not_matter(one, two, three):
    left = tried(lambda: wider(wider(one, two), three))
    assert left == tried(lambda: wider(one, wider(two, three)))
    if left is None:
        return
    assert wider(left, one) == wider(left, three) == left
    back = wider(wider(three, two), one)
    assert sorted(back.names) == sorted(left.names)


def value_of(kind, draw):
    types = pa.types
    if draw(st.integers(0, 4)) == 0:
        return None
    if types.is_struct(kind):
        return {field.name: value_of(field.type, draw) for field in kind}
    if types.is_list(kind):
        return [value_of(kind.value_type, draw) for _ in range(draw(st.integers(0, 2)))]
    if types.is_map(kind):
        return [(f"k{at}", value_of(kind.item_type, draw)) for at in range(draw(st.integers(0, 2)))]
    if types.is_string(kind):
        return draw(st.sampled_from(["", "a"]))
    return draw(st.integers(0, 3))


def seen_as(value, kind):
    """Return a value of another type as one of a wider type, as Python has it."""
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_struct(kind):
        return {field.name: seen_as(value.get(field.name), field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(name, seen_as(one, kind.item_type)) for name, one in value]
    return [seen_as(one, kind.value_type) for one in value]


def loose(schema):
    """Return a schema whose columns may all be null, at every level."""

    def of(kind):
        if pa.types.is_struct(kind):
            return pa.struct([pa.field(one.name, of(one.type)) for one in kind])
        if pa.types.is_list(kind):
            return pa.list_(of(kind.value_type))
        return pa.map_(pa.string(), of(kind.item_type)) if pa.types.is_map(kind) else kind

    return pa.schema([pa.field(one.name, of(one.type)) for one in schema])


@given(SCHEMAS, SCHEMAS, st.data(), st.integers(0, 2))
@settings(max_examples=examples(200))
def test_rows_keep_their_values_in_wider_columns(own, other, data, skipped):
    own = loose(own)
    target = tried(lambda: wider(loose(other), own))
    if target is None:
        return
    rows = [{field.name: value_of(field.type, data.draw) for field in own} for _ in range(4)]
    columns = [pa.array([row[field.name] for row in rows], field.type)[skipped:] for field in own]
    found = widened(columns, own, target)
    for column in found:
        column.validate(full=True)
    assert [one.type for one in found] == target.types
    expected = [seen_as(row, pa.struct(list(target))) for row in rows[skipped:]]
    assert pa.table(found, schema=target).to_pylist() == expected


@given(SCHEMAS, SCHEMAS)
@settings(max_examples=examples(200))
def test_known_types_stay_where_others_do_not_fit(known, found):
    made = grown(known, found)
    assert made.names == [*known.names, *(name for name in found.names if name not in known.names)]
    assert grown(made, found) == made
    assert wider(loose(known), loose(made)) == loose(made)


def test_grown_columns():
    known = pa.schema([("a", pa.int64()), ("s", pa.struct([("x", pa.string()), ("y", pa.list_(pa.int32()))]))])
    found = pa.schema(
        [("a", pa.float64()), ("b", pa.bool_()), ("s", pa.struct([("y", pa.list_(pa.int64())), ("z", pa.int64())]))]
    )
    assert grown(known, found) == pa.schema([
        ("a", pa.int64()), ("s", pa.struct([("x", pa.string()), ("y", pa.list_(pa.int64())), ("z", pa.int64())])),
        ("b", pa.bool_()),
    ])  # fmt: skip
