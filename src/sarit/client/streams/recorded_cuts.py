"""Cuts that the controller recorded, each with its time: one a minute of a stream that grows, fewer of older ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sarit.core.cuts import StreamCut
from sarit.core.names import SegmentId
from sarit.rpc.generated import sarit_pb2

if TYPE_CHECKING:
    from sarit.client.session.session import Session
    from sarit.core.names import StreamName


@dataclass(frozen=True, slots=True)
class RecordedCut:
    """A cut that everything appended at or after `time_ms` (since 1970) is behind."""

    time_ms: int
    cut: StreamCut


async def recorded_cut(session: Session, stream: StreamName, time_ms: int) -> RecordedCut | None:
    """Return the newest cut that was recorded at a time or before it; None when none is retained.

    Raises NotFound, Invalid (the server is not Sarit)."""
    asked = sarit_pb2.CutAtRequest(scope=stream.scope, stream=stream.stream, timeMs=time_ms)
    controller = session.controller
    reply = await session.with_retry(partial(controller.named, stream, controller.sarit_stub.cutAt, asked))
    if not reply.recorded:
        return None
    cut = StreamCut(stream, {SegmentId.unpack(segment): at for segment, at in reply.cut.items()})
    return RecordedCut(reply.recordedMs, cut)
