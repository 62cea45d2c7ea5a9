"""Every form in which an event is written, by every reader: the very bytes come back, or the reader refuses them."""

from __future__ import annotations

import io
import json
import tempfile
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from pyspark.sql.types import StructType

from sarit.cli import read, write
from sarit.cli.envelopes import EnvelopeParts
from sarit.cli.transfer import parquet_format, raw_format
from sarit.cli.transfer.import_command import _lines
from sarit.cli.transfer.rows import FIELDS, row_of, to_json
from sarit.core.bounded_json import MAX_JSON_TOKENS, parse_json
from sarit.core.cuts import StreamCut
from sarit.core.envelope import Envelope
from sarit.core.errors import Invalid
from sarit.core.names import SegmentId, StreamName
from sarit.spark.formats.columns import ENVELOPE, EVENT, PAYLOAD, Projection
from sarit.spark.formats.encoders import encoder
from sarit.spark.formats.options import FormatOptions
from sarit.spark.source.ranges import Range
from tests.limits import examples
from tests.unit.spark.fake_stream import B, S

PART_NAME = parquet_format.part_name(0)
EVENTS = [
    b"", b"plain", b"\xff\x00", b"line\nbreak", b"ends with\r", b'{"event": "x"}', "ä€😀\u2028".encode(),
    b"\xf5SE\x01 damaged",
    bytes(Envelope("bare")),
    bytes(Envelope(b"\xff", key="k", event_time=-1, headers=[("h", b"\xfe"), ("h", b""), ("", b"t")])),
    bytes(Envelope("far", event_time=1 << 62)),
    bytes(Envelope("", key="", event_time=0)),
    bytes(Envelope("in the year 1", event_time=-62_135_596_800_000_000)),
    bytes(Envelope("nested").__bytes__()),
]  # fmt: skip


def parquet(event: bytes, path, without=(), rename=None) -> object:
    parquet_format.write_part(Path(path, PART_NAME), [row_of(event, 7)])
    table = pq.read_table(Path(path, PART_NAME)).drop_columns(list(without))
    pq.write_table(table.rename_columns(rename or {}), Path(path, PART_NAME))
    return path


