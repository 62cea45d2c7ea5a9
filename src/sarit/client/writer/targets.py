"""Where a writer's events go: the segments of a stream, or the parts of a transaction.

A part is a segment of its own beside each segment that was active when the transaction began; it never has successors,
also when the stream scales: when it is sealed or deleted, the transaction has ended (client_behaviour.md 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sarit.core.errors import Conflict, NotFound, Sealed
from sarit.core.names import transaction_segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.client.core.values import SegmentRange, Successor
    from sarit.client.session.session import Session
    from sarit.core.names import SegmentId, StreamName


class Target(Protocol):
    """The target of a writer: a stream or a transaction."""

    stream: StreamName

    async def ranges(self) -> Sequence[SegmentRange]:
        """Return the segments to write to; their ranges tile the key space.  Raises NotFound, Sealed, Unavailable."""

    async def successors(self, segment: SegmentId) -> Sequence[Successor]:
        """Return the successors of a sealed segment; at least one.  Raises NotFound, Sealed, Conflict."""

    def name(self, segment: SegmentId) -> str:
        """Return the full name of the segment to append to."""


class StreamTarget:
    """A stream, through all scaling."""

    def __init__(self, session: Session, stream: StreamName) -> None:
        self.stream = stream
        self._session = session

    def __repr__(self) -> str:
        return f"StreamTarget({self.stream})"

    async def ranges(self) -> Sequence[SegmentRange]:
        """Return the active segments."""
        controller = self._session.controller
        found = await self._session.with_retry(lambda: controller.current_segments(self.stream))
        if not found:
            raise Sealed(f"stream {self.stream} is sealed: it takes no more events")
        return found

    async def successors(self, segment: SegmentId) -> Sequence[Successor]:
        """Return no successors mean that the stream is sealed: the controller records successors before the store
        seals."""
        controller = self._session.controller
        try:
            found = await self._session.with_retry(lambda: controller.successors(self.stream, segment))
        except NotFound:
            raise NotFound(f"stream {self.stream} does not exist any more") from None
        if not found:
            raise Sealed(f"stream {self.stream} is sealed: it takes no more events")
        return found

    def name(self, segment: SegmentId) -> str:
        """Return the name of the segment."""
        return self.stream.segment(segment)


class TransactionTarget:
    """The parts of one transaction."""

    def __init__(self, stream: StreamName, transaction: int, parts: Sequence[SegmentRange]) -> None:
        self.stream = stream
        self._transaction = transaction
        self._parts = parts

    def __repr__(self) -> str:
        return f"TransactionTarget({self.stream}, {self._transaction:032x})"

    async def ranges(self) -> Sequence[SegmentRange]:
        """Return the ranges of the epoch in which the transaction was begun."""
        return self._parts

    async def successors(self, segment: SegmentId) -> Sequence[Successor]:
        """None: raises Conflict."""
        raise Conflict(
            f"transaction {self._transaction:032x} of {self.stream} is not open any more: it was committed or aborted "
            "elsewhere, or its lease has expired"
        )

    def name(self, segment: SegmentId) -> str:
        """Return the part beside a segment."""
        return transaction_segment(self.stream.segment(segment), self._transaction)
