"""The metadata of a ledger: where its entries are, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class LedgerState(Enum):
    """The life of a ledger; the values are those of the stored form."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


class DigestType(Enum):
    """How entries are protected; the values are those of the stored form."""

    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """One version of a ledger's metadata.

    `ensembles`: pairs of the first entry and the bookies from it on.  `last_entry` is -1 and `length` 0 unless the
    state is CLOSED (`last_entry` -1 then: no entry).  `length`: of all payloads, in bytes."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    state: LedgerState
    ensembles: tuple[tuple[int, tuple[str, ...]], ...]
    last_entry: int = -1
    length: int = 0
    digest: DigestType = DigestType.CRC32C
    password: bytes = b""
    created_ms: int = 0
    custom: Mapping[str, bytes] = field(default_factory=dict)
    ctoken: int = 0
