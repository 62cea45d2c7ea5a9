"""Avro payloads: each is one datum of a record schema, as Spark's `from_avro` and `to_avro` have it.

fastavro reads and writes the data.  Logical types are left to Arrow: fastavro would make an object of each date and
time, and could not hold all of them.  A read that wants fewer fields passes over the others.
"""

from __future__ import annotations

import copy
import io
import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sarit.core.bounded_json import parse_json
from sarit.core.errors import Invalid
from sarit.spark.formats.ports import Rows
from sarit.spark.formats.types import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Mapping

_SIMPLE: Final[Mapping[str, type[DataType]]] = {
    "boolean": BooleanType, "int": IntegerType, "long": LongType, "float": FloatType, "double": DoubleType,
    "string": StringType, "bytes": BinaryType, "fixed": BinaryType, "enum": StringType, "null": NullType,
}  # fmt: skip
_LOGICAL: Final[Mapping[tuple[str, str], type[DataType]]] = {
    ("int", "date"): DateType,
    ("long", "timestamp-millis"): TimestampType,
    ("long", "timestamp-micros"): TimestampType,
    ("long", "local-timestamp-millis"): TimestampNTZType,
    ("long", "local-timestamp-micros"): TimestampNTZType,
}
_MILLIS: Final = ("timestamp-millis", "local-timestamp-millis")
_MICROS_PER_MILLI: Final = 1000
_MAX_DIGITS: Final = 38  # of Spark's decimals
_WIDENED: Final = (({"int", "long"}, "long"), ({"float", "double"}, "double"))


def fastavro() -> Any:
    """The package fastavro.  Raises Invalid when it is not installed."""
    try:
        import fastavro as package
    except ImportError:
        raise Invalid("format avro needs the package fastavro: install Sarit with its extra [avro]") from None
    return package


def load_schema(text: str | None) -> dict[str, Any]:
    """The schema of option `avroSchema`: JSON text, or the path of a file with it.  Raises Invalid."""
    if not text:
        raise Invalid('format avro needs a schema: .option("avroSchema", TEXT_OR_PATH)')
    written = text
    if not text.lstrip().startswith(("{", "[", '"')):
        try:
            with open(text, encoding="utf-8") as file:
                written = file.read()
        except (OSError, UnicodeDecodeError, ValueError) as error:
            raise Invalid(f"option avroSchema is {text[:60]!r}, no JSON and no file to read: {error}") from None
    try:
        schema: Any = parse_json(written)
    except ValueError as error:
        raise Invalid(f"option avroSchema is no JSON: {error}") from None
    package = fastavro()
    try:
        package.parse_schema(copy.deepcopy(schema))
    except Exception as error:  # fastavro has several kinds
        raise Invalid(f"option avroSchema is no Avro schema: {error!r}") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise Invalid("option avroSchema is not of a record: only a record has fields that can be columns")
    return schema


def avro_fields(schema: dict[str, Any]) -> StructType:
    """The columns of a record schema.  Raises Invalid naming a field that Spark has no type for."""
    kind = _spark_type(_resolved(schema), schema.get("name", "record"))
    assert isinstance(kind, StructType)
    return kind


def _resolved(schema: dict[str, Any]) -> Any:
    """The schema with the definition of each type where it is named, and every type as an object or a union."""
    # By fastavro, which makes each name full: a name without a namespace is in that of the record around it.
    return _expanded(fastavro().parse_schema(copy.deepcopy(schema)), {}, schema.get("name", "record"))


