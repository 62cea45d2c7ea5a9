"""The fuzz targets: a function of bytes each, with the errors it may raise and valid examples.

A target returns, or raises one of its errors; anything else is a bug.  Where possible the decoded value is encoded
again and compared.  Seeds are valid bytes: their mutations reach deeper than noise.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fuzz import bookkeeper
from fuzz.clients import DECODERS
from sarit.controller import keys as controller_keys
from sarit.controller.model import codec
from sarit.core import cuts
from sarit.core.cuts import StreamCut
from sarit.core.errors import Corrupt, Invalid
from sarit.core.names import SegmentId, StreamName
from sarit.index import keys as index_keys
from sarit.log.file_reader import RunReader
from sarit.log.limits import LOG_BLOCK_BYTES
from sarit.log.records import FRAME, WATERMARK, FileHeader, GroupEncoder, parse_file_name
from sarit.storage import layout
from sarit.storage.checksums import ChunkChecksums
from sarit.storage.layout import Extent
from sarit.store.container import operations as ops
from sarit.store.container.operations import Create
from sarit.store.container.segment import Segment, load_segment
from sarit.wire import commands as wire
from sarit.wire.errors import ProtocolError
from sarit.wire.frames import AppendAssembler, FrameReader, append_block_end_header

if TYPE_CHECKING:
    from collections.abc import Callable

WRITER: Final = bytes(range(16))
_MAX_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Target:
    """`run` on any bytes returns or raises one of `errors`."""

    run: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    seeds: tuple[bytes, ...]

    def __call__(self, data: bytes) -> None:
        """Raises what is a bug."""
        try:
            self.run(data)
        except self.errors:
            return


def _same(before: object, after: object) -> None:
    assert before == after, f"{before!r} came back as {after!r}"


# -- wire -------------------------------------------------------------------------------------------


def wire_stream(data: bytes) -> None:
    """A connection: frames cut at places given by the first byte, each decoded, appends assembled."""
    if not data:
        return
    reader, assembler, step = FrameReader(), AppendAssembler(), data[0] + 1
    for at in range(1, len(data), step):
        for code, payload in reader.feed(data[at : at + step]):
            if code == 3:
                assembler.block(payload)
            elif code == 4:
                append = assembler.block_end(payload)
                assert append.length == sum(map(len, append.parts)) <= len(data)
                assert append.events > 0
            else:
                assembler.check_closed()
                wire_command(struct.pack(">i", code) + bytes(payload))


def wire_command(data: bytes) -> None:
    """One command: its type, then its payload."""
    if len(data) < 4:
        return
    command = wire.decode(struct.unpack_from(">i", data)[0], data[4:])
    frame = wire.encode(command)
    code, length = struct.unpack_from(">ii", frame)
    assert length == len(frame) - 8
    _same(command, wire.decode(code, frame[8:]))


def _block(*parts: bytes) -> bytes:
    return b"\xff" + b"".join(struct.pack(">ii", code, len(body)) + body for code, body in _pairs(parts))


def _pairs(parts: tuple[bytes, ...]) -> list[tuple[int, bytes]]:
    return [(struct.unpack(">i", parts[at])[0], parts[at + 1]) for at in range(0, len(parts), 2)]


def _commands() -> tuple[bytes, ...]:
    made = (
        wire.Hello(17, 5),
        wire.SetupAppend(7, WRITER, "a/b/0.#epoch.0", "T"),
        wire.ConditionalAppend(WRITER, 9, 64, b"\xaa\xbb", 7),
        wire.ReadSegment("a/b/0.#epoch.0", 64, 3, "T", 7),
        wire.CreateSegment(1, "a/b/0.#epoch.0", 0, 0, "", 0),
        wire.UpdateTableEntries(1, "t", "", (wire.TableEntry(b"k", -1, b"v"), wire.TableEntry(b"l", 3, b"")), -1),
        wire.RemoveTableKeys(1, "t", "", (wire.TableKey(b"k", 5),), -1),
        wire.ReadTable(1, "t", "", (wire.TableKey(b"k", 5),)),
        wire.MergeSegmentsBatch(1, "t", ("a", "b"), ""),
        wire.Introduce(1, b"secret"),
        wire.ChangeTable(1, "t", (wire.TableChange(b"k", 5, False, True, b""),)),
        wire.ScanTable(1, "t", b"a", True, b"z", 10),
        wire.RatesMeasured(1, (wire.SegmentRates(*map(float, range(9))),)),
    )
    return tuple(wire.encode(one)[:4] + wire.encode(one)[8:] for one in made)


def _streams() -> tuple[bytes, ...]:
    prefix, suffix = append_block_end_header(WRITER, 5, 1, 1, 2)
    java = struct.pack(">i", 3), WRITER + b"ja" + struct.pack(">ii", -2, 1) + b"v"
    end = struct.pack(">i", 4), WRITER + struct.pack(">ii", 2, 1) + b"a" + struct.pack(">iqq", 1, 3, 6)
    hello = wire.encode(wire.Hello(17, 5))
    return (b"\xff" + hello + prefix + b"hello" + suffix, b"\x02" + hello + hello, _block(*java, *end))


# -- disk: the log ------------------------------------------------------------------------------------


class _Bytes:
    """A file of given bytes."""

    def __init__(self, data: bytes) -> None:
        self.path = "fuzz"
        self._data = data

    def pread(self, length: int, offset: int) -> bytes:
        return self._data[offset : offset + length]

    def size(self) -> int:
        return len(self._data)


_HEADER: Final = FileHeader(3, 7, 2, 0, 0, bytes(range(12)), bytes(range(16)))


def log_header(data: bytes) -> None:
    """A log file's header."""
    header = FileHeader.parse(data, "fuzz")
    _same(header, FileHeader.parse(header.block(), "fuzz"))


