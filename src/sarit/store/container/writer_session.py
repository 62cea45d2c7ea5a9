"""Writers on segments: one session each, and who is told what became of its appends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sarit.store.container.container import Container
    from sarit.store.container.segment import Attribute, Segment
    from sarit.wire.append import Append as WireAppend


class ReplySink(Protocol):
    """Who is told what became of an append."""

    def acknowledged(self, session: WriterSession, append: WireAppend, previous: int, end_offset: int) -> None:
        """Durable; `previous` is the event number acknowledged before."""

    def refused(self, session: WriterSession, append: WireAppend, error: BaseException) -> None:
        """Not appended (or, with Unavailable, unknown)."""

    def gone(self, session: WriterSession) -> None:
        """The session's segment is deleted or merged, and that is durable."""


class WriterSession:
    """One writer on one segment over one connection, since its last set-up."""

    __slots__ = ("acknowledged", "attribute", "closed", "container", "last", "replies", "segment", "waiting", "writer")

    def __init__(
        self, container: Container, segment: Segment, writer: bytes, attribute: Attribute, replies: ReplySink
    ) -> None:
        self.container = container
        self.segment = segment
        self.writer = writer
        self.attribute = attribute
        self.replies = replies
        self.last = self.acknowledged = attribute.assigned
        self.closed = False
        # Appends without an answer yet, for who counts them.
        self.waiting = 0

    def append(self, append: WireAppend, expected_offset: int | None = None) -> None:
        """Hand over an append; the answer comes through `replies`."""
        self.container.submit_append(self, append, expected_offset)

    def close(self) -> None:
        """The connection is gone, or set the writer up anew."""
        if not self.closed:
            self.closed = True
            self.segment.pins -= 1
            if self.attribute.owner is self:
                self.attribute.owner = None


def end_session(attribute: Attribute) -> None:
    """Close the session that owns a writer's attribute, if one does."""
    if isinstance(attribute.owner, WriterSession):
        attribute.owner.close()


def segment_gone(segment: Segment) -> None:
    """Tell who writes to a segment that it is deleted or merged: their sessions would keep it in memory."""
    owners = [attribute.owner for attribute in segment.attributes.values() if attribute.owner is not None]
    for owner in owners:
        if isinstance(owner, WriterSession):
            owner.replies.gone(owner)
