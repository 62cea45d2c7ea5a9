"""Two times as two cuts, with everything between the times: outwards to the nearest cuts that the controller recorded.

Cuts are recorded once a minute (`client/streams/recorded_cuts.py`).  So a range has, besides what was appended between
the times, some events from shortly before and shortly after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.client.core.segments import tail_cut
from sarit.client.limits import SEARCH_FIRST_TIME_STEP_MS, SEARCH_RECORDING_MS
from sarit.client.streams.recorded_cuts import recorded_cut

if TYPE_CHECKING:
    from sarit.client.session.session import Session
    from sarit.core.cuts import StreamCut
    from sarit.core.names import StreamName


async def cut_behind(session: Session, stream: StreamName, time_ms: int, now_ms: int) -> StreamCut:
    """Return a cut that every event appended before a time is before; `time_ms` and the present: since 1970.

    When no cut was recorded since that time, it is the tail as of now.  Raises NotFound, Invalid (the server is not
    Sarit)."""
    # A record has the time at which all lengths were known, and the first of them may have been asked for before it.
    step = SEARCH_FIRST_TIME_STEP_MS
    while time_ms + step < now_ms:
        found = await recorded_cut(session, stream, time_ms + step)
        if found is not None and found.time_ms >= time_ms + SEARCH_RECORDING_MS:
            return found.cut
        step *= 2
    return await tail_cut(session, stream)
