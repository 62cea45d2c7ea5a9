"""The protection of ledgers: digests of entries, and the master key.

Sarit writes CRC-32C and an empty password.  The other kinds serve to read ledgers of other clients.
"""

from __future__ import annotations

import hashlib
import hmac
import zlib
from typing import TYPE_CHECKING, Final

from sarit.log.bookkeeper.metadata import DigestType
from sarit.log.records import extend_crc

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sarit.env.ports import Buffer

_LENGTHS: Final = {DigestType.CRC32: 8, DigestType.HMAC: 20, DigestType.CRC32C: 4, DigestType.DUMMY: 0}


def master_key(password: bytes) -> bytes:
    """Return the 20 bytes that a bookie requires of a client to write to a ledger or fence it, for any digest."""
    return hashlib.sha1(b"ledger" + password, usedforsecurity=False).digest()


class EntryDigest:
    """The digest of one ledger's entries."""

    __slots__ = ("_key", "kind", "length")

    def __init__(self, kind: DigestType, password: bytes = b"") -> None:
        self.kind = kind
        self.length = _LENGTHS[kind]
        self._key = hashlib.sha1(b"mac" + password, usedforsecurity=False).digest()

    def __repr__(self) -> str:
        return f"EntryDigest({self.kind.name})"

    def of(self, parts: Iterable[Buffer]) -> bytes:
        """Return the digest of an entry, in parts: its header, then its payload."""
        if self.kind is DigestType.DUMMY:
            return b""
        if self.kind is DigestType.HMAC:
            code = hmac.new(self._key, digestmod="sha1")
            for part in parts:
                code.update(part)
            return code.digest()
        value = 0
        extend = extend_crc if self.kind is DigestType.CRC32C else _extend_crc32
        for part in parts:
            value = extend(value, part)
        return value.to_bytes(self.length, "big")


def _extend_crc32(crc: int, part: Buffer) -> int:
    return zlib.crc32(part, crc)


# The digest and the master key of the ledgers that Sarit writes.
OUR_DIGEST: Final = EntryDigest(DigestType.CRC32C)
OUR_MASTER_KEY: Final = master_key(b"")