def as_parquet(event: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as name:
        parquet(event, Path(name))
        return Path(name, PART_NAME).read_bytes()


def documents(*, envelope: bool):
    form = read._form(envelope, None, as_json=True)
    assert form is not None
    cut = StreamCut(StreamName("s", "t"), {SegmentId(0, 0): 0})
    return lambda event: next(iter(form([event], cut, SegmentId(0, 0))))


def raw(event: bytes) -> bytes:
    record = raw_format.encode(row_of(event, 7))
    return raw_format.HEAD + record + raw_format.end(1, raw_format.checksum(record))


def by_write(line: bytes, *, envelope: bool) -> bytes:
    parts = EnvelopeParts(None, ()) if envelope else None
    return write._document(line, None, 1, parts, drop_unknown=False).event


def by_import(text: bytes) -> bytes:
    (row,) = _lines(io.BytesIO(text), drop_unknown=False)
    return row.event


def by_parquet(data: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as name:
        Path(name, PART_NAME).write_bytes(data)
        (row,) = parquet_format.rows(name)
    return row.event


WRITERS = {
    "read --format json": documents(envelope=False),
    "read --envelope --format json": documents(envelope=True),
    "export --as jsonl": lambda event: to_json(row_of(event, 7)),
    "export --as raw": raw,
    "export --as parquet": as_parquet,
}
LINES = {"read --format json", "read --envelope --format json", "export --as jsonl"}
READERS = {
    "write --format json": lambda text: by_write(text, envelope=False),
    "write --envelope --format json": lambda text: by_write(text, envelope=True),
    "import --as jsonl": by_import,
    "import --as raw": lambda text: next(raw_format.rows(io.BytesIO(text))).event,
    "import --as parquet": by_parquet,
}
OWN = {"export --as raw": "import --as raw", "export --as parquet": "import --as parquet"}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("event", EVENTS, ids=range(len(EVENTS)))
def test_an_event_comes_back_exactly_or_is_refused(writer, reader, event) -> None:
    if writer == "read --envelope --format json" and b"damaged" in event:
        pytest.skip("it refuses it itself")
    written = WRITERS[writer](event)
    asked_for = reader == "write --envelope --format json" and writer == "read --format json"
    if (writer in LINES and "json" in reader) or OWN.get(writer) == reader:
        if asked_for and not Envelope.is_envelope(event):
            assert READERS[reader](written) == bytes(Envelope(event))
        elif asked_for:
            with pytest.raises(Invalid, match="leave --envelope away"):
                READERS[reader](written)
        else:
            assert READERS[reader](written) == event
        return
    with pytest.raises(Invalid):
        READERS[reader](written)


@pytest.mark.parametrize("event", EVENTS, ids=range(len(EVENTS)))
def test_an_event_comes_back_of_the_columns_of_spark(event) -> None:
    schema, formats = EVENT, FormatOptions()
    if Envelope.is_envelope(event) and b"damaged" not in event:
        schema, formats = StructType([*ENVELOPE.fields, *PAYLOAD.fields]), FormatOptions(envelope=True)
    rows = Projection(schema, formats).batch(pa.array([event], pa.large_binary()), pa.array([0]), Range(S, B, 0, 100))
    assert encoder(schema, formats).encode(rows)[0].to_pylist() == [event]


@given(
    some.binary(max_size=20), some.none() | some.text(max_size=5),
    some.none() | some.integers(-(1 << 63), (1 << 63) - 1),
    some.lists(some.tuples(some.text(max_size=3), some.binary(max_size=3)), max_size=3),
)  # fmt: skip
def test_every_envelope_comes_back_of_its_line(payload, key, time, headers) -> None:
    event = bytes(Envelope(payload, key=key, event_time=time, headers=headers))
    for line in (to_json(row_of(event, None)), documents(envelope=True)(event)):
        assert by_import(line) == by_write(line, envelope=False) == by_write(line, envelope=True) == event


@given(some.recursive(some.none() | some.booleans() | some.integers() | some.text(max_size=9), lambda inner:
       some.lists(inner, max_size=3) | some.dictionaries(some.sampled_from([*FIELDS, "event_base64", "name", "value"]),
                                                         inner, max_size=4), max_leaves=12))  # fmt: skip
@settings(max_examples=examples(300))
def test_a_line_of_anything_is_an_event_or_a_refusal(document) -> None:
    for reader in (by_import, lambda line: by_write(line, envelope=False), lambda line: by_write(line, envelope=True)):
        with suppress(Invalid):
            reader(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"event": "x", "event_time": "2026-01-31T12:00:00Z"}', '"event_time" is of an envelope'),
        ('{"event": "x", "headers": [{"name": "n", "value": "v"}]}', '"headers" is of an envelope'),
        ('{"event": "x", "envelope": false, "event_time": 1}', '"event_time" is of an envelope'),
        ('{"event": "x", "envelope": "yes"}', "give true or false"),
        ('{"event": "x", "evnet_time": 1}', "an event has no 'evnet_time': known are event, key, event_time"),
        ('{"event": "x", "event": "y"}', "'event' is in it twice"),
        ('{"event": "x", "envelope": true, "event_time": "2026-01-31T12:00:00.1234567Z"}', "more digits than micro"),
        ('{"event": "x", "envelope": true, "headers": [{"name": "n", "value": "v", "of": 1}]}', "a header has more"),
        ('{"event": "x", "envelope": true, "headers": [{"name": "n", "value": "v", "value_base64": ""}]}', "no object"),
        ("[" * 100_000, "too many levels"),
        ('{"event": ' * 100_000, "too many levels"),
    ],
)
def test_a_line_that_would_lose_something_is_refused(line, words) -> None:
    for reader in (by_import, lambda line: by_write(line, envelope=False)):
        with pytest.raises(Invalid) as refused:
            reader(line.encode())
        assert words in str(refused.value)


@pytest.mark.parametrize(
    ("without", "rename", "words"),
    [
        (["envelope"], {}, "is of an envelope"),
        (["envelope", "event_time"], {}, '"headers" is of an envelope'),
        ([], {"headers": "header"}, "an event has no 'header'"),
        ([], {"envelope": "key", "key": "k"}, "has no 'k'"),
    ],
)
def test_a_parquet_file_that_would_lose_something_is_refused(tmp_path, without, rename, words) -> None:
    parquet(bytes(Envelope(b"x", key="k", event_time=1, headers=[("a", b"b")])), tmp_path, without, rename)
    with pytest.raises(Invalid) as refused:
        next(parquet_format.rows(str(tmp_path)))
    assert words in str(refused.value)


def test_what_an_event_cannot_have_is_left_out_where_that_is_asked_for(tmp_path) -> None:
    line = b'{"event": "x", "offset": 7, "key": "k"}'
    (row,) = _lines(io.BytesIO(line), drop_unknown=True)
    assert (row.event, row.key) == (b"x", "k")
    assert write._document(line, None, 1, None, drop_unknown=True).event == b"x"
    parquet(b"x", tmp_path, rename={"segment": "segment_id"})
    assert next(parquet_format.rows(str(tmp_path), drop_unknown=True)).event == b"x"


def test_a_document_of_many_values_takes_no_memory() -> None:
    with pytest.raises(ValueError, match="more than 1,000,000 values"):
        parse_json("[" + "{}," * MAX_JSON_TOKENS + "{}]")
    assert parse_json('"' + "," * 2 * MAX_JSON_TOKENS + '"') == "," * 2 * MAX_JSON_TOKENS
