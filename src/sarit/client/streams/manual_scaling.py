"""Manual scaling: which segments to replace by which ranges (pure), and the request itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sarit.client.limits import FIRST_SCALE_POLL_SECONDS, MAX_SCALE_POLL_SECONDS
from sarit.core import keyspace
from sarit.core.errors import Conflict, Invalid, NotFound, TimedOut
from sarit.core.keyspace import KeyRange
from sarit.core.policies import MAX_SEGMENTS_PER_STREAM

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sarit.client.core.values import SegmentRange
    from sarit.client.session.session import Session
    from sarit.core.names import SegmentId, StreamName


Plan = tuple[list["SegmentId"], list[KeyRange]]  # the segments to seal, the ranges to put in their place


def _check(count: int) -> None:
    """Raises Invalid, before there is a range for each of them."""
    if not 1 <= count <= MAX_SEGMENTS_PER_STREAM:
        raise Invalid(f"a stream has 1 to {MAX_SEGMENTS_PER_STREAM} segments, not {count}")


def to_count(current: Sequence[SegmentRange], count: int) -> Plan:
    """`count` segments of equal width; those that are right already stay.  Raises Invalid."""
    _check(count)
    # A stream that another client scaled has the same bounds, rounded in another way.
    even = ((keys.low, keys.high) for keys in keyspace.split_evenly(count))
    wanted = keyspace.snapped(even, (found.low for found in current))
    have = {KeyRange(found.low, found.high): found.segment for found in current}
    return [have[keys] for keys in sorted(have.keys() - set(wanted))], [keys for keys in wanted if keys not in have]


def split(current: Sequence[SegmentRange], segment: SegmentId, into: int) -> Plan:
    """`into` segments instead of one.  Raises NotFound (it is not active), Invalid."""
    if into < 2:
        raise Invalid(f"a segment is split into 2 or more, not {into}")
    _check(len(current) - 1 + into)
    (found,) = _active(current, [segment])
    return [segment], KeyRange(found.low, found.high).split_evenly(into)


def merge(current: Sequence[SegmentRange], segments: Iterable[SegmentId]) -> Plan:
    """Return one segment instead of several neighbours.  Raises NotFound (not active), Invalid (no neighbours)."""
    found = _active(current, segments)
    joined = keyspace.merged(KeyRange(part.low, part.high) for part in found)
    if len(found) < 2 or len(joined) != 1:
        raise Invalid("segments that are merged must be two or more, and neighbours in the key space")
    return [part.segment for part in found], joined


def _active(current: Sequence[SegmentRange], segments: Iterable[SegmentId]) -> list[SegmentRange]:
    ranges = {found.segment: found for found in current}
    wanted = list(dict.fromkeys(segments))
    for segment in wanted:
        if segment not in ranges:
            raise NotFound(f"segment {segment} is not active (any more)")
    return [ranges[segment] for segment in wanted]


async def scale(session: Session, stream: StreamName, plan: Plan) -> bool:
    """Replace segments, and wait until it is done.  Returns False when there is nothing to do.

    Raises NotFound, Conflict (scaled by another client meanwhile), Unavailable (it may be done: check the segments)."""
    sealed, ranges = plan
    if not sealed:
        return False
    controller = session.controller
    now_ms = session.env.clock.wall_ms()
    # May be repeated after a lost answer: the controller answers a scale that it has begun or finished as the first
    # time, as long as no other one followed.
    epoch = await session.with_retry(
        lambda: controller.start_scale(stream, sealed, [(keys.low, keys.high) for keys in ranges], now_ms)
    )
    delay, waited = FIRST_SCALE_POLL_SECONDS, 0.0
    while not await session.with_retry(lambda: controller.scaled(stream, epoch)):
        if waited > session.policy.timeout:
            raise TimedOut(f"the scale of {stream} has begun, and is not finished yet")
        await asyncio.sleep(delay)
        waited += delay
        delay = min(2 * delay, MAX_SCALE_POLL_SECONDS)
    return True


async def active(session: Session, stream: StreamName) -> list[SegmentRange]:
    """Return the active segments.  Raises NotFound, Conflict (the stream is sealed)."""
    found = await session.with_retry(lambda: session.controller.current_segments(stream))
    if not found:
        raise Conflict(f"stream {stream} is sealed: it has no active segments")
    return found