def _expanded(schema: Any, named: dict[str, Any], path: str) -> Any:
    if isinstance(schema, list):
        return [_expanded(one, named, path) for one in schema]
    if isinstance(schema, str):
        if schema not in named:
            return {"type": schema}
        if named[schema] is None:
            raise Invalid(f"field {path}: {schema} contains itself, which Spark cannot hold")
        return named[schema]
    kind = schema["type"]
    if kind == "record":
        named[schema["name"]] = None
        fields = [(one["name"], one["type"]) for one in schema["fields"]]
        found = [{"name": name, "type": _expanded(one, named, f"{path}.{name}")} for name, one in fields]
        made = {"type": "record", "fields": found}
    elif kind == "array":
        made = {"type": "array", "items": _expanded(schema["items"], named, f"{path}[]")}
    elif kind == "map":
        made = {"type": "map", "values": _expanded(schema["values"], named, f"{path}{{}}")}
    elif isinstance(kind, str) and kind in _SIMPLE:
        made = schema
    else:
        return _expanded(kind, named, path)
    if kind in ("record", "enum", "fixed"):
        named[schema["name"]] = made
    return made


def _spark_type(schema: Any, path: str) -> DataType:
    """The type of a resolved schema."""
    schema = _branch(schema, path)
    kind, logical = schema["type"], schema.get("logicalType", "")
    if kind == "record":
        fields = [(one["name"], one["type"]) for one in schema["fields"]]
        return StructType(
            [StructField(name, _spark_type(one, f"{path}.{name}"), _nullable(one)) for name, one in fields]
        )
    if kind == "array":
        return ArrayType(_spark_type(schema["items"], f"{path}[]"), _nullable(schema["items"]))
    if kind == "map":
        return MapType(StringType(), _spark_type(schema["values"], f"{path}{{}}"), _nullable(schema["values"]))
    if logical == "decimal" and kind in ("bytes", "fixed") and _fits(schema):
        return DecimalType(schema["precision"], schema.get("scale", 0))
    found = _LOGICAL.get((kind, logical)) or _SIMPLE.get(kind)
    if found is None or found is NullType:
        raise Invalid(f"field {path} {json.dumps(schema)}: Spark has no type for it")
    return found()


def _nullable(schema: Any) -> bool:
    return isinstance(schema, list) and {"type": "null"} in schema


def _branch(schema: Any, path: str = "") -> Any:
    """The one type of a union beside null.  Raises Invalid for a union that no column can hold."""
    if not isinstance(schema, list):
        return schema
    others = [one for one in schema if one != {"type": "null"}]
    if len(others) == 1:
        return others[0]
    for kinds, wide in _WIDENED:
        if others and all(set(one) == {"type"} and one["type"] in kinds for one in others):
            return {"type": wide}
    names = ", ".join(one["type"] for one in others)
    raise Invalid(
        f"field {path}, a union of {names}: a column holds null and one type, int and long, or float and double"
    )


def _fits(schema: dict[str, Any]) -> bool:
    """Whether Spark has a decimal of so many digits; one of more is read as its bytes."""
    return int(schema.get("precision", 0)) <= _MAX_DIGITS


