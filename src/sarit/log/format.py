"""The bytes of the durable log on local files: docs/formats/durable-log.md."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from sarit.core.errors import Corrupt
from sarit.core.limits import MAX_FRAME_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sarit.env.ports import Buffer

SECTOR_BYTES: Final = 512
VERSION: Final = 1
_MAGIC: Final = b"SRLG"
_EPOCH_MAGIC: Final = b"SREP"
_HEADER = struct.Struct(">4sBIQQQ8s")
_CRC = struct.Struct(">I")
_RECORD = struct.Struct(">IQQQ")
RECORD_HEADER_BYTES: Final = _CRC.size + _RECORD.size
_EPOCH = struct.Struct(">4sBQ")


@dataclass(frozen=True, slots=True)
class FileHeader:
    """First sector of a log file."""

    container: int
    epoch: int
    sequence: int
    first_frame: int
    salt: bytes

    def encode(self) -> tuple[bytes, int]:
        """The sector and its CRC, the seed of the file's records."""
        body = _HEADER.pack(_MAGIC, VERSION, self.container, self.epoch, self.sequence, self.first_frame, self.salt)
        crc = crc32c(body)
        return (body + _CRC.pack(crc)).ljust(SECTOR_BYTES, b"\0"), crc


def decode_header(sector: Buffer) -> tuple[FileHeader, int] | None:
    """A header and its CRC; None when there is none.  Raises Corrupt for a newer version."""
    body = bytes(sector[: _HEADER.size])
    if len(sector) < _HEADER.size + _CRC.size or body[:4] != _MAGIC:
        return None
    (crc,) = _CRC.unpack_from(sector, _HEADER.size)
    if crc32c(body) != crc:
        return None
    _, version, container, epoch, sequence, first, salt = _HEADER.unpack(body)
    if version != VERSION:
        raise Corrupt(f"a log file is of format {version}; this version of Sarit reads {VERSION}")
    return FileHeader(container, epoch, sequence, first, salt), crc


def padded(size: int) -> int:
    """Size of a record on the disk: whole sectors."""
    return (size + SECTOR_BYTES - 1) // SECTOR_BYTES * SECTOR_BYTES


def encode_record(
    seed: int, number: int, offset: int, synced: int, payload: Sequence[Buffer]
) -> tuple[list[Buffer], int]:
    """The parts of a record (payload parts as they are) and its size on the disk."""
    length = sum(len(part) for part in payload)
    head = _RECORD.pack(length, number, offset, synced)
    crc = crc32c(head, seed)
    for part in payload:
        crc = crc32c(part, crc)
    size = padded(RECORD_HEADER_BYTES + length)
    parts: list[Buffer] = [_CRC.pack(crc) + head, *payload]
    if gap := size - RECORD_HEADER_BYTES - length:
        parts.append(bytes(gap))
    return parts, size


@dataclass(frozen=True, slots=True)
class Record:
    """One valid record of a file."""

    number: int
    synced: int
    payload: memoryview
    end: int


def read_record(seed: int, data: memoryview, at: int) -> Record | None:
    """The record at `at`, when it is whole and of this file's current life."""
    if at + RECORD_HEADER_BYTES > len(data):
        return None
    length, number, offset, synced = _RECORD.unpack_from(data, at + _CRC.size)
    if offset != at or length > MAX_FRAME_BYTES or at + RECORD_HEADER_BYTES + length > len(data):
        return None
    (crc,) = _CRC.unpack_from(data, at)
    body = data[at + _CRC.size : at + RECORD_HEADER_BYTES + length]
    if crc32c(body, seed) != crc:
        return None
    return Record(number, synced, body[_RECORD.size :], at + padded(RECORD_HEADER_BYTES + length))


def later_records(seed: int, data: memoryview, at: int) -> Iterator[Record]:
    """Valid records at any sector from `at` on."""
    while at + RECORD_HEADER_BYTES <= len(data):
        record = read_record(seed, data, at)
        if record is None:
            at += SECTOR_BYTES
        else:
            yield record
            at = record.end


def encode_epoch(epoch: int) -> bytes:
    """Content of the `epoch` file."""
    body = _EPOCH.pack(_EPOCH_MAGIC, VERSION, epoch)
    return body + _CRC.pack(crc32c(body))


def decode_epoch(data: bytes) -> int:
    """The inverse of `encode_epoch`.  Raises Corrupt."""
    size = _EPOCH.size
    if len(data) != size + _CRC.size or crc32c(data[:size]) != _CRC.unpack_from(data, size)[0]:
        raise Corrupt("the log's epoch file is damaged")
    magic, version, epoch = _EPOCH.unpack_from(data)
    if magic != _EPOCH_MAGIC or version != VERSION:
        raise Corrupt(f"the log's epoch file is of format {version}; this version of Sarit reads {VERSION}")
    return int(epoch)


def file_name(epoch: int, sequence: int) -> str:
    """Name of a log file."""
    return f"e{epoch:010d}-{sequence:010d}.log"


def parse_file_name(name: str) -> tuple[int, int] | None:
    """(epoch, sequence) of a log file's name; None for other files."""
    if not (name.startswith("e") and name.endswith(".log") and len(name) == 26 and name[11] == "-"):
        return None
    epoch, sequence = name[1:11], name[12:22]
    return (int(epoch), int(sequence)) if epoch.isdigit() and sequence.isdigit() else None
