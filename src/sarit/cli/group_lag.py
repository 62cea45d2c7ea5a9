"""How old the unread events of a reader group are, by the cuts that the node records once a minute."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.cli.limits import LAG_AGES_SECONDS
from sarit.env.real import real_env

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.client.blocking.client import Client
    from sarit.client.groups.progress import SegmentProgress
    from sarit.core.cuts import StreamCut
    from sarit.core.names import StreamName


def lag_seconds(client: Client, stream: StreamName, segments: Sequence[SegmentProgress]) -> int | None:
    """Return a bound of the age of the oldest unread event of a stream; None: it is older than all that is asked.

    0: nothing is unread."""
    here = [each for each in segments if each.stream == stream]
    if not any(each.unread for each in here):
        return 0
    now, handle = real_env().clock.wall_ms(), client.stream(stream)
    for age, apart in LAG_AGES_SECONDS:
        if _has_passed(here, handle.cut_at(now - 1000 * age)):
            return age + apart
    return None


def _has_passed(segments: Sequence[SegmentProgress], cut: StreamCut) -> bool:
    """Return whether a group is at a cut or behind it, in each segment that it has not read to its end."""
    newest_epoch = max(segment.epoch for segment in cut.positions)
    for each in segments:
        at = cut.positions.get(each.segment)
        if not each.unread:
            continue
        if at is None and each.segment.epoch < newest_epoch:
            return False  # the cut is in its successors
        if at is not None and (each.position < at or each.state == "later"):
            return False
    return True
