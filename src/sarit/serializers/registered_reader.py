"""Payloads that name their schemas, to columns.

Most batches have one schema: their headers are cut off at once, and the rest is decoded as with a given schema.  The
payloads of a mixed batch are decoded schema by schema, and put back in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sarit.core.errors import Invalid, NotFound
from sarit.core.properties import PRAVEGA
from sarit.schemas.avro_reader import AvroReader
from sarit.schemas.avro_schema import avro_columns, parse_avro_schema
from sarit.schemas.json_reader import JsonReader
from sarit.schemas.payloads import Rows
from sarit.schemas.schema_text import shown
from sarit.serializers.codecs import check_codec, decompressed
from sarit.serializers.headers import CONFLUENT_MAGIC, PRAVEGA_MAGIC, header_number
from sarit.serializers.known_readers import KnownReaders, NoReader
from sarit.serializers.limits import HEADER_BYTES, MAX_DECOMPRESSED_EVENT_BYTES
from sarit.serializers.schema import AVRO, JSON, PROTOBUF
from sarit.serializers.schema_source import UnusableSchema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sarit.env.ports import Clock
    from sarit.schemas.payloads import PayloadReader
    from sarit.serializers.schema_source import SchemaSource, WrittenSchema

_NO_ID: Final = -1
_NO_HEADER: Final = NoReader("it has no such header")


class _Undecodable(Exception):
    """The registry has a schema whose payloads this reader does not decode."""


class RegisteredReader:
    """Decodes some columns of payloads, each by the schema that its header names.  May be pickled, if its source is."""

    def __init__(
        self,
        source: SchemaSource,
        own: WrittenSchema,
        subject: str,
        header: str,
        wanted: pa.Schema,
        time_zone: str = "UTC",
        clock: Clock | None = None,
    ) -> None:
        """`own`: the schema that gives the columns.  `wanted`: some of its columns.  `header`: of the events.
        `clock`: says when an unknown number is asked for again; None: never by this reader.

        Raises Invalid for other columns."""
        self._source = source
        self._own = own
        self._subject = subject
        self._header = header
        self._wanted = wanted
        # Checks the columns before there is any event.
        self._plain = plain_reader(own, wanted, time_zone)
        self._schema = parse_avro_schema(own.text) if own.format == AVRO else None
        self._message = _main_message(own) if own.format == PROTOBUF else ""
        self._clock = clock
        self._decoders: KnownReaders[PayloadReader] = KnownReaders(clock)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_decoders": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._decoders = KnownReaders(self._clock)

    def problem(self, payload: bytes) -> str:
        """Return what is wrong with a payload."""
        try:
            number = header_number(self._header, payload)
        except Invalid as error:
            return str(error)
        decoder = self._decoder(number)
        if isinstance(decoder, NoReader):
            return f"schema {number}: {decoder.why}"
        return f"schema {number}: {decoder.problem(payload[HEADER_BYTES:])}"

    def read(self, payloads: pa.Array) -> Rows:
        """Decode payloads, one row each.  Raises Unavailable, Forbidden, Unauthenticated: the registry did not tell."""
        numbers = _numbers(payloads, PRAVEGA_MAGIC if self._header == PRAVEGA else CONFLUENT_MAGIC)
        bodies = pc.binary_slice(payloads, HEADER_BYTES, max(payloads.nbytes, HEADER_BYTES))
        if not len(numbers) or (numbers == numbers[0]).all():
            return self._read_group(int(numbers[0]) if len(numbers) else _NO_ID, bodies)
        order = np.argsort(numbers, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
        rows = [self._read_group(int(numbers[one[0]]), bodies.take(pa.array(one))) for one in groups]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        index = pa.array(back)
        columns = [
            pa.concat_arrays(list(parts)).take(index) for parts in zip(*(one.columns for one in rows), strict=True)
        ]
        return Rows(columns, np.concatenate([one.bad for one in rows])[back])

    def _read_group(self, number: int, bodies: pa.Array) -> Rows:
        """Decode payloads of one schema."""
        decoder = _NO_HEADER if number == _NO_ID else self._decoder(number)
        if isinstance(decoder, NoReader):
            return Rows([pa.nulls(len(bodies), field.type) for field in self._wanted], np.ones(len(bodies), bool))
        return decoder.read(bodies)

    def _decoder(self, number: int) -> PayloadReader | NoReader:
        """Return the decoder for a schema, or why its payloads cannot be decoded."""
        found = self._decoders.get(number)
        if found is not None:
            return found
        try:
            return self._decoders.add(number, self._made(number))
        except (NotFound, UnusableSchema, _Undecodable) as error:
            return self._decoders.add_missing(number, str(error))

    def _made(self, number: int) -> PayloadReader:
        written = self._source.written(self._subject, number, self._header)
        if written.format != self._own.format:
            raise _Undecodable(f"it is {written.format}, and {self._own.format} is read")
        try:
            check_codec(written.codec)
            decoder = self._decoder_of(written)
        except (Invalid, RecursionError) as error:
            raise _Undecodable(str(error)) from None
        return CompressedReader(decoder, text=self._own.format == JSON) if written.codec else decoder

    def _decoder_of(self, written: WrittenSchema) -> PayloadReader:
        if self._own.format == JSON:
            return self._plain
        if self._own.format == PROTOBUF:
            from sarit.serializers.protobuf_messages import FileMessages, MessageReader

            messages = FileMessages(written)
            if self._header == PRAVEGA:
                if messages.main != self._message:
                    raise _Undecodable(f"it is of messages {messages.main}, and messages {self._message} are read")
                return self._plain
            return MessageReader(self._plain, messages, self._message)
        if written.text == self._own.text and not written.codec:
            return self._plain
        data, padded = parse_avro_schema(written.text, "the schema"), bool(written.codec)
        return AvroReader(self._wanted, self._schema or {}, data, recursive=written.recursive, padded=padded)


def columns_of_schema(schema: WrittenSchema) -> pa.Schema:
    """Return the columns of a schema's data.  Raises Invalid: they have none."""
    if schema.format == AVRO:
        return avro_columns(parse_avro_schema(schema.text))
    if schema.format == PROTOBUF:
        from sarit.serializers.protobuf_messages import FileMessages

        return FileMessages(schema).columns()
    if schema.format == JSON:
        from sarit.schemas.json_columns import json_columns

        return json_columns(schema.text)
    raise Invalid(f"the schema is of the format {shown(schema.format)}, whose data have no columns")