def log_file(data: bytes) -> None:
    """The records of a log file: what is found lies inside, in order, and reading ends."""
    file: Any = _Bytes(_HEADER.block() + data)
    reader = RunReader(file, _HEADER, read_bytes=LOG_BLOCK_BYTES)
    last = -1
    for _ in range(len(data) + 10):
        if reader.ended:
            break
        for record in reader.next_records():
            assert LOG_BLOCK_BYTES <= record.position < record.end <= file.size() + LOG_BLOCK_BYTES
            assert record.number >= last
            last = record.number
    assert reader.ended, "reading a log file does not end"


def _log_files() -> tuple[bytes, ...]:
    group = GroupEncoder(_HEADER, LOG_BLOCK_BYTES)
    for number in range(1, 6):
        group.add(FRAME, 2, number, number - 1, [bytes([number]) * (number * 40)])
    length = group.finish()
    mark = GroupEncoder(_HEADER, LOG_BLOCK_BYTES + length)
    mark.add(WATERMARK, 2, 5, 5, ())
    mark.finish()
    whole = b"".join([*group.parts, *mark.parts])
    return (whole, whole[:-LOG_BLOCK_BYTES], whole + b"\1" * 100)


def log_file_name(data: bytes) -> None:
    """The name of a file in a log's directory."""
    parse_file_name(data.decode("utf-8", "surrogateescape"))


# -- disk: operations, index, storage -----------------------------------------------------------------


def frame(data: bytes) -> None:
    """A log frame's operations."""
    wall_ms, coming = ops.decode_frame(memoryview(data))
    found = list(coming)
    parts: list[Any] = [ops.FRAME_HEADER.pack(ops.FORMAT_VERSION, wall_ms, len(found))]
    for operation in found:
        operation.encode(parts)
    assert b"".join(bytes(part) for part in parts) == data


def _frames() -> tuple[bytes, ...]:
    made: tuple[ops.Operation, ...] = (
        ops.Create(1, "a/b/0.#epoch.0", 0, 0, 0, 0, 0),
        ops.Append(1, 0, (b"hello",), 5, WRITER, 3, 1),
        ops.Seal(1),
        ops.Truncate(1, 3),
        ops.SetAttributes(1, ((WRITER, -5),)),
        ops.UpdateTable(2, 90, 1, (ops.Entry(b"k", b"v", 3), ops.Entry(b"l", None, 9))),
        ops.Merge(1, 2, 5, 4, 1, ((WRITER, 4),)),
        ops.SetPolicy(1, 2, 100),
        ops.Delete(1),
    )
    out = []
    for chosen in [*((one,) for one in made), made]:
        parts: list[Any] = [ops.FRAME_HEADER.pack(ops.FORMAT_VERSION, 5, len(chosen))]
        for operation in chosen:
            operation.encode(parts)
        out.append(b"".join(bytes(part) for part in parts))
    return tuple(out)


_KEY_PARSERS: Final[dict[bytes, tuple[Callable[[bytes], Any], Callable[..., bytes]]]] = {
    index_keys.segment_key(1)[:1]: (index_keys.parse_segment_key, index_keys.segment_key),
    index_keys.name_key("a")[:1]: (index_keys.parse_name_key, index_keys.name_key),
    index_keys.attribute_key(1, WRITER)[:1]: (index_keys.parse_attribute_key, index_keys.attribute_key),
    index_keys.extent_key(1, 1)[:1]: (index_keys.parse_extent_key, index_keys.extent_key),
    index_keys.inlined_key(1, 1)[:1]: (index_keys.parse_inlined_key, index_keys.inlined_key),
    index_keys.entry_key(1, b"k")[:1]: (index_keys.parse_entry_key, index_keys.entry_key),
    index_keys.version_key(1, 1)[:1]: (index_keys.parse_version_key, index_keys.version_key),
    index_keys.garbage_key("c")[:1]: (index_keys.parse_garbage_key, index_keys.garbage_key),
    index_keys.meta_key("m")[:1]: (index_keys.parse_meta_key, index_keys.meta_key),
}


def index_key(data: bytes) -> None:
    """A key of the index; each parser on each key, and its own comes back as it was."""
    for kind, (parse, make) in _KEY_PARSERS.items():
        try:
            found = parse(data)
        except Corrupt:
            continue
        assert data[:1] == kind
        assert (make(*found) if isinstance(found, tuple) else make(found)) == data


