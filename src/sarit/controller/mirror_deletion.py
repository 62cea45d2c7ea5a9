"""Prepares the deletion of a mirror: what only its link knows of goes, too."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from sarit.controller import keys
from sarit.controller.model import codec
from sarit.controller.model.effects import DeleteSegment
from sarit.core.errors import Forbidden, NotFound
from sarit.core.names import SegmentId, staging_segment

if TYPE_CHECKING:
    from sarit.controller.catalog import Catalog
    from sarit.controller.model.records import StreamRecord
    from sarit.controller.runner import EffectRunner
    from sarit.core.names import StreamName


async def release_mirror(catalog: Catalog, runner: EffectRunner, name: StreamName, record: StreamRecord) -> None:
    """Delete what a link has staged for a mirror that is to be deleted.

    Raises Forbidden: the link exists, and would make the mirror again."""
    with suppress(NotFound):  # there never was a link
        (link,) = await catalog.tables.get(keys.LINKS_TABLE, [keys.link_key(record.link)])
        if link is not None:
            raise Forbidden(
                f"stream {name} is the mirror of link {record.link}, which would make it again: delete the link, or "
                f"promote its mirrors by `sarit link promote {record.link}`"
            )
    (row,) = await catalog.get(name.scope, [keys.mirror_key(name.stream)])
    drops = {} if row is None else codec.drops_of_mirror(row.value)
    segments = {s.segment: name.segment(SegmentId.unpack(s.segment)) for s in record.current.segments}
    infos = await runner.segments.infos(list(segments.values()))
    staged = [
        staging_segment(segment, info.length, drops.get(s, 0))
        for (s, segment), info in zip(segments.items(), infos, strict=True)
        if info is not None
    ]
    await runner.run([DeleteSegment(segment) for segment in staged])
