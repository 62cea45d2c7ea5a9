"""The format of the durable log: file names, file headers and records.

Layout and reasons: docs/formats/durable-log.md.  The checksums are computed on the thread of the caller, which is the
log's.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from sarit.core.errors import Corrupt, Invalid
from sarit.core.limits import LOG_IDENTITY_BYTES
from sarit.log.limits import (
    LOG_BLOCK_BYTES,
    LOG_CRC_HOLD_LOCK_BYTES,
    LOG_JOIN_BELOW_BYTES,
    LOG_TAG_BYTES,
    MAX_FRAME_BYTES,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.env.ports import Buffer

FORMAT_VERSION: Final = 2
MAGIC: Final = b"SARITLOG"
FRAME: Final = 1
WATERMARK: Final = 2

# The ends of file names, by the state of the file: in use, recycled, not finished, set aside by --accept-data-loss.
LOG: Final = "log"
RECYCLED: Final = "spare"
NEW: Final = "new"
ASIDE: Final = "aside"

_HEADER = struct.Struct(">8sHHIQQQQ12s16sI")
_RECORD = struct.Struct(">I4sBB2xIQQQQ")
# The flag of a record that was written when the next log file durably had its name.
_FOLLOWED: Final = 1
HEADER_BYTES: Final = _HEADER.size
MAX_HEADER_BLOCKS: Final = 0xFFFF
RECORD_HEADER_BYTES: Final = _RECORD.size
TAG_AT: Final = 4
RECORD_ALIGNMENT: Final = 8
# A second copy of the header, in another sector of its block.
HEADER_COPY_AT: Final = LOG_BLOCK_BYTES // 2
# The header of format 1 ended with its checksum here.
_FORMAT_1_LENGTH: Final = 64
_ZEROS: Final = bytes(LOG_BLOCK_BYTES)


def file_name(sequence: int, kind: str) -> str:
    """Return the name of a file of the log's directory; `kind` is LOG, RECYCLED, NEW or ASIDE."""
    return f"{sequence:012d}.{kind}"


def parse_file_name(name: str) -> tuple[int, str] | None:
    """Return (sequence, kind); None for a name that is no log file's."""
    stem, _, kind = name.partition(".")
    if kind not in (LOG, RECYCLED, NEW, ASIDE) or len(stem) < 12 or not (stem.isascii() and stem.isdigit()):
        return None
    return int(stem), kind


def aligned(position: int, alignment: int = RECORD_ALIGNMENT) -> int:
    """Return the least multiple of `alignment` (a power of two) that is not below `position`."""
    return (position + alignment - 1) & -alignment


def extend_crc(crc: int, part: Buffer) -> int:
    """Return the CRC-32C of the bytes that gave `crc`, followed by `part`."""
    # The last argument is 0 to hold the interpreter lock, 1 to release it.
    return crc32c(part, crc, 0 if len(part) <= LOG_CRC_HOLD_LOCK_BYTES else 1)


@dataclass(frozen=True, slots=True)
class FileHeader:
    """The header of a log file.

    `base`: the last frame of the log before this epoch.  `durable`: all frames up to this one were durable when the
    file was made.  `salt`: random bytes, new at each use of the file, so that records of an earlier use are invalid.
    `identity`: the random identity of the log, the same in all its files.  `blocks`: the length of the file when it was
    made, in blocks of LOG_BLOCK_BYTES, at most MAX_HEADER_BLOCKS; 0 when it is not known."""

    container: int
    sequence: int
    epoch: int
    base: int
    durable: int
    salt: bytes
    identity: bytes
    blocks: int = 0

    @property
    def tag(self) -> bytes:
        """The part of the salt that every record of this file carries."""
        return self.salt[:LOG_TAG_BYTES]

    def pack(self) -> bytes:
        """Return the 80 bytes of the header, without the copy and the padding of `block`."""
        assert len(self.identity) == LOG_IDENTITY_BYTES, self
        fields = (self.container, self.sequence, self.epoch, self.base, self.durable, self.salt, self.identity)
        body = _HEADER.pack(MAGIC, FORMAT_VERSION, self.blocks, *fields, 0)[:-4]
        return body + extend_crc(0, body).to_bytes(4, "big")

    def block(self) -> bytes:
        """Return the first block of the file, which has the header twice."""
        return (self.pack().ljust(HEADER_COPY_AT, b"\0") + self.pack()).ljust(LOG_BLOCK_BYTES, b"\0")

    @property
    def crc(self) -> int:
        """The checksum of the header, with which the checksums of the records are seeded."""
        return int.from_bytes(self.pack()[-4:], "big")

    @staticmethod
    def parse(block: bytes, name: str) -> FileHeader:
        """Parse a header, or its copy if it is damaged.  `name`: the file's name, for error messages.

        Raises Corrupt (both are damaged), Invalid (another format version)."""
        for at in (0, HEADER_COPY_AT):
            found = _parse_header(block[at : at + HEADER_BYTES], name)
            if found is not None:
                return found
        raise Corrupt(f"{name}: the header of this log file is damaged, and so is its copy")


