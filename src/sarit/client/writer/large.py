"""One event that is too long for an append (wire.md 4.5).

    CreateTransientSegment -> SetupAppend -> ConditionalBlockEnd 0, 1, 2 ... -> MergeSegments

The transient segment dies with the connection, so a broken connection leaves nothing behind, unless the merge
happened and only its reply was lost.  To know, the merge replaces the writer's event number on the target, on
condition that it is still the one before (attribute id = writer id): the next SetupAppend then tells whether the
event is there, as for every other block.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from sarit.client.core.connection import PendingReply
from sarit.client.core.replies import expect
from sarit.core.errors import Unavailable
from sarit.core.limits import MIB, NULL_ATTRIBUTE_VALUE
from sarit.wire.commands import (
    AppendSetup,
    AttributeUpdate,
    ConditionalBlockEnd,
    CreateTransientSegment,
    DataAppended,
    MergeSegments,
    SegmentCreated,
    SegmentsMerged,
    SetupAppend,
    encode_parts,
)

if TYPE_CHECKING:
    from sarit.client.core.connection import Connection
    from sarit.client.core.session import Session
    from sarit.client.writer.segment_appender import Block, SegmentAppender

PIECE_BYTES: Final = 4 * MIB
REPLACE_IF_EQUALS: Final = 4


async def append_large(session: Session, connection: Connection, appender: SegmentAppender, block: Block) -> None:
    """Append the event of `block` to the segment of `appender`.  After Unavailable the next SetupAppend tells."""
    writer = session.env.random.bytes(16)
    created = await connection.ask(lambda i: CreateTransientSegment(i, writer, appender.segment, appender.token))
    name = expect(created, SegmentCreated, appender.segment).segment
    setup = await connection.ask(lambda i: SetupAppend(i, writer, name, appender.token))
    if expect(setup, AppendSetup, name).last_event_number != NULL_ATTRIBUTE_VALUE:
        raise Unavailable(f"{name}: a new segment has a writer already")
    await _fill(connection, writer, name, memoryview(block.chunks[0].data).cast("B"))
    update = AttributeUpdate(appender.writer_id, REPLACE_IF_EQUALS, block.number, appender.stored_number())
    merged = await connection.ask(lambda i: MergeSegments(i, appender.segment, name, appender.token, (update,)))
    expect(merged, SegmentsMerged, appender.segment)


async def _fill(connection: Connection, writer: bytes, name: str, data: memoryview) -> None:
    """Write `data` into the transient segment; the pieces are all in flight at once."""
    questions: list[tuple[int, PendingReply]] = []
    try:
        for number, offset in enumerate(range(0, len(data), PIECE_BYTES)):
            question = PendingReply()
            request_id = connection.expect(question)
            questions.append((request_id, question))
            piece = data[offset : offset + PIECE_BYTES]
            connection.send(encode_parts(ConditionalBlockEnd(writer, number, offset, piece, request_id)))
        replies: list[Any] = await asyncio.gather(*(question.answer for _, question in questions))
        for reply in replies:
            expect(reply, DataAppended, name)
    finally:
        for request_id, question in questions:
            connection.machine.forget(request_id)
            question.answer.cancel()
