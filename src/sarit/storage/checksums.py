"""Checksums of a chunk: a CRC-32C for each of its blocks.

Theory of operation.  The writer of a chunk computes the checksums from the bytes in memory, on the thread that writes
them.  They are stored in the index, in the record of each extent that names the chunk (`storage/layout.py`): so they
detect a chunk that was replaced or cut as well as a flipped bit.  Every read from long-term storage is of whole blocks,
and verified before any byte is used.

The size of a block is a compromise.  A read has to fetch whole blocks, so they must not be larger than what it fetches
anyway: 2 MiB of a chunk at once, in pieces of 256 KiB.  Smaller blocks cost memory and index: with 256 KiB, a chunk of
32 MiB has 512 bytes of checksums.  The size is part of the record, so chunks with blocks of different sizes may
coexist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from sarit.core.errors import Corrupt
from sarit.storage.limits import CHECKSUM_BLOCK_BYTES, CHECKSUM_BYTES, CHECKSUM_JOIN_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sarit.env.ports import Buffer

# Hold the interpreter lock: taking it again would last longer than the checksum of a block (10 us).
_HOLD_LOCK: Final = 0


class DamagedChunk(Corrupt):
    """A chunk is `missing`, too short, or does not match its checksums.  `offset` is in bytes of the object."""

    def __init__(self, chunk: str, offset: int, what: str, *, missing: bool = False) -> None:
        super().__init__(f"chunk {chunk} {what}")
        self.chunk = chunk
        self.offset = offset
        self.missing = missing


def missing(chunk: str, offset: int = 0) -> DamagedChunk:
    """Return the error for a chunk that the index names and that long-term storage does not have."""
    return DamagedChunk(chunk, offset, "is missing", missing=True)


def too_short(chunk: str, length: int, expected: int) -> DamagedChunk:
    """Return the error for a chunk that ends too early."""
    return DamagedChunk(chunk, length, f"is too short: it has {length} bytes, not {expected}")


@dataclass(frozen=True, slots=True)
class ChunkChecksums:
    """The length of a chunk, and the checksums of its blocks: 4 bytes each, big-endian.

    In a pack (`storage/packs.py`) the chunk is one piece, which begins at offset `begin` of the object of
    `object_length` bytes.  All other offsets are relative to the piece."""

    length: int
    block_bytes: int
    crcs: bytes
    begin: int = 0
    object_length: int = 0

    def blocks_of(self, offset: int, length: int) -> tuple[int, int]:
        """Return the range of whole blocks that holds [offset, offset + length): begin and end, in bytes of the
        chunk."""
        end = offset + length
        return offset - offset % self.block_bytes, min(end + -end % self.block_bytes, self.length)

    def verify(self, chunk: str, offset: int, data: Buffer) -> None:
        """Check whole blocks that were read from `offset` on.  Raises DamagedChunk for the first that does not match.

        Blocking: 40 to 90 us for each MiB."""
        size, crcs = self.block_bytes, self.crcs
        view = memoryview(data)
        assert offset % size == 0, (offset, size)
        assert len(view) % size == 0 or offset + len(view) == self.length, (offset, len(view), self)
        at = offset // size * CHECKSUM_BYTES
        for begin in range(0, len(view), size):
            expected = int.from_bytes(crcs[at : at + CHECKSUM_BYTES], "big")
            if crc32c(view[begin : begin + size], 0, _HOLD_LOCK) != expected:
                first = self.begin + offset
                end = first + min(begin + size, len(view))
                raise DamagedChunk(
                    chunk, first + begin, f"does not match its checksum between bytes {first + begin} and {end}"
                )
            at += CHECKSUM_BYTES

    def verifier(self, chunk: str, offset: int) -> Callable[[Buffer], None]:
        """Return a function that calls `verify` for bytes read from `offset` on."""
        return lambda data: self.verify(chunk, offset, data)


class ChecksumBuilder:
    """A builder of a chunk's checksums from its bytes, in order; only small parts are copied."""

    def __init__(self, block_bytes: int = CHECKSUM_BLOCK_BYTES) -> None:
        self._block_bytes = block_bytes
        self._length = 0
        self._crc = 0
        self._crcs = bytearray()

    def __repr__(self) -> str:
        return f"<ChecksumBuilder of {self._length} bytes>"

    def add(self, parts: Sequence[Buffer]) -> None:
        """Add the next bytes of the chunk.  Blocking."""
        small: list[Buffer] = []
        waiting = 0
        for part in parts:
            # Join small parts, since a call for each would take longer than their checksum.
            if len(part) < CHECKSUM_JOIN_BYTES:
                small.append(part)
                waiting += len(part)
                if waiting < CHECKSUM_JOIN_BYTES:
                    continue
                part, small, waiting = b"".join(small), [], 0
            elif small:
                self._extend(b"".join(small))
                small, waiting = [], 0
            self._extend(part)
        if small:
            self._extend(b"".join(small))

    def finish(self) -> ChunkChecksums:
        """Return the checksums of all bytes that were added."""
        crcs = bytes(self._crcs)
        if self._length % self._block_bytes:
            crcs += self._crc.to_bytes(CHECKSUM_BYTES, "big")
        return ChunkChecksums(self._length, self._block_bytes, crcs)

    def _extend(self, part: Buffer) -> None:
        size = self._block_bytes
        at = 0
        while at < len(part):
            count = min(size - self._length % size, len(part) - at)
            piece = part if count == len(part) else memoryview(part)[at : at + count]
            self._crc = crc32c(piece, self._crc, _HOLD_LOCK)
            self._length += count
            at += count
            if self._length % size == 0:
                self._crcs += self._crc.to_bytes(CHECKSUM_BYTES, "big")
                self._crc = 0


def checksums_of(parts: Sequence[Buffer], block_bytes: int = CHECKSUM_BLOCK_BYTES) -> ChunkChecksums:
    """Return the checksums of a chunk that consists of `parts`.  Blocking."""
    builder = ChecksumBuilder(block_bytes)
    builder.add(parts)
    return builder.finish()
