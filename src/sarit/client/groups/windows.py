"""Between which times a reader group stands: the place of all its readers together, in the watermarks of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.client.streams.event_time import TimeWindow, TimeWindows
from sarit.core.cuts import StreamCut
from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.client.core.session import Session
    from sarit.client.groups.state import GroupState
    from sarit.client.groups.values import GroupSegment
    from sarit.core.names import StreamName


class GroupWindows:
    """The time windows one reader asks for, by stream."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._windows: dict[StreamName, TimeWindows] = {}

    def __repr__(self) -> str:
        return f"GroupWindows({', '.join(map(str, self._windows))})"

    async def at(self, stream: StreamName, state: GroupState, own: Mapping[GroupSegment, int]) -> TimeWindow:
        """The window of a stream: `own` is where this reader is, the state says where the others were lately.

        Raises Invalid when the group does not read the stream."""
        if stream not in state.config.starts:
            raise Invalid(f"the group does not read {stream}; it reads {', '.join(map(str, state.config.starts))}")
        lately = {segment: at for segment, at in state.last_read.items() if segment.stream == stream}
        if not lately:  # all of it is read
            return TimeWindow(None, None)
        here = {segment.segment: own.get(segment, at) for segment, at in lately.items()}
        windows = self._windows.setdefault(stream, TimeWindows(self._session, stream))
        return await windows.at(StreamCut(stream, here))
