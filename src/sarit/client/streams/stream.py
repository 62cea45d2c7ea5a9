"""One stream by name: its epochs, scaling, batch reads, cuts by distance, event time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sarit.client.core.identity import creation_id
from sarit.client.core.iteration import Resumed
from sarit.client.core.segments import resolve_cut
from sarit.client.groups import calls
from sarit.client.reader import batch, boundaries, pointers
from sarit.client.session.guard import guarded
from sarit.client.streams import history, jobs, properties
from sarit.client.streams import manual_scaling as scaling
from sarit.client.streams.event_time import TimeWindows
from sarit.core.cuts import StreamCut
from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    import pyarrow as pa

    from sarit.client.core.values import Cut, SegmentRange
    from sarit.client.reader.batch import BatchReader, Slice
    from sarit.client.reader.pointers import EventPointer
    from sarit.client.session.session import Session
    from sarit.client.streams.history import Epoch
    from sarit.client.streams.jobs import JobInfo
    from sarit.core.names import SegmentId, StreamName


@guarded("_session")
class Stream:
    """One stream by name.  Make one with `client.stream("scope/stream")`; it sends no request until it is used."""

    def __init__(self, session: Session, name: StreamName) -> None:
        self.name = name
        self._session = session

    def __repr__(self) -> str:
        return f"Stream({self.name}, {self._session.state()})"

    # -- segments -------------------------------------------------------------------------------

    async def segments(self) -> list[SegmentRange]:
        """Return the active segments in the order of their key ranges; none when the stream is sealed.  Raises
        NotFound."""
        return await self._session.with_retry(lambda: self._session.controller.current_segments(self.name))

    async def nodes(self, segments: Iterable[SegmentId]) -> dict[SegmentId, str]:
        """Return the store of each segment as `host:port`.  Raises NotFound."""
        found: dict[SegmentId, str] = {}
        for segment in segments:
            get_endpoint = partial(self._session.endpoint, self.name, segment)
            host, port = await self._session.with_retry(get_endpoint)
            found[segment] = f"{host}:{port}"
        return found

    async def epochs(self) -> list[Epoch]:
        """Its epochs with their segments, from the oldest that holds data to the newest.  Raises NotFound."""
        return await history.epochs(self._session, self.name)

    async def scale(self, segments: int) -> bool:
        """Replace the segments by this number of segments of equal width.  Returns False when the stream has them.

        Writers and readers continue meanwhile, in order per key.  Raises NotFound, Invalid, Conflict (it is sealed,
        somebody else scaled it meanwhile, or its policy asks for more segments: `Client.update_stream`)."""
        return await scaling.scale(
            self._session, self.name, scaling.to_count(await scaling.active(self._session, self.name), segments)
        )

    async def split(self, segment: SegmentId, into: int = 2) -> bool:
        """Replace one segment by several of equal width.  Raises NotFound, Invalid, Conflict."""
        return await scaling.scale(
            self._session, self.name, scaling.split(await scaling.active(self._session, self.name), segment, into)
        )

    async def merge(self, segments: Iterable[SegmentId]) -> bool:
        """Replace neighbouring segments by one.  Raises NotFound, Invalid, Conflict."""
        return await scaling.scale(
            self._session, self.name, scaling.merge(await scaling.active(self._session, self.name), segments)
        )

    # -- subscribers ----------------------------------------------------------------------------

    async def subscribers(self) -> list[str]:
        """Return the reader groups, as "scope/group", that keep its data from retention.  Raises NotFound.

        Who may change the stream sees all of them, who may read it those that they may read."""
        return await calls.subscribers(self._session, self.name)

    async def drop_subscriber(self, group: str) -> bool:
        """End a group's ("scope/group") hold on the data of the stream.  Returns whether it had one.

        The group goes on reading, and may find that data is gone.  Raises NotFound, Invalid (not Sarit)."""
        return await calls.drop_subscriber(self._session, self.name, group)

    # -- batch reading --------------------------------------------------------------------------

    async def batch(
        self,
        start: Cut = "head",
        end: Cut = "tail",
        *,
        parallel: int = batch.DEFAULT_PARALLEL,
        skip_truncated: bool = False,
    ) -> BatchReader:
        """Everything between two cuts, `parallel` segments at once, in no order.

        Raises NotFound, Invalid, Truncated (unless `skip_truncated`)."""
        first, last = await self._cut(start), await self._cut(end)
        slices = await batch.slices_between(self._session, first, last, skip_truncated=skip_truncated)
        return batch.BatchReader(self._session, slices, parallel, skip_truncated=skip_truncated)

    def read_slice(self, part: Slice) -> AsyncIterator[pa.RecordBatch]:
        """Return one slice of a batch, which may have come from another process, as record batches.  Raises
        Truncated."""
        return Resumed(batch.read_slice(self._session, part, batch.as_arrow()))

    async def next_cut(self, start: Cut, distance_bytes: int, *, approximate: bool = False) -> StreamCut:
        """Return a cut about `distance_bytes` bytes after `start`; `start` itself at the tail.

        It reads the bytes in between to find where events begin.  `approximate`: it asks the store instead, which reads
        nothing; the cut may be further on then, by about 256 KiB for each segment.

        Raises NotFound, Invalid, Truncated."""
        return await batch.next_cut(self._session, await self._cut(start), distance_bytes, approximate=approximate)

    async def boundaries(self, segment: SegmentId, start: int, end: int, step_bytes: int) -> list[int]:
        """Event boundaries of a segment strictly between two offsets, ascending, about `step_bytes` apart.

        It asks the store, which reads nothing.  They may be further apart: by the length of an event and about 256 KiB.
        All offsets are in bytes.  Raises NotFound, Invalid."""
        return await boundaries.boundaries(self._session, self.name, segment, start, end, step_bytes)

    async def event_ends(self, segment: SegmentId, start: int, end: int, max_bytes: int) -> list[int]:
        """Return where the events between two event boundaries end, as far as `max_bytes` bytes from `start` show.

        It reads at most that many.  The last event may be longer: its header says where it ends.  All offsets are in
        bytes.  Raises NotFound, Truncated, Invalid, Corrupt (`start` is no boundary)."""
        return await boundaries.event_ends(self._session, self.name, segment, start, end, max_bytes)

    async def creation_id(self) -> bytes | None:
        """16 bytes that tell it from earlier and later streams of its name: store them with a position in it.

        None from a server that has no such call.  Raises NotFound."""
        return await creation_id(self._session, self.name.scope, stream=self.name.stream)

    async def properties(self) -> dict[str, str]:
        """Return the properties that describe the stream's content, as `set_properties` set it; empty where the server
        has no such call.

        Raises NotFound."""
        return await properties.read(self._session, self.name)

    async def link(self) -> str:
        """Return the name of the link whose mirror the stream is, empty if it is none.  Raises NotFound."""
        return await properties.link(self._session, self.name)

    async def set_properties(self, changes: Mapping[str, str | None]) -> dict[str, str]:
        """Set properties, all or none, remove those that are None, and leave the others; all of them afterwards.

        `time-unit` says in which unit its writers note times: `milliseconds` (since 1970), `seconds`, `microseconds`,
        `nanoseconds` or `none`.  `schema-header` says which header its events begin with: `confluent`, `pravega` or
        `none`.  A name of your own has a dot.  Raises NotFound, Invalid."""
        return await properties.change(self._session, self.name, changes)

    async def jobs(self) -> list[JobInfo]:
        """Return its background jobs, in order of kind and name; none where the server has no such call.  Raises
        NotFound."""
        return await jobs.jobs(self._session, self.name)

    async def create_job(self, kind: str, settings: bytes, name: str = "main") -> bool:
        """Have the server work on the stream from now on, whoever is connected.

        `kind`: of work; `settings`: the choices, in a form of the kind; `name`: among its jobs of that kind.  True when
        created, False when there is one (its settings are unchanged).  Raises NotFound, Invalid (the server does not
        know the kind, or does not take the settings)."""
        return await jobs.create(self._session, self.name, kind, settings, name)

    async def delete_job(self, kind: str, name: str = "main") -> None:
        """End a background job.  Raises NotFound (the stream, or it has no such job)."""
        await jobs.delete(self._session, self.name, kind, name)

    async def cut_at(self, time_ms: int) -> StreamCut:
        """Return a cut that every event appended at or after a time is behind; `time_ms`: since 1970, by the node's
        clock.

        The node records a cut of each stream that grows once a minute, and retains fewer of older ones: the cut is
        earlier than the time by up to a minute in the last hour, ten minutes in the last day, an hour in the last week,
        and a day before that.  When nothing of that time is known or retained, it is the head.

        Raises NotFound, Invalid (the server is not Sarit)."""
        session = self._session
        return StreamCut(self.name, await session.with_retry(lambda: session.controller.cut_at(self.name, time_ms)))

    async def _cut(self, which: Cut) -> StreamCut:
        found = await resolve_cut(self._session, self.name, which)
        if found is None:
            raise Invalid('that cut has no bounds: give "head", "tail", a StreamCut or its text')
        return found

    async def fetch_event(self, pointer: EventPointer) -> bytes:
        """Return one event again, by the pointer that came with it.  Raises Truncated (it is gone), Invalid,
        Unavailable."""
        if pointer.stream != self.name:
            raise Invalid(f"that points into {pointer.stream}, not into {self.name}")
        return await pointers.fetch(self._session, pointer)

    # -- event time -----------------------------------------------------------------------------

    def time_windows(self) -> TimeWindows:
        """Between which times the positions of one reader lie."""
        return TimeWindows(self._session, self.name)