def _without_logical(schema: Any) -> Any:
    """The schema with those logical types alone that fastavro converts: decimals that Spark can hold."""
    if isinstance(schema, list):
        return [_without_logical(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        name: value if name in ("default", "symbols") else _without_logical(value) for name, value in schema.items()
    }
    if "logicalType" in made and (made["logicalType"] != "decimal" or not _fits(made)):
        del made["logicalType"]
    return made


class AvroReader:
    """Decodes some fields of a record schema."""

    def __init__(self, fields: StructType, schema: dict[str, Any]) -> None:
        """Raises Invalid for a field that the schema does not have, or has with another type."""
        _compare(fields, avro_fields(schema))
        self._arrow = arrow_schema(fields)
        self._types = {one["name"]: one["type"] for one in _resolved(schema)["fields"] if one["name"] in fields.names}
        self._schema = _without_logical(schema)
        self._parsed: tuple[Any, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parsed": None}

    def problem(self, payload: bytes | None) -> str:
        """What is wrong with a payload."""
        return self._row(payload)[1] or "nothing is wrong with it"

    def read(self, payloads: pa.Array) -> Rows:
        """Decode payloads, one row each."""
        bad = np.zeros(len(payloads), bool)
        rows: list[dict[str, Any]] = []
        for at, payload in enumerate(payloads.to_pylist()):
            row, problem = self._row(payload)
            rows.append(row)
            bad[at] = problem is not None
        columns = [_array([row.get(field.name) for row in rows], field.type, bad) for field in self._arrow]
        return Rows(columns, bad)

    def _row(self, payload: bytes | None) -> tuple[dict[str, Any], str | None]:
        if payload is None:
            return {}, "there is no payload"
        if self._parsed is None:
            self._parsed = self._parse()
        # With a byte more: fastavro does not notice that it passes over more than there is.
        data = io.BytesIO(payload + b"\0")
        try:
            found: dict[str, Any] = fastavro().schemaless_reader(data, *self._parsed)
            row = {name: _read_value(found[name], kind) for name, kind in self._types.items()}
        except Exception as error:  # fastavro has several kinds, of damaged lengths MemoryError and OverflowError too
            return {}, f"it is no datum of the Avro schema: {error!r}"
        if data.tell() > len(payload):
            return {}, "it ends within the datum of the Avro schema"
        if data.tell() < len(payload):
            return {}, f"{len(payload) - data.tell()} bytes are left over after the datum of the Avro schema"
        return row, None

    def _parse(self) -> tuple[Any, Any]:
        """The schema of the data, and of what is wanted of it."""
        parse = fastavro().parse_schema
        whole = parse(copy.deepcopy(self._schema))
        fields = [one for one in self._schema["fields"] if one["name"] in self._types]
        try:
            return whole, parse(copy.deepcopy(self._schema | {"fields": fields}))
        except Exception:  # a field names a type that one which is not wanted defines
            return whole, whole


def _compare(fields: StructType, known: StructType) -> None:
    """Raises Invalid for columns that are not fields of the schema."""
    kinds = {field.name: field.dataType.simpleString() for field in known.fields}
    for field in fields.fields:
        kind = field.dataType.simpleString()
        if field.name not in kinds:
            raise Invalid(f"column {field.name}: the Avro schema has {', '.join(kinds)}")
        if kinds[field.name] != kind:
            raise Invalid(f"column {field.name} {kind}: the Avro schema has {kinds[field.name]}")


def _array(values: list[Any], kind: pa.DataType, bad: Any) -> pa.Array:
    """The values as an array; those that it cannot hold are null, and marked in `bad`."""
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        pass
    for at, value in enumerate(values):
        try:
            pa.array([value], kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            values[at], bad[at] = None, True
    return pa.array(values, kind)


def _read_value(value: Any, schema: Any) -> Any:
    """A value of fastavro as Arrow takes it: maps as pairs, times as microseconds."""
    if value is None:
        return None
    schema = _branch(schema)
    kind = schema["type"]
    if schema.get("logicalType") in _MILLIS:
        return value * _MICROS_PER_MILLI
    if kind == "array":
        return [_read_value(one, schema["items"]) for one in value]
    if kind == "map":
        return [(name, _read_value(one, schema["values"])) for name, one in value.items()]
    if kind == "record":
        return {one["name"]: _read_value(value[one["name"]], one["type"]) for one in schema["fields"]}
    return value


# -- writing --------------------------------------------------------------------------------------


def schema_of(fields: StructType, name: str = "topLevelRecord") -> dict[str, Any]:
    """The record schema that data of these columns is written with when none is given.  Raises Invalid."""
    arrow_schema(fields)
    made = _avro_type(fields, name)
    assert isinstance(made, dict)
    return made


def _avro_type(kind: DataType, name: str) -> Any:
    if isinstance(kind, StructType):
        fields = [
            {"name": one.name, "type": _or_null(_avro_type(one.dataType, f"{name}.{one.name}"), one.nullable)}
            for one in kind.fields
        ]
        return {"type": "record", "name": name, "fields": fields}
    if isinstance(kind, ArrayType):
        return {"type": "array", "items": _or_null(_avro_type(kind.elementType, name), kind.containsNull)}
    if isinstance(kind, MapType):
        if not isinstance(kind.keyType, StringType):
            raise Invalid(f"{kind.simpleString()}: the keys of an Avro map are strings")
        return {"type": "map", "values": _or_null(_avro_type(kind.valueType, name), kind.valueContainsNull)}
    if isinstance(kind, DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if isinstance(kind, TimestampType):
        return {"type": "long", "logicalType": "timestamp-micros"}
    if isinstance(kind, TimestampNTZType):
        return {"type": "long", "logicalType": "local-timestamp-micros"}
    if isinstance(kind, DateType):
        return {"type": "int", "logicalType": "date"}
    if isinstance(kind, ByteType | ShortType):
        return "int"
    return next(avro for avro, spark in _SIMPLE.items() if type(kind) is spark)


def _or_null(schema: Any, nullable: bool) -> Any:
    return [schema, "null"] if nullable else schema


class AvroWriter:
    """Encodes rows as data of a record schema."""

    def __init__(self, fields: StructType, schema: dict[str, Any] | None) -> None:
        """`schema` None: that of the columns.  Raises Invalid for columns that do not fit it."""
        self._schema = _without_logical(schema or schema_of(fields))
        self._types = {one["name"]: one["type"] for one in _resolved(schema or schema_of(fields))["fields"]}
        if schema is not None:
            _compare(fields, avro_fields(schema))
            lacking = [one for one in schema["fields"] if one["name"] not in fields.names and "default" not in one]
            missing = [one["name"] for one in lacking if not _nullable(self._types[one["name"]])]
            if missing:
                raise Invalid(f"there is no column {', '.join(missing)}, which the Avro schema needs")
        self._parsed: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parsed": None}

    def write(self, rows: pa.RecordBatch, keys: pa.Array | None) -> tuple[pa.Array, pa.Array | None]:
        """The payload of each row.  Raises Invalid naming the row that does not fit the schema."""
        if self._parsed is None:
            self._parsed = fastavro().parse_schema(copy.deepcopy(self._schema))
        encode = fastavro().schemaless_writer
        columns = {name: _integers(rows.column(name)).to_pylist() for name in rows.schema.names}
        payloads = []
        for at in range(len(rows)):
            row = {name: _written_value(values[at], self._types[name]) for name, values in columns.items()}
            data = io.BytesIO()
            try:
                encode(data, self._parsed, row)
            except Exception as error:  # fastavro has several kinds
                raise Invalid(f"row {at} of a batch does not fit the Avro schema: {error!r}"[:400]) from None
            payloads.append(data.getvalue())
        return pa.array(payloads, pa.large_binary()), keys


def _integers(values: pa.Array) -> pa.Array:
    """Dates and times as integers, which Python's own types could not always hold."""
    raw = _raw_type(values.type)
    return values if raw == values.type else values.cast(raw)


def _raw_type(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_timestamp(kind):
        return pa.int64()
    if types.is_date(kind):
        return pa.int32()
    if types.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(_raw_type(kind.item_type)))
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_raw_type(kind.value_type)))
    if types.is_struct(kind):
        return pa.struct([field.with_type(_raw_type(field.type)) for field in kind])
    return kind


def _written_value(value: Any, schema: Any) -> Any:
    """A value of Arrow as fastavro takes it."""
    if value is None:
        return None
    schema = _branch(schema)
    kind = schema["type"]
    if schema.get("logicalType") in _MILLIS:
        return value // _MICROS_PER_MILLI
    if kind == "array":
        return [_written_value(one, schema["items"]) for one in value]
    if kind == "map":
        return {name: _written_value(one, schema["values"]) for name, one in value}
    if kind == "record":
        return {one["name"]: _written_value(value.get(one["name"]), one["type"]) for one in schema["fields"]}
    return value
