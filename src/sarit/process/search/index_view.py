"""The index of a stream as it is now: what its indexer has committed, and where the stream begins."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sarit.controller.jobs import JobKey
from sarit.controller.model import streams
from sarit.controller.model.cuts import bytes_between, is_cut, to_measure
from sarit.controller.model.epochs import creation_epoch, known_segments
from sarit.core.errors import Invalid, NotFound, Unavailable
from sarit.core.names import SegmentId
from sarit.process.limits import MAX_SHARD_LISTS
from sarit.process.search.spans import Limits
from sarit.search.settings import SEARCH_JOB, SEARCH_KIND
from sarit.search.shard_files import read_file
from sarit.search.state import IndexState, decode_shards

if TYPE_CHECKING:
    from sarit.controller.assembly import Controller
    from sarit.controller.jobs import Job
    from sarit.core.cuts import StreamCut
    from sarit.core.names import StreamName
    from sarit.search.ports import Blobs
    from sarit.search.state import Shard, StoredFile


@dataclass(frozen=True, slots=True)
class IndexView:
    """The index of a stream.  `shards`: in the order of their events, the growing one last."""

    stream: StreamName
    job: Job
    state: IndexState
    shards: tuple[Shard, ...]


class IndexViews:
    """Reads the indexes of an installation."""

    def __init__(self, controller: Controller, blobs: Blobs) -> None:
        self._controller = controller
        self._blobs = blobs
        self._lists: OrderedDict[StoredFile, tuple[Shard, ...]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<IndexViews, {len(self._lists)} lists of shards>"

    async def job(self, stream: StreamName) -> Job | None:
        """Return the job of a stream's index; None: it has none.  Raises NotFound (the stream), Unavailable."""
        await self._controller.catalog.require(stream)
        found = await self._controller.jobs.find(JobKey(SEARCH_KIND, stream, SEARCH_JOB))
        return None if found is None else found.job

    async def view(self, stream: StreamName) -> IndexView:
        """Return the index of a stream.  Raises NotFound, Invalid (the stream is not searchable), Corrupt,
        Unavailable."""
        for last in (False, True):
            job = await self.job(stream)
            if job is None:
                raise Invalid(
                    f"stream {stream} is not searchable: make it so with `sarit stream update {stream} --searchable`, "
                    "or read it: `sarit search`, scan=True in Python"
                )
            state = IndexState.decode(job.state)
            try:
                closed = () if state.closed is None else await self._closed(state.closed)
            except NotFound:  # the list was replaced meanwhile, and deleted
                if last:
                    raise Unavailable(f"the list of shards of {stream} cannot be read now: try again") from None
                continue
            growing = () if state.growing is None else (state.growing,)
            return IndexView(stream, job, state, (*closed, *growing))
        raise AssertionError

    async def _closed(self, file: StoredFile) -> tuple[Shard, ...]:
        found = self._lists.get(file)
        if found is None:
            found = self._lists[file] = tuple(decode_shards(await read_file(self._blobs, file)))
        self._lists.move_to_end(file)
        while len(self._lists) > MAX_SHARD_LISTS:
            self._lists.popitem(last=False)
        return found

    async def limits(self, stream: StreamName, until: StreamCut | None) -> Limits | None:
        """Return the cuts between which events are answered; None: all are.

        `until`: a cut that a caller gave; None: up to the end.  Raises NotFound, Invalid (it is no cut of the
        stream)."""
        record = await self._controller.streams.ready(stream)
        if not record.head and until is None:
            return None
        head = streams.head(record)
        first = min(map(creation_epoch, head))
        known = known_segments(await self._controller.catalog.epochs(stream, record, first))
        limits = Limits(known, head, truncated=bool(record.head))
        if until is None:
            return limits
        cut = {segment.packed: offset for segment, offset in until.positions.items()}
        if not is_cut(known, cut):
            raise Invalid(f"what was to be searched in {stream} was truncated, or never was there: search again")
        return replace(limits, until=cut)

    async def bytes_behind(self, stream: StreamName, cut: StreamCut) -> int:
        """Return how many bytes a stream has behind a cut.  Raises NotFound, Unavailable."""
        record = await self._controller.streams.ready(stream)
        begin = {segment.packed: offset for segment, offset in cut.positions.items()}
        active = [part.segment for part in record.current.segments]
        known = known_segments(await self._controller.catalog.epochs_of(stream, record, [*begin, *active]))
        if not is_cut(known, begin):
            return 0
        asked = [*active, *to_measure(known, begin, dict.fromkeys(active, 0))]
        infos = await self._controller.segments.infos([stream.segment(SegmentId.unpack(one)) for one in asked])
        lengths = {one: info.length for one, info in zip(asked, infos, strict=True) if info is not None}
        return bytes_between(known, begin, {one: lengths.get(one, 0) for one in active}, lengths)
