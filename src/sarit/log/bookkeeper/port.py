"""The border between the wire of BookKeeper and what is built on it: bookies, and the metadata of ledgers.

A *ledger* is an append-only sequence of entries, numbered 0, 1, 2 ..., that one writer fills.  A *bookie* is a server
that stores entries.  The ledger's metadata says which bookies hold which of its entries, and how it ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from sarit.core.errors import Invalid
from sarit.log.bookkeeper.limits import LEDGER_BYTES, LEDGER_ENTRY_BYTES, LEDGER_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.coordination.port import Watch
    from sarit.env.ports import Buffer
    from sarit.log.bookkeeper.metadata import LedgerMetadata


class Code(Enum):
    """How a bookie answered; the value is for messages.

    FAILED: any other error code.  LOST: the connection is gone, or was never there; the outcome is unknown."""

    OK = "ok"
    NO_LEDGER = "no ledger"
    NO_ENTRY = "no entry"
    FENCED = "fenced"
    READ_ONLY = "read-only"
    TOO_MANY_REQUESTS = "too many requests"
    UNAUTHORIZED = "unauthorized"
    FAILED = "failed"
    LOST = "no answer, its connection was closed or could not be made"


@dataclass(frozen=True, slots=True)
class EntryReply:
    """The answer to a read.

    `payload`: verified against its digest; None unless the code is OK.  A wrong digest is FAILED, with a line in the
    log.  `last_add_confirmed`: -1 when unknown.  `length`: of the payloads up to this entry, in bytes."""

    code: Code
    payload: memoryview | None = None
    last_add_confirmed: int = -1
    entry: int = -1
    length: int = 0


@dataclass(frozen=True, slots=True)
class AddPacket:
    """The bytes of one ADD for one entry, built once for all bookies (`wire.add_packet`).

    `parts`: the frame with its length field, in pieces.  `size`: their bytes."""

    parts: tuple[Buffer, ...]
    size: int


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    """Where entries go, and how large ledgers are.  A ledger is left after `ledger_bytes` or `ledger_seconds`."""

    ensemble_size: int = 3
    write_quorum: int = 3
    ack_quorum: int = 2
    entry_bytes: int = LEDGER_ENTRY_BYTES
    ledger_bytes: int = LEDGER_BYTES
    ledger_seconds: float = LEDGER_SECONDS

    def __post_init__(self) -> None:
        """Raises Invalid."""
        ensemble, write, ack = self.ensemble_size, self.write_quorum, self.ack_quorum
        if not 1 <= ack <= write <= ensemble:
            raise Invalid(f"e={ensemble}, w={write}, a={ack}: needed is 1 <= a <= w <= e")
        if 2 * ack <= write:
            raise Invalid(f"a={ack} of w={write}: two owners could both be acknowledged; needed is a > w/2")


class Bookies(Protocol):
    """Requests to bookies, all on the event loop.

    `done` is called exactly once, later, never from within the call.  Bookies are named as their registration and the
    metadata of ledgers name them: "host:port"."""

    def add(self, bookie: str, ledger: int, entry: int, packet: AddPacket, done: Callable[[Code], None]) -> None:
        """Store an entry."""

    def read(self, bookie: str, ledger: int, entry: int, *, fence: bool, done: Callable[[EntryReply], None]) -> None:
        """Read an entry; entry -1: the last one that this bookie has.

        `fence`: it refuses the adds of the writer from now on."""

    def queued_bytes(self, bookie: str) -> int:
        """Bytes of adds that its socket has not taken yet."""

    def writable(self) -> frozenset[str]:
        """Return the bookies that are registered read-write, by the last snapshot."""

    def watch(self, changed: Callable[[], None]) -> Watch:
        """Have `changed` called on the event loop after `writable` has changed."""


class LedgerStore(Protocol):
    """The metadata of ledgers.

    Errors are those of `coordination.port.Registers`: Exists, Conflict, NotFound, Unavailable (unknown outcome)."""

    async def new_id(self) -> int:
        """Return the id of a ledger that nobody else gets."""

    async def create(self, metadata: LedgerMetadata, ledger: int | None = None) -> tuple[int, int]:
        """Store a new ledger; its id, and the version of its metadata.

        `ledger`: of `new_id`; None for a fresh one.  After Unavailable the same call may be made again."""

    async def get(self, ledger: int) -> tuple[LedgerMetadata, int]:
        """Return the metadata, and its version.  Raises NotFound."""

    async def set(self, ledger: int, metadata: LedgerMetadata, expected: int) -> int:
        """Replace the metadata at the version `expected`; the new version.  Raises Conflict, NotFound."""

    async def delete(self, ledger: int, expected: int | None = None) -> None:
        """Delete the metadata; the bookies collect the entries in time.  Raises Conflict, NotFound."""
