"""The calls of Sarit's own service: cuts by time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.names import StreamName
from sarit.rpc.generated import sarit_pb2 as pb

if TYPE_CHECKING:
    from sarit.controller.background.timeline import Timeline


class CutCalls:
    """Calls on the recorded cuts of streams."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    async def cutAt(self, request: pb.CutAtRequest) -> pb.CutAtResponse:
        cut, recorded_ms = await self._timeline.at(StreamName(request.scope, request.stream), request.timeMs)
        return pb.CutAtResponse(cut=cut, recorded=recorded_ms is not None, recordedMs=recorded_ms or 0)