def index_value(data: bytes) -> None:
    """The values of the index that have a form."""
    for parse, make in (
        (index_keys.parse_id_value, index_keys.id_value),
        (index_keys.parse_attribute_value, index_keys.attribute_value),
        (index_keys.parse_entry_value, index_keys.entry_value),
    ):
        try:
            found: Any = parse(data)
        except Corrupt:
            continue
        make_any: Any = make
        assert (make_any(*found) if isinstance(found, tuple) else make_any(found)) == data


def segment_record(data: bytes) -> None:
    """A segment's record in the index."""
    segment = load_segment(9, data)
    segment.check()
    again = load_segment(9, segment.record())
    _same(segment.record(), again.record())


_EXTENT: Final = Extent(5, 10, "c0000/e0000000001/000000000001-s1-5", 7, checksums=ChunkChecksums(17, 16, b"12345678"))


def extent(data: bytes) -> None:
    """The record of an extent."""
    found = layout.load_chunk_extent(5, data)
    found.check()
    assert found.record() == data


def slices(data: bytes) -> None:
    """An inline slice."""
    assert layout.load_inlined_extent(5, data).inline == data


# -- values that clients keep ---------------------------------------------------------------------------


def cut_bytes(data: bytes) -> None:
    """A stream cut in Java's form."""
    found = cuts.from_bytes(data)
    _same(found, cuts.from_bytes(cuts.to_bytes(found)))


def cut_text(data: bytes) -> None:
    """A stream cut as people pass it around."""
    found = cuts.from_text(data.decode("utf-8", "replace"))
    _same(found, cuts.from_text(cuts.to_text(found)))


# -- the controller ----------------------------------------------------------------------------------


def _record(decode: Callable[[bytes], Any], encode: Callable[[Any], bytes]) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        found = decode(data)
        _same(found, decode(encode(found)))

    return run


def controller_key(data: bytes) -> None:
    """Keys of the controller's tables that are parsed again."""
    for parse in (controller_keys.parse_maintenance_key, controller_keys.parse_pending_key):
        try:
            parse(data)
        except (Corrupt, Invalid):
            continue


CODEC: Final[dict[str, tuple[Callable[[bytes], Any], Callable[[Any], bytes]]]] = {
    "scope": (codec.decode_scope, codec.encode_scope),
    "stream": (codec.decode_stream, codec.encode_stream),
    "chunk": (codec.decode_chunk, codec.encode_chunk),
    "group": (codec.decode_group, codec.encode_group),
    "table": (codec.decode_table, codec.encode_table),
    "subscriber": (codec.decode_subscriber, codec.encode_subscriber),
    "writer": (codec.decode_writer, codec.encode_writer),
    "cut": (codec.decode_cut, codec.encode_cut),
    "transaction": (codec.decode_transaction, codec.encode_transaction),
    "completed": (codec.decode_completed, codec.encode_completed),
    "number": (codec.decode_number, codec.encode_number),
}

_CUT: Final = StreamCut(StreamName("a", "b"), {SegmentId(0, 0): 5, SegmentId(1, 3): 1 << 40})
_SEGMENT: Final = Segment(Create(9, "a/b/0.#epoch.0", 0, 0, 0, 0, 0), 5).record()

TARGETS: Final[dict[str, Target]] = {
    "wire_stream": Target(wire_stream, (ProtocolError,), _streams()),
    "wire_command": Target(wire_command, (ProtocolError,), _commands()),
    "log_header": Target(log_header, (Corrupt,), (_HEADER.block(),)),
    "log_file": Target(log_file, (Corrupt,), _log_files()),
    "log_file_name": Target(log_file_name, (), (b"000000000001.log", b"000000000001.spare")),
    "frame": Target(frame, (Corrupt,), _frames()),
    "index_key": Target(index_key, (), (index_keys.entry_key(1, b"k"), index_keys.name_key("a/b"))),
    "index_value": Target(index_value, (), (index_keys.entry_value(5, b"v"), index_keys.attribute_value(-5))),
    "segment_record": Target(segment_record, (Corrupt,), (_SEGMENT,)),
    "extent": Target(extent, (Corrupt,), (_EXTENT.record(),)),
    "slice": Target(slices, (Corrupt,), (b"x",)),
    "cut_bytes": Target(cut_bytes, (Invalid,), (cuts.to_bytes(_CUT),)),
    "cut_text": Target(cut_text, (Invalid,), (cuts.to_text(_CUT).encode(), cuts.to_text(None).encode())),
    "controller_key": Target(controller_key, (), (controller_keys.pending_stream_key(StreamName("a", "b")),)),
    **{
        f"controller_{name}": Target(_record(decode, encode), (Corrupt,), (codec.encode_number(5),))
        for name, (decode, encode) in CODEC.items()
    },
    **{name: Target(*parts) for name, parts in (DECODERS | bookkeeper.DECODERS).items()},
}
