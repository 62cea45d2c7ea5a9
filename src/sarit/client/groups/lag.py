"""How far a reader group is behind in time: by the newest recorded cut before everything that it has not read.

Events have no time of their own.  The controller records where a stream ended, with the time, once a minute
(`client/streams/recorded_cuts.py`): when a group has read up to such a cut, it has read what was appended before it.
So the lag is the age of the newest record that the group has passed: true to a minute in the last hour, and to less
further back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.client.limits import FIRST_LAG_STEP_MS, MAX_LAG_STEPS
from sarit.client.streams.recorded_cuts import recorded_cut

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sarit.client.groups.progress import SegmentProgress
    from sarit.client.session.session import Session
    from sarit.client.streams.recorded_cuts import RecordedCut
    from sarit.core.names import SegmentId, StreamName


async def lag_ms(session: Session, progress: Iterable[SegmentProgress], now_ms: int) -> dict[StreamName, int | None]:
    """Return for each stream with unread events how many milliseconds the group is behind.

    The lag is None where it is longer than the records of the controller reach.  `progress`: the result of
    `ReaderGroup.progress`; `now_ms`: milliseconds since 1970.  Raises NotFound, Invalid (the server is not Sarit)."""
    positions: dict[StreamName, dict[SegmentId, int]] = {}
    behind: set[StreamName] = set()
    for one in progress:
        positions.setdefault(one.stream, {})[one.segment] = one.position
        if one.unread:
            behind.add(one.stream)
    return {stream: await _of_stream(session, stream, positions[stream], now_ms) for stream in sorted(behind)}


async def _of_stream(
    session: Session, stream: StreamName, positions: Mapping[SegmentId, int], now_ms: int
) -> int | None:
    """Return the lag in one stream: by the newest of the controller's recorded cuts that the group has passed.

    Steps back in time, twice as far each time, to a cut that was passed, then bisects to the newest such."""
    ahead, step = now_ms, 0
    passed: RecordedCut | None = None
    for _ in range(MAX_LAG_STEPS):
        found = await recorded_cut(session, stream, now_ms - step)
        if found is None or _is_passed(found, positions):
            passed = found
            break
        ahead, step = found.time_ms, max(FIRST_LAG_STEP_MS, 2 * (now_ms - found.time_ms))
    # At `low` the newest record is `passed`, and the one at `ahead` was not passed.
    low = now_ms - step
    while ahead - low > FIRST_LAG_STEP_MS:
        middle = (low + ahead) // 2
        found = await recorded_cut(session, stream, middle)
        if found is None or _is_passed(found, positions):
            passed, low = found, middle
        else:
            ahead = found.time_ms
    if step:
        found = await recorded_cut(session, stream, ahead - 1)
        passed = found if found is not None and _is_passed(found, positions) else passed
    return None if passed is None else max(0, now_ms - passed.time_ms)


def _is_passed(record: RecordedCut, positions: Mapping[SegmentId, int]) -> bool:
    # A segment that has no position was read to its end.
    return all(positions.get(segment, at) >= at for segment, at in record.cut.positions.items())
