"""The columns of a read, as Arrow batches.

A read can have these columns:

* the event: `event`, binary or string (UTF-8);
* the event's place: `scope`, `stream` (without the scope), `segment_id` (`epoch << 32 | number`), `offset` (of the
  event's header in its segment);
* the event's envelope (option `envelope`): `key`, `event_time`, `headers`, `payload`;
* the event's typed payload (option `format`): a column per field, or all in the struct column `payloadColumn`;
* `cut`: the end of the read (option `includeCut`);
* `noted_time`: the time that the stream's writers had noted before the event (option `notedTime`);
* `_corrupt_record`: an event that cannot be decoded.

A query selects columns with `.schema(...)`; only these are decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sarit.core.envelope import Envelope
from sarit.core.envelope_columns import TIME_TYPE, decode, is_text
from sarit.core.errors import Invalid, SaritError
from sarit.spark.formats.options import DROPMALFORMED, FAILFAST, FormatOptions
from sarit.spark.formats.payloads import payload_reader, payload_schema
from sarit.spark.formats.types import arrow_schema
from sarit.spark.source.position import to_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql.types import DataType

    from sarit.schemas.payloads import PayloadReader, Rows
    from sarit.spark.source.ranges import Range

HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

EVENT: Final = StructType([StructField("event", BinaryType())])
ENVELOPE: Final = StructType(
    [
        StructField("key", StringType()),
        StructField("event_time", TimestampType()),
        StructField("headers", HEADERS),
    ]
)
PAYLOAD: Final = StructType([StructField("payload", BinaryType())])
PLACE: Final = StructType(
    [
        StructField("scope", StringType()),
        StructField("stream", StringType()),
        StructField("segment_id", LongType()),
        StructField("offset", LongType()),
    ]
)

CUT: Final = StructField("cut", StringType())
NOTED_TIME: Final = StructField("noted_time", TimestampType())

# Columns with one value for all events of a range, and how to get the value.
_OF_RANGE: Final[dict[str, Callable[[Range], object]]] = {
    "scope": lambda part: part.stream.scope,
    "stream": lambda part: part.stream.stream,
    "segment_id": lambda part: part.segment.packed,
    "cut": lambda part: part.cut,
}

_BYTES_OR_TEXT: Final = (BinaryType, StringType)
_PLACE_TYPES: Final[dict[str, tuple[type[DataType], ...]]] = {
    "event": _BYTES_OR_TEXT,
    "scope": (StringType,),
    "stream": (StringType,),
    "segment_id": (LongType,),
    "offset": (LongType,),
}
_ENVELOPE_TYPES: Final[dict[str, tuple[type[DataType], ...]]] = {
    "key": (StringType, BinaryType),
    "event_time": (TimestampType, TimestampNTZType, LongType),
    "headers": (ArrayType,),
    "payload": _BYTES_OR_TEXT,
}


def read_schema(formats: FormatOptions, first_event: Callable[[], bytes | None] = lambda: None) -> StructType:
    """Return the columns of a read without `.schema(...)`.  `first_event`: reads the stream's first event, from whose
    payload format `arrow` takes them.  Raises Invalid when the fields of payloads are not known."""
    place = [*PLACE.fields, *([CUT] if formats.include_cut else ()), *([NOTED_TIME] if formats.noted_time else ())]
    if not formats.typed:
        own = [*ENVELOPE.fields, *PAYLOAD.fields] if formats.envelope else EVENT.fields
        return StructType([*own, *place])
    fields = payload_schema(formats, lambda: _payload(formats, first_event()))
    columns = fields.fields if formats.payload_column is None else [StructField(formats.payload_column, fields)]
    others = [*(ENVELOPE.fields if formats.envelope else ()), *place]
    taken = {field.name for field in others} | {"event"}
    clash = [field.name for field in columns if field.name in taken]
    if clash:
        raise Invalid(
            f"payloads have a field {clash[0]}, and a read has a column of that name: give "
            '.option("payloadColumn", "data") for a struct column with all fields of the payload'
        )
    return StructType([*columns, *others])


def _payload(formats: FormatOptions, event: bytes | None) -> bytes | None:
    return Envelope.parse(event).payload if formats.envelope and event is not None else event


class Projection:
    """Makes the columns of one read from events.  Made on the driver, and pickled for the tasks."""

    def __init__(self, schema: StructType, formats: FormatOptions = FormatOptions()) -> None:  # noqa: B008
        """Raises Invalid for columns that a read does not have; the error lists those that it can have."""
        self._formats = formats
        self._schema = arrow_schema(schema)
        known = dict(_PLACE_TYPES)
        if formats.include_cut:
            known[CUT.name] = (StringType,)
        if formats.noted_time:
            known[NOTED_TIME.name] = (TimestampType, TimestampNTZType)
        if formats.envelope:
            known |= _ENVELOPE_TYPES
            if formats.typed:
                del known["payload"]
        if formats.typed or formats.envelope:
            known[formats.corrupt_column] = _BYTES_OR_TEXT
        typed = [field for field in schema.fields if formats.typed and field.name not in known]
        self._reader: PayloadReader | None = None
        self._fields: dict[str, int] = {}  # the index of each typed column in the reader's columns
        if typed:
            self._reader = payload_reader(formats, _payload_fields(typed, formats.payload_column))
            self._fields = {field.name: at for at, field in enumerate(typed)}
        plain = StructType([field for field in schema.fields if field.name not in self._fields])
        typed_columns(plain, known, _rule(formats))
        _check_headers(plain)
        self._wanted = {field.name for field in schema.fields}
        texts = {field.name for field in plain.fields if isinstance(field.dataType, StringType)}
        self._as_text = texts & {"event", "payload"}

    def batch(self, events: pa.Array, offsets: pa.Array, part: Range) -> pa.RecordBatch:
        """Return one batch of the wanted columns.  Binary events are not copied.

        Rows of malformed events are left out with DROPMALFORMED, and an event may be several rows with format `arrow`.
        Raises Invalid, with the event's place, for a malformed event with FAILFAST, for a plain event that is wanted as
        text and is not UTF-8, and for a null in a NOT NULL column."""
        found: dict[str, pa.Array] = {"event": events, "offset": offsets}
        if NOTED_TIME.name in self._wanted and self._formats.noted_time:
            found[NOTED_TIME.name] = _noted(offsets, part.times)
        bad: Any = None  # which rows are malformed; None: no row is
        payloads = corrupt = events
        if self._formats.envelope:
            decoded = decode(events, self._of_envelope())
            found |= decoded.columns
            bad = decoded.bad
            payloads = decoded.columns.get("payload", events)
        if self._reader is not None:
            rows = self._reader.read(payloads)
            corrupt = events if bad is None else pc.if_else(pa.array(bad), events, payloads)
            if rows.event_of is not None:
                index = pa.array(rows.event_of)
                found = {name: column.take(index) for name, column in found.items()}
                corrupt = corrupt.take(index)
            bad = rows.bad
            found |= self._payload_columns(rows)
        events = found["event"]
        if self._formats.typed or self._formats.envelope:
            bad = self._texts(found, bad)
        if bad is not None and bad.any():
            found, corrupt, bad = self._by_mode(found, corrupt, bad, events, part)
        count = len(found["offset"])
        if self._formats.corrupt_column in self._wanted and bad is not None:
            found[self._formats.corrupt_column] = pc.if_else(pa.array(bad), corrupt, pa.scalar(None, corrupt.type))
        return pa.RecordBatch.from_arrays(
            [self._column(field, found, count, part) for field in self._schema], schema=self._schema
        )

    def _of_envelope(self) -> set[str]:
        return (self._wanted - set(self._fields)) | ({"payload"} if self._reader is not None else set())

    def _payload_columns(self, rows: Rows) -> dict[str, pa.Array]:
        name = self._formats.payload_column
        if name is None:
            return {name: rows.columns[at] for name, at in self._fields.items()}
        kind = self._schema.field(name).type
        return {name: pa.StructArray.from_arrays(rows.columns, fields=list(kind))}

    def _texts(self, found: dict[str, pa.Array], bad: Any) -> Any:
        """Convert the event and payload columns in `found` to text where text is wanted; malformed UTF-8 becomes null.
        Returns `bad` with these rows added."""
        for name in self._as_text & found.keys():
            column = found[name]
            try:
                found[name] = column.cast(pa.string())
            except pa.ArrowInvalid:
                wrong = np.array([value is not None and not is_text(value) for value in column.to_pylist()])
                bad = wrong if bad is None else bad | wrong
                found[name] = pc.if_else(pa.array(wrong), pa.scalar(None, column.type), column).cast(pa.string())
        return bad

    def _by_mode(
        self, found: dict[str, pa.Array], corrupt: pa.Array, bad: Any, events: pa.Array, part: Range
    ) -> tuple[dict[str, pa.Array], pa.Array, Any]:
        if self._formats.mode == FAILFAST:
            at = int(bad.argmax())
            event = events[at].as_py()
            raise Invalid(
                f"{_place(part, found['offset'][at].as_py())} is malformed: {self._problem(event)}; "
                f'.option("mode", "PERMISSIVE") reads it as nulls, "{DROPMALFORMED}" leaves it out'
            )
        if self._formats.mode == DROPMALFORMED:
            good = pa.array(~bad)
            return {name: column.filter(good) for name, column in found.items()}, corrupt.filter(good), bad[~bad]
        return found, corrupt, bad

    def _problem(self, event: bytes) -> str:
        try:
            payload = Envelope.parse(event).payload if self._formats.envelope else event
        except SaritError as error:
            return str(error)
        for name, value in (("event", event), ("payload", payload)):
            if name in self._as_text and not is_text(value):
                return f"it is not UTF-8: read column {name} as binary"
        assert self._reader is not None, "the two decoders of the envelope differ"
        return self._reader.problem(payload)

    def _column(self, field: pa.Field, found: Mapping[str, pa.Array], count: int, part: Range) -> pa.Array:
        if field.name in _OF_RANGE and field.name not in self._fields:
            return pa.repeat(pa.scalar(_OF_RANGE[field.name](part), field.type), count)
        column = found.get(field.name)
        if column is None:  # the column for corrupt events, of which there are none
            return pa.nulls(count, field.type)
        if column.type != field.type:
            column = self._cast(column, field, found, part)
        if not field.nullable and column.null_count:
            at = column.is_null().to_numpy(zero_copy_only=False).argmax()
            raise Invalid(
                f"column {field.name} is NOT NULL, and null for {_place(part, found['offset'][int(at)].as_py())}"
            )
        return column

    def _cast(self, column: pa.Array, field: pa.Field, found: Mapping[str, pa.Array], part: Range) -> pa.Array:
        if field.name == "headers":
            flat = column.values
            own = field.type.value_type
            named = pa.StructArray.from_arrays([flat.field(0), flat.field(1)], fields=[own.field(0), own.field(1)])
            mask = column.is_null() if column.null_count else None
            return pa.ListArray.from_arrays(column.offsets, named, type=field.type, mask=mask)
        if column.type == TIME_TYPE and pa.types.is_integer(field.type):
            return column.cast(pa.int64())
        if not pa.types.is_string(field.type):
            return column.cast(field.type)
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid:
            if field.name == self._formats.corrupt_column:
                return pa.array([value and value.decode("utf-8", "replace") for value in column.to_pylist()])
            texts = enumerate(column.to_pylist())
            at = next(at for at, value in texts if value is not None and not is_text(value))
            place = _place(part, found["offset"][at].as_py())
            raise Invalid(f"{place} is not UTF-8: read column {field.name} as binary") from None


def _payload_fields(typed: list[StructField], payload_column: str | None) -> StructType:
    if payload_column is None:
        return StructType(typed)
    for field in typed:
        if field.name != payload_column:
            raise Invalid(
                f"column {field.name}: with option payloadColumn the fields are in the struct {payload_column}"
            )
    (column,) = typed
    if not isinstance(column.dataType, StructType):
        raise Invalid(f"column {payload_column} {column.dataType.simpleString()}: option payloadColumn names a struct")
    return column.dataType


def _place(part: Range, offset: int) -> str:
    return f"the event at offset {offset} of segment {to_name(part.segment)} of {part.stream}"


def _check_headers(schema: StructType) -> None:
    for field in schema.fields:
        if field.name == "headers" and field.dataType.simpleString().count("string,value:binary") != 1:
            fields = getattr(getattr(field.dataType, "elementType", None), "fields", [])
            kinds = [type(one.dataType) for one in fields]
            if kinds != [StringType, BinaryType]:
                raise Invalid(
                    f"column headers {field.dataType.simpleString()}: give array<struct<key: string, value: binary>>"
                )


def _rule(formats: FormatOptions) -> str:
    def text(schema: StructType) -> str:
        return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)

    has = "event binary"
    if formats.envelope:
        has = f"{text(ENVELOPE)}, {has}" if formats.typed else f"{text(ENVELOPE)}, {text(PAYLOAD)}, {has}"
    if formats.typed or formats.envelope:
        has += f", {formats.corrupt_column} string"
    advice = (
        "" if formats.typed or formats.envelope else '; fields of payloads need .option("format", "json") or another'
    )
    return f"reading gives {has}, {text(PLACE)} (event may be string) or some of these{advice}"


def _noted(offsets: pa.Array, times: Sequence[tuple[int, int]]) -> pa.Array:
    """Return for each event's offset the last time that was noted at or before it; null: none was noted yet."""
    if not times:
        return pa.nulls(len(offsets), TIME_TYPE)
    begins, millis = np.array(times, np.int64).T
    index = np.searchsorted(begins, offsets.to_numpy(zero_copy_only=False), "right") - 1
    return pa.array(millis[np.maximum(index, 0)] * 1000, mask=index < 0).cast(TIME_TYPE)


def typed_columns(
    schema: StructType, known: Mapping[str, tuple[type[DataType], ...]], rule: str
) -> list[tuple[str, bool]]:
    """Return the columns as (name, is text).  Raises Invalid, with `rule`, for a column that is not in `known`."""
    for field in schema.fields:
        if not isinstance(field.dataType, known.get(field.name, ())):
            raise Invalid(f"column {field.name} {field.dataType.simpleString()}: {rule}")
    return [(field.name, isinstance(field.dataType, StringType)) for field in schema.fields]
