"""What a loader hands out: columns of numpy arrays where the type allows, else lists (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Corrupt, Invalid

if TYPE_CHECKING:
    import pyarrow as pa

    from sarit.serializers.payload_columns import PayloadColumns

VALUE: Final = "value"
RAISE: Final = "raise"
SKIP: Final = "skip"


@dataclass(frozen=True)
class Form:
    """A choice of what becomes of events.

    `dtype` and `shape`: each event is an array of this form.  `columns`: the reader of payloads.  Neither: bytes.
    `envelope`: payloads are taken out of envelopes first.  `positions`: where each event is stored is handed out, too.
    `on_error`: what to do with an event that does not fit: "raise", or "skip" it."""

    dtype: str | None = None
    shape: tuple[int, ...] = ()
    columns: PayloadColumns | None = None
    envelope: bool = False
    positions: bool = False
    on_error: str = RAISE

    def __post_init__(self) -> None:
        """Check the choices.  Raises Invalid."""
        if self.dtype is not None and self.columns is not None:
            raise Invalid("an event is an array (dtype, shape) or has columns: give one")
        if self.dtype is None and self.shape:
            raise Invalid("a shape needs a dtype, as dtype='uint8'")
        if self.on_error not in (RAISE, SKIP):
            raise Invalid(f"on_error={self.on_error}: give raise or skip")
        if self.dtype is not None and not self.event_bytes:
            raise Invalid(f"arrays of dtype={self.dtype} and shape={self.shape} have no bytes")

    @cached_property
    def event_bytes(self) -> int:
        """How long an event is, if it is an array.  Raises Invalid."""
        import numpy as np

        try:
            kind = np.dtype(self.dtype)
        except TypeError:
            raise Invalid(f"dtype={self.dtype} is no type of numpy") from None
        if kind.hasobject or any(size < 0 for size in self.shape):
            raise Invalid(f"events cannot be arrays of dtype={self.dtype} and shape={self.shape}")
        return int(kind.itemsize) * prod(self.shape)

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of `table`."""
        import pyarrow as pa

        fields = [pa.field(VALUE, pa.binary())] if self.columns is None else list(self.columns.schema)
        if self.positions:
            fields += [pa.field("segment", pa.int64()), pa.field("offset", pa.int64())]
        return pa.schema(fields)

    def values(self, batch: pa.RecordBatch) -> dict[str, Any]:
        """Return a batch (event, segment, offset) as columns.  Raises Corrupt (an event that does not fit), Invalid."""
        import numpy as np

        if self.dtype is None:
            return column_values(self.table(batch))
        payloads, bad = self._payloads(batch)
        wrong = np.diff(_offsets(payloads)) != self.event_bytes
        batch, payloads = self._fitting(batch, payloads, wrong if bad is None else wrong | bad)
        found = {VALUE: self._arrays(payloads)}
        if self.positions:
            found |= {name: np.array(batch.column(name)) for name in ("segment", "offset")}
        return found

    def table(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch (event, segment, offset) as a table of `schema`.  Raises Corrupt: an event does not fit."""
        import pyarrow as pa

        payloads, bad = self._payloads(batch)
        if self.columns is None:
            if bad is not None:
                batch, payloads = self._fitting(batch, payloads, bad)
            arrays = [payloads]
        else:
            rows = self.columns.read(payloads)
            read = pa.RecordBatch.from_arrays(list(rows.columns), schema=self.columns.schema)
            batch, read = self._fitting(batch, read, rows.bad if bad is None else rows.bad | bad, payloads)
            arrays = read.columns
        if self.positions:
            arrays = [*arrays, batch.column(1), batch.column(2)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _payloads(self, batch: pa.RecordBatch) -> tuple[pa.Array, Any]:
        """Return the payloads of events, and, where these are envelopes, which are bad."""
        if not self.envelope:
            return batch.column(0), None
        from sarit.core.envelope_columns import decode

        decoded = decode(batch.column(0), ("payload",))
        return decoded.columns["payload"], decoded.bad

    def _arrays(self, payloads: pa.Array) -> Any:
        import numpy as np

        count, size = len(payloads), self.event_bytes
        begin = int(_offsets(payloads)[0])
        # A copy, which may be written to: the bytes are Arrow's.
        flat = np.frombuffer(payloads.buffers()[2] or b"", np.uint8, count * size, begin).copy()
        return flat.view(np.dtype(self.dtype)).reshape(count, *self.shape)

    def _fitting(self, batch: pa.RecordBatch, values: Any, wrong: Any, payloads: pa.Array | None = None) -> Any:
        """Return the rows without the wrong ones.  Raises Corrupt, unless they are skipped."""
        import pyarrow as pa

        if not wrong.any():
            return batch, values
        if self.on_error == SKIP:
            mask = pa.array(~wrong)
            return batch.filter(mask), values.filter(mask)
        at = int(wrong.argmax())
        event = batch.column(0)[at].as_py()
        where = f"the event at {batch.column(2)[at].as_py()} of segment {batch.column(1)[at].as_py()}"
        advice = 'on_error="skip" leaves such events out'
        if self.dtype is not None:
            raise Corrupt(f"{where} has {len(event)} bytes where {self.event_bytes} are needed; {advice}")
        problem = "it is no envelope"
        if self.columns is not None and payloads is not None and payloads[at].is_valid:
            problem = self.columns.problem(payloads[at].as_py())
        raise Corrupt(f"{where} does not fit: {problem}; {advice}")


def _offsets(array: pa.Array) -> Any:
    import numpy as np

    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)


def column_values(columns: Any) -> dict[str, Any]:
    """Return the columns of a record batch or struct array by name.  Raises Invalid: a number is missing."""
    return {field.name: _column(field.name, columns.column(at)) for at, field in enumerate(columns.schema)}


def _column(name: str, array: Any) -> Any:
    import numpy as np
    import pyarrow as pa

    kind = array.type
    if pa.types.is_struct(kind):
        parts = array.flatten()
        return {field.name: _column(f"{name}.{field.name}", part) for field, part in zip(kind, parts, strict=True)}
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        array = array.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
        kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        if array.null_count and not pa.types.is_floating(kind):
            raise Invalid(
                f"column {name} lacks {array.null_count} values, and no tensor of {kind} says so: give the field a "
                "default in the schema, read it as a floating-point number, or leave it out"
            )
        return np.array(array.to_numpy(zero_copy_only=False))
    if pa.types.is_fixed_size_binary(kind) and not array.null_count and not pa.types.is_decimal(kind):
        size = kind.byte_width
        return (
            np.frombuffer(array.buffers()[1], np.uint8, len(array) * size, array.offset * size).reshape(-1, size).copy()
        )
    if pa.types.is_fixed_size_list(kind) and not array.null_count and _is_number(kind.value_type):
        return _column(name, array.flatten()).reshape(len(array), kind.list_size)
    return array.to_pylist()


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))