def _parse_header(data: bytes, name: str) -> FileHeader | None:
    """Return the header in `data`; None when it is damaged.  Raises Invalid."""
    if len(data) < HEADER_BYTES or not data.startswith(MAGIC):
        return None
    *_, crc = fields = _HEADER.unpack_from(data)
    version = int(fields[1])
    # Check the checksum before the version, so that damage does not look like another format.
    if crc != extend_crc(0, data[: HEADER_BYTES - 4]):
        old_crc = int.from_bytes(data[_FORMAT_1_LENGTH - 4 : _FORMAT_1_LENGTH], "big")
        if version != 1 or old_crc != extend_crc(0, data[: _FORMAT_1_LENGTH - 4]):
            return None
    if version != FORMAT_VERSION:
        raise Invalid(f"{name} is of log format {version}; this version of Sarit reads {FORMAT_VERSION}")
    _, _, blocks, container, sequence, epoch, base, durable, salt, identity, _ = fields
    return FileHeader(container, sequence, epoch, base, durable, salt, identity, blocks)


@dataclass(slots=True)
class LogFile:
    """A file that may hold frames.

    `size`: its bytes, without preallocated blocks when the end is known.  `first`: its first frame; None without one,
    or when the first record is damaged.  `last`: the highest frame that may be in the file."""

    path: str
    header: FileHeader
    size: int
    first: int | None
    last: int = 0


@dataclass(frozen=True, slots=True)
class Record:
    """A valid record.  `payload`: a view of the window from which the record was read.

    `followed`: whether the next log file existed when the record was written."""

    kind: int
    epoch: int
    number: int
    durable: int
    position: int
    end: int
    payload: memoryview
    followed: bool = False


def record_bytes(payload_bytes: int) -> int:
    """Return the bytes that a record takes in the file, with its header and padding."""
    return aligned(RECORD_HEADER_BYTES + payload_bytes)


class GroupEncoder:
    """The encoder of one group of records, as parts of one write; large payloads are not copied.

    `followed`: whether the next log file durably has its name."""

    def __init__(self, header: FileHeader, position: int, *, followed: bool = False) -> None:
        assert position % LOG_BLOCK_BYTES == 0
        self._flags = _FOLLOWED if followed else 0
        self._tag = header.tag
        self._seed = header.crc
        self._start = position
        self._position = position
        self.parts: list[Buffer] = []

    def add(self, kind: int, epoch: int, number: int, durable: int, payload: Sequence[Buffer]) -> None:
        """Append a record.  A payload above MAX_FRAME_BYTES is a bug."""
        length = 0
        for part in payload:
            length += len(part)
        assert length <= MAX_FRAME_BYTES, f"frame {number} has {length} bytes"
        # Pack the header after the payload was added: it begins with the CRC of all that follows.
        fields = (self._tag, kind, self._flags, length, epoch, number, durable, self._position)
        crc = extend_crc(self._seed, _RECORD.pack(0, *fields)[TAG_AT:])
        slot = len(self.parts)
        self.parts.append(b"")
        crc = self._add_payload(crc, payload)
        self.parts[slot] = _RECORD.pack(crc, *fields)
        # Add the padding, which the checksum does not cover.
        padding = -length % RECORD_ALIGNMENT
        if padding:
            self.parts.append(_ZEROS[:padding])
        self._position += record_bytes(length)

    def _add_payload(self, crc: int, payload: Sequence[Buffer]) -> int:
        small: list[Buffer] = []
        for part in payload:
            if len(part) <= LOG_JOIN_BELOW_BYTES:
                small.append(part)
                continue
            if small:
                joined = b"".join(small)
                small = []
                crc = extend_crc(crc, joined)
                self.parts.append(joined)
            crc = extend_crc(crc, part)
            self.parts.append(part)
        if small:
            joined = b"".join(small)
            crc = extend_crc(crc, joined)
            self.parts.append(joined)
        return crc

    def finish(self) -> int:
        """Pad the group to whole blocks.  Returns its length in bytes."""
        end = aligned(self._position, LOG_BLOCK_BYTES)
        if end > self._position:
            self.parts.append(_ZEROS[: end - self._position])
        return end - self._start


@dataclass(frozen=True, slots=True)
class Window:
    """The bytes of a log file from `position` on, with the tag, seed and epoch that identify its valid records."""

    data: bytes
    position: int
    tag: bytes
    seed: int
    epoch: int

    def record(self, at: int) -> Record | int:
        """Return the valid record at index `at`; otherwise the number of bytes that it needs, 0 if there is none."""
        if len(self.data) - at < RECORD_HEADER_BYTES:
            return RECORD_HEADER_BYTES
        crc, tag, kind, flags, length, epoch, number, durable, position = _RECORD.unpack_from(self.data, at)
        # Make the cheap tests first, since the bytes may be anything.  `position` exposes a write at a wrong place.
        if tag != self.tag or position != self.position + at or kind not in (FRAME, WATERMARK):
            return 0
        # Check the length, which may be damaged, before the caller reads so many bytes.
        if length > MAX_FRAME_BYTES or epoch > self.epoch or durable > number:
            return 0
        end: int = at + RECORD_HEADER_BYTES + length
        if end > len(self.data):
            return end - at
        view = memoryview(self.data)
        if crc != extend_crc(self.seed, view[at + TAG_AT : end]):
            return 0
        payload = view[at + RECORD_HEADER_BYTES : end]
        followed = bool(flags & _FOLLOWED)
        return Record(kind, epoch, number, durable, position, self.position + aligned(end), payload, followed)


def claimed_number(head: bytes, position: int) -> int:
    """Return the number in the header of a damaged record at byte `position` of its file; 0 if there is no header.

    No checksum confirms the number."""
    if len(head) < RECORD_HEADER_BYTES:
        return 0
    _, _, kind, _, length, _, number, durable, claimed_position = _RECORD.unpack_from(head)
    plausible = claimed_position == position and kind in (FRAME, WATERMARK) and length <= MAX_FRAME_BYTES
    return int(number) if plausible and durable <= number else 0
