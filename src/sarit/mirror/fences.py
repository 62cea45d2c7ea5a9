"""Makes the streams of a source read-only, because their mirrors are promoted, or are about to be.

The row of a stream says so before the stream is sealed.  So a link never takes the seal for a user's, which the mirror
would copy.  The existing seal does the rest: transactions end, clients find the stream sealed.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from sarit.controller.model.records import State
from sarit.controller.model.streams import has_mark
from sarit.core.errors import Conflict, Invalid, NotFound, Unavailable
from sarit.mirror.limits import PROMOTION_ATTEMPTS
from sarit.mirror.mirror_records import MirrorRecord
from sarit.mirror.mirror_rows import find_known, put_known

if TYPE_CHECKING:
    from sarit.controller.streams import Streams
    from sarit.core.names import StreamName


async def fence_stream(streams: Streams, name: StreamName, lineage: bytes) -> None:
    """Make a stream read-only since its mirror is promoted as `lineage`.  Repeated: only the lineage changes.

    Streams of watermarks, and those that a user had sealed, stay as they are.  Raises Invalid (the stream is a mirror
    itself), Unavailable."""
    if not has_mark(name.stream):
        return
    for _ in range(PROMOTION_ATTEMPTS):
        with suppress(Conflict):
            await _fence(streams, name, lineage)
            return
    raise Unavailable(f"stream {name} is changed by too many others at once; try again")


async def _fence(streams: Streams, name: StreamName, lineage: bytes) -> None:
    await streams.complete_pending(name)
    known = await find_known(streams.catalog, name)
    if known is None:
        return
    if known.record.mirrored:
        raise Invalid(
            f"stream {name} is a mirror of the link {known.record.link}, which writes it: promote that link first, or "
            "make the stream read-only where it is written"
        )
    row = known.row or MirrorRecord()
    if row.fenced != lineage:
        if known.record.state is State.SEALED and not row.fenced:
            return  # a user sealed it
        await put_known(streams.catalog, name, known, replace(row, fenced=lineage))
    with suppress(NotFound):  # deleted in between
        await streams.seal(name)
