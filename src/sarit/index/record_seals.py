"""Seals: the checksum of each record of the index.

The index stores the sealed value: the CRC-32C of key and value (4 bytes, big-endian), then the value.  The key is part
of the checksum, so that a value under another key does not match either.  All kinds of index use these functions;
callers of `Index` see plain values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crc32c import crc32c

from sarit.index.keys import describe
from sarit.index.limits import INDEX_CHECKSUM_BYTES
from sarit.index.port import DamagedRecord

if TYPE_CHECKING:
    from sarit.env.ports import Buffer


def seal(key: bytes, value: Buffer) -> bytes:
    """Return the bytes that are stored for `value` under `key`."""
    return crc32c(value, crc32c(key)).to_bytes(INDEX_CHECKSUM_BYTES, "big") + value


def unseal(key: bytes, stored: bytes) -> bytes:
    """Return the value that was sealed.  Raises DamagedRecord."""
    try:
        value = stored[INDEX_CHECKSUM_BYTES:]
        if (
            crc32c(value, crc32c(key)) == int.from_bytes(stored[:INDEX_CHECKSUM_BYTES], "big")
            and len(stored) >= INDEX_CHECKSUM_BYTES
        ):
            return value
    except TypeError:
        # SQLite may return a damaged row as any type.
        pass
    shown = key if isinstance(key, bytes) else repr(key).encode()
    raise DamagedRecord(f"the index record of {describe(shown)} is damaged: its checksum does not match", shown)


def is_whole(key: bytes, stored: bytes) -> bool:
    """Return whether key and value are those that were sealed together."""
    try:
        unseal(key, stored)
    except DamagedRecord:
        return False
    return True
