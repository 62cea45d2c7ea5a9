"""The raw format: events as they are stored, each with its length.  docs/formats/export.md has its bytes.

It begins with a head, and ends with the number of events and a checksum, without which a file is not whole.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, BinaryIO, Final

import crc32c

from sarit.cli.transfer.limits import MAX_EXPORTED_EVENT_BYTES
from sarit.cli.transfer.rows import Row, row_of
from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD: Final = b"SARITEXP\x01"
_RECORD: Final = struct.Struct(">Iq")
_END: Final = struct.Struct(">IqI")
_END_MARK: Final = 0xFFFFFFFF
_NO_SEGMENT: Final = -1


def encode(row: Row) -> bytes:
    """Return a record."""
    return _RECORD.pack(len(row.event), _NO_SEGMENT if row.segment is None else row.segment) + row.event


def end(events: int, checksum: int) -> bytes:
    """Return the end of a file."""
    return _END.pack(_END_MARK, events, checksum)


def checksum(data: bytes, before: int = 0) -> int:
    """CRC-32C of records, continued."""
    return int(crc32c.crc32c(data, before))


def rows(file: BinaryIO) -> Iterator[Row]:
    """Yield the rows of a file, from its begin.  Raises Invalid, which says at which byte."""
    head = file.read(len(HEAD))
    if head[: len(HEAD) - 1] != HEAD[:-1]:
        raise Invalid("byte 0: it does not begin as an export of this format; is it jsonl?")
    if head != HEAD:
        raise Invalid(f"byte {len(HEAD) - 1}: it is of version {head[-1:].hex()}, and this Sarit reads version 1")
    at, count, found_crc = len(HEAD), 0, 0
    while True:
        length, segment = _RECORD.unpack(_exactly(file, _RECORD.size, at))
        if length == _END_MARK:
            (wanted_crc,) = struct.unpack(">I", _exactly(file, 4, at + _RECORD.size))
            if segment != count or wanted_crc != found_crc:
                raise Invalid(f"byte {at}: {count} events were read, and not those that were written: it is damaged")
            if file.read(1):
                raise Invalid(f"byte {at + _END.size}: something follows the end")
            return
        if length > MAX_EXPORTED_EVENT_BYTES:
            raise Invalid(f"byte {at}: an event of {length} bytes: it is damaged")
        event = _exactly(file, length, at + _RECORD.size)
        found_crc = checksum(_RECORD.pack(length, segment) + event, found_crc)
        at += _RECORD.size + length
        count += 1
        yield row_of(event, None if segment == _NO_SEGMENT else segment)


def _exactly(file: BinaryIO, count: int, at: int) -> bytes:
    data = file.read(count)
    if len(data) < count:
        raise Invalid(f"byte {at + len(data)}: it ends within a record: it is cut off, or its export did not end")
    return data