def plain_reader(schema: WrittenSchema, wanted: pa.Schema, time_zone: str = "UTC") -> PayloadReader:
    """Return a decoder of some columns of a schema's data, which have no header.  Raises Invalid for other columns."""
    if schema.format == AVRO:
        return AvroReader(wanted, parse_avro_schema(schema.text))
    if schema.format == PROTOBUF:
        from sarit.serializers.protobuf_messages import FileMessages

        return FileMessages(schema).reader(wanted)
    if schema.format == JSON:
        return JsonReader(wanted, time_zone)
    raise Invalid(f"the schema is of the format {shown(schema.format)}, whose data have no columns")


def _main_message(schema: WrittenSchema) -> str:
    from sarit.serializers.protobuf_messages import FileMessages

    return FileMessages(schema).main


class CompressedReader:
    """Decompresses payloads for another decoder, a bounded number of bytes at once."""

    def __init__(self, inner: PayloadReader, *, text: bool) -> None:
        """`text`: payloads end before the zeros that may follow; otherwise `inner` knows their end."""
        self._inner = inner
        self._text = text

    def problem(self, payload: bytes) -> str:
        """Return what is wrong with a payload."""
        try:
            return self._inner.problem(self._payload(payload))
        except Invalid as error:
            return str(error)

    def read(self, payloads: pa.Array) -> Rows:
        """Decode payloads, one row each."""
        rows = [self._inner.read(pa.array(part, pa.large_binary())) for part in self._parts(payloads)]
        if not rows:
            return self._inner.read(payloads)
        columns = [pa.concat_arrays(list(parts)) for parts in zip(*(one.columns for one in rows), strict=True)]
        return Rows(columns, np.concatenate([one.bad for one in rows]))

    def _payload(self, data: bytes) -> bytes:
        found = decompressed(data)
        return found.rstrip(b"\0") if self._text else found

    def _parts(self, payloads: pa.Array) -> Iterator[list[bytes | None]]:
        """Yield decompressed payloads, None for what is not compressed, as many at once as the bound allows."""
        part: list[bytes | None] = []
        size = 0
        for one in payloads.to_pylist():
            try:
                part.append(self._payload(one))
            except Invalid:
                part.append(None)
            size += len(part[-1] or b"")
            if size >= MAX_DECOMPRESSED_EVENT_BYTES:
                yield part
                part, size = [], 0
        if part:
            yield part


def _numbers(payloads: pa.Array, magic: int) -> Any:
    """Return the number in the header of each payload (numpy int64); _NO_ID: it has no such header."""
    wide = pa.types.is_large_binary(payloads.type)
    buffers = payloads.buffers()
    offsets = np.frombuffer(buffers[1], np.int64 if wide else np.int32)[payloads.offset :][: len(payloads) + 1]
    data = np.frombuffer(buffers[2] or b"", np.uint8)
    starts = offsets[:-1].astype(np.int64)
    found = np.full(len(payloads), _NO_ID, np.int64)
    long = np.flatnonzero(np.diff(offsets) >= HEADER_BYTES)
    if payloads.null_count:
        long = long[payloads.is_valid().to_numpy(zero_copy_only=False)[long]]
    right = long[data[starts[long]] == magic]
    at = starts[right]
    value = np.zeros(len(right), np.int64)
    for byte in range(1, HEADER_BYTES):
        value = value << 8 | data[at + byte]
    if magic == PRAVEGA_MAGIC:
        value[value > np.iinfo(np.int32).max] = _NO_ID  # the field is signed
    found[right] = value
    return found
