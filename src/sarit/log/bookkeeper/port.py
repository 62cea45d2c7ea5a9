"""The ports of BookKeeper that the log is built on: bookies, and the metadata of ledgers.

A *ledger* is an append-only sequence of entries, numbered 0, 1, 2 ..., that one writer fills.  A *bookie* is a server
that stores entries.  The ledger's metadata says which bookies hold which of its entries, and where it ends.
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
    """The result code of a request to a bookie, with a text for messages.

    FAILED: any other error code.  LOST: the connection ended, or could not be made; the outcome is unknown."""

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
    log.  `last_add_confirmed`: -1 when unknown.  `length`: the bytes of the payloads up to this entry."""

    code: Code
    payload: memoryview | None = None
    last_add_confirmed: int = -1
    entry: int = -1
    length: int = 0


@dataclass(frozen=True, slots=True)
class AddPacket:
    """The bytes of the ADD request of one entry, built once for all bookies (`wire.add_packet`).

    `parts`: the frame with its length field, in pieces.  `size`: the number of bytes."""

    parts: tuple[Buffer, ...]
    size: int


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    """The quorums and sizes of ledgers.  A ledger is full after `ledger_bytes` or `ledger_seconds`."""

    ensemble_size: int = 3
    write_quorum: int = 3
    ack_quorum: int = 2
    entry_bytes: int = LEDGER_ENTRY_BYTES
    ledger_bytes: int = LEDGER_BYTES
    ledger_seconds: float = LEDGER_SECONDS

    def __post_init__(self) -> None:
        """Check the quorums.  Raises Invalid."""
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
        """Store an entry on a bookie."""

    def read(self, bookie: str, ledger: int, entry: int, *, fence: bool, done: Callable[[EntryReply], None]) -> None:
        """Read an entry of a bookie; entry -1: the last one that this bookie has.

        `fence`: let the bookie refuse the adds of the ledger's writer from now on."""

    def queued_bytes(self, bookie: str) -> int:
        """Return the bytes of requests that the socket of a bookie has not taken yet."""

    def writable(self) -> frozenset[str]:
        """Return the bookies that are registered read-write, by the last snapshot."""

    def watch(self, changed: Callable[[], None]) -> Watch:
        """Call `changed` on the event loop after `writable` has changed."""


class LedgerStore(Protocol):
    """The metadata of ledgers.

    Errors are those of `coordination.port.Registers`: Exists, Conflict, NotFound, Unavailable (unknown outcome)."""

    async def new_id(self) -> int:
        """Return a ledger id that no other client gets."""

    async def create(self, metadata: LedgerMetadata, ledger: int | None = None) -> tuple[int, int]:
        """Store the metadata of a new ledger.  Returns its id, and the version of the metadata.

        `ledger`: an id from `new_id`; None for another one.  After Unavailable the same call may be repeated."""

    async def get(self, ledger: int) -> tuple[LedgerMetadata, int]:
        """Return the metadata, and its version.  Raises NotFound."""

    async def set(self, ledger: int, metadata: LedgerMetadata, expected: int) -> int:
        """Replace the metadata of the version `expected`.  Returns the new version.  Raises Conflict, NotFound."""

    async def delete(self, ledger: int, expected: int | None = None) -> None:
        """Delete the metadata; the bookies delete the entries later.  Raises Conflict, NotFound."""
