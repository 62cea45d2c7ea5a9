"""The mapping that searches of a stream without an index go by: that of its index, or an inferred one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sarit.client.core.segments import head_cut, tail_cut
from sarit.client.limits import SEARCH_SAMPLE_SECONDS
from sarit.client.reader.reader import EventReader
from sarit.client.search.index_calls import index_info
from sarit.client.streams.jobs import jobs
from sarit.client.streams.search_index import index_of
from sarit.core.envelope import Envelope
from sarit.core.errors import Invalid
from sarit.search.mapping import from_document
from sarit.search.mapping_inference import Sample, infer

if TYPE_CHECKING:
    from sarit.client.session.session import Session
    from sarit.core.cuts import StreamCut
    from sarit.core.names import StreamName
    from sarit.search.document_maker import Decode
    from sarit.search.mapping import Mapping


@dataclass(frozen=True, slots=True)
class ScanFields:
    """The fields of a stream's events, and whether events say when they happened, in a field or in an envelope."""

    mapping: Mapping
    own_times: bool


async def scan_mapping(
    session: Session, stream: StreamName, start: StreamCut | None = None, decode: Decode | None = None
) -> Mapping:
    """Return the newest mapping of the stream's index, or else that of the first events behind a cut.

    `start`: None: the head.  `decode`: as of `DocumentMaker`.  Raises NotFound, Invalid, Unavailable."""
    return (await scan_fields(session, stream, start, decode)).mapping


async def scan_fields(
    session: Session, stream: StreamName, start: StreamCut | None = None, decode: Decode | None = None
) -> ScanFields:
    """Return the mapping of `scan_mapping`, and what the first events behind the cut say of their times."""
    indexed = await _mapping_of_index(session, stream)
    events = await _sample(session, stream, start)
    worker = session.env.threads.worker("search")
    try:
        mapping = indexed if indexed is not None else await worker.run(partial(infer, events, decode))
    finally:
        await worker.close()
    return ScanFields(mapping, bool(mapping.time_field) or any(map(Envelope.is_envelope, events)))


async def _mapping_of_index(session: Session, stream: StreamName) -> Mapping | None:
    """Return the mapping of a stream's index; None: it has none, or the index no event."""
    index = index_of(await jobs(session, stream))
    if index is None or index.settings.mapping is not None:
        return None if index is None else index.settings.mapping
    try:
        found = await index_info(session, stream)
    except Invalid:  # of a server without searches
        return None
    return from_document({"fields": dict(found.mapping), "time_field": found.time_field}) if found.mapping else None


async def _sample(session: Session, stream: StreamName, start: StreamCut | None) -> list[bytes]:
    """Return the first events behind a cut that are at hand."""

    async def between() -> tuple[StreamCut, StreamCut]:
        return start or await head_cut(session, stream), await tail_cut(session, stream)

    reader = EventReader(session, stream, between, skip_truncated=True)
    sample = Sample()
    try:
        while sample.left:
            events = await reader.read_events(sample.left, SEARCH_SAMPLE_SECONDS)
            if not events:
                break
            sample.add(events)
    finally:
        reader.close()
    return sample.events


__all__ = ["ScanFields", "scan_fields", "scan_mapping"]
