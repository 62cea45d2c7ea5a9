"""Two times as two cuts, with everything between the times: outwards to the nearest cuts that the controller recorded.

The controller records a cut of a stream that grows once a minute, and retains fewer of older ones
(`controller/background/timeline.py`).  So a range has, besides what was appended between the times, some events from
shortly before and shortly after.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sarit.client.core.segments import tail_cut
from sarit.client.limits import SEARCH_FIRST_TIME_STEP_MS, SEARCH_RECORDING_MS
from sarit.core.cuts import StreamCut
from sarit.core.names import SegmentId
from sarit.rpc.generated import sarit_pb2

if TYPE_CHECKING:
    from typing import Any

    from sarit.client.session.session import Session
    from sarit.core.names import StreamName


async def cut_behind(session: Session, stream: StreamName, time_ms: int, now_ms: int) -> StreamCut:
    """Return a cut that every event appended before a time is before; `time_ms` and the present: since 1970.

    When no cut was recorded since that time, it is the tail as of now.  Raises NotFound, Invalid (the server is not
    Sarit)."""
    # A record has the time at which all lengths were known, and the first of them may have been asked for before it.
    step = SEARCH_FIRST_TIME_STEP_MS
    while time_ms + step < now_ms:
        found = await _recorded(session, stream, time_ms + step)
        if found.recorded and found.recordedMs >= time_ms + SEARCH_RECORDING_MS:
            return StreamCut(stream, {SegmentId.unpack(segment): at for segment, at in found.cut.items()})
        step *= 2
    return await tail_cut(session, stream)


async def _recorded(session: Session, stream: StreamName, time_ms: int) -> Any:
    """Return the newest recorded cut of a time or of one before."""
    asked = sarit_pb2.CutAtRequest(scope=stream.scope, stream=stream.stream, timeMs=time_ms)
    controller = session.controller
    return await session.with_retry(partial(controller.named, stream, controller.sarit_stub.cutAt, asked))
