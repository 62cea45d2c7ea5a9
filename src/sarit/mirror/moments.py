"""Reads streams of a source at clean moments.

A *clean moment* of a stream is one at which no transaction is merged into some of its segments and not into others.
The commit worker (`controller/transactions/commit_worker.py`) merges segment by segment, and every batch that it
completes gives the stream's record a new version.  So lengths belong to a clean moment if, after they were read, no
transaction is being committed, and then the record still has the version that it had before: a batch that had begun
would be one or the other.  While one commit follows another, two kinds of transactions that are being committed do no
harm: those of which all parts still exist after the lengths were read, so that no merge had begun, and those of which
no part existed any more before.  A stream of one segment needs no check, because each merge is one operation.

Work that a record states (a scale, a seal) is completed first, so that replaced segments are sealed when their
successors are offered.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from sarit.controller import keys
from sarit.controller.model import codec, streams
from sarit.controller.model.creation import creation_id
from sarit.controller.model.records import State
from sarit.controller.runner import for_each_bounded
from sarit.controller.transactions.merged_parts import Parts, committing
from sarit.core.errors import Corrupt, NotFound
from sarit.core.names import SegmentId, StreamName
from sarit.core.repeated_log import RepeatedLog
from sarit.mirror import offers
from sarit.mirror.limits import CLEAN_MOMENT_PAUSES_SECONDS, MAX_STREAMS_KNOWN
from sarit.mirror.mirror_records import MirrorRecord, read_mirror

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sarit.controller.catalog import Catalog
    from sarit.controller.model.records import StreamRecord
    from sarit.controller.ports import SegmentInfo, Segments, TableValue
    from sarit.controller.streams import Streams
    from sarit.env.ports import Env
    from sarit.mirror.offers import Moment

_log = logging.getLogger("sarit.mirror")


@dataclass(frozen=True, slots=True)
class SourceStream:
    """A stream as it is stored.  `version`: of its record.  `facts_version`: as in `StreamFacts`."""

    name: StreamName
    record: StreamRecord
    version: int
    facts_version: int
    creation_id: bytes
    properties: bytes | None
    mirror: MirrorRecord | None

    @property
    def is_sealed(self) -> bool:
        """Whether a user has sealed the stream: one that is sealed because its mirror was promoted is only fenced."""
        return self.record.state is State.SEALED and not (self.mirror and self.mirror.fenced)

    @property
    def is_half_merged(self) -> bool:
        """Whether this is a mirror into which another link is merging a round."""
        return self.mirror is not None and self.mirror.decided is not None


class _Known(NamedTuple):
    """A stream as it was decoded last, and what it was decoded from."""

    content: tuple[bytes | None, ...]
    row: SourceStream


class Moments:
    """The streams of this installation, as links see them."""

    def __init__(self, catalog: Catalog, streams: Streams, segments: Segments, env: Env) -> None:
        self._catalog = catalog
        self._streams = streams
        self._segments = segments
        self._repeated = RepeatedLog(_log, env.clock.monotonic)
        self._known: OrderedDict[StreamName, _Known] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Moments of {self._catalog!r}>"

    async def at(self, scope: str, wanted: Mapping[StreamName, int | None]) -> dict[StreamName, Moment | None]:
        """Return a clean moment of each stream, with its epochs from a number on (None: from the last on).

        None: there is no such stream.  A stream that had no clean moment in time is missing."""
        out: dict[StreamName, Moment | None] = {}
        left, merged = list(wanted), dict[StreamName, set[int]]()
        for pause in (*CLEAN_MOMENT_PAUSES_SECONDS, None):
            rows = await self.settled(scope, left)
            if len(left) < len(wanted) or pause != CLEAN_MOMENT_PAUSES_SECONDS[0]:
                merged = await self._merged(rows)  # not at once, since most streams have no transactions
            found = [
                await self._moment(row, row.record.current.number if (first := wanted[row.name]) is None else first)
                for row in rows
                if row is not None
            ]
            await self._measure(found)
            unclean = await self._unclean(scope, found, {row.name: row for row in rows if row is not None}, merged)
            out |= dict.fromkeys(name for name, row in zip(left, rows, strict=True) if row is None)
            out |= {moment.name: moment for moment in found if moment.name not in unclean}
            left = list(unclean)
            if not left:
                return out
            if pause is not None:
                await asyncio.sleep(pause)
        for name in left:
            self._repeated.info(str(name), f"{name} cannot be copied yet: its transactions are being committed")
        return out

    async def _moment(self, row: SourceStream, first: int) -> Moment:
        name, record, head = row.name, row.record, streams.head(row.record)
        epochs = await self._catalog.epochs(name, record, max(first, 0)) or (record.current,)
        page = offers.page_of(epochs)
        more, alive = len(page) < len(epochs), offers.alive(page, head)
        return offers.Moment(name, row.facts_version, row.is_sealed and not more, head, page, more, alive, {})

    async def _measure(self, moments: Sequence[Moment]) -> None:
        """Fill in the states of all segments; those of a missing segment are missing."""
        asked = [(moment, segment) for moment in moments for segment in moment.alive]
        found = await self._infos([moment.name.segment(SegmentId.unpack(segment)) for moment, segment in asked])
        for (moment, segment), info in zip(asked, found, strict=True):
            if info is not None:
                moment.infos[segment] = info

    async def _infos(self, segments: Sequence[str]) -> list[SegmentInfo | None]:
        with suppress(Corrupt):
            return await self._segments.infos(segments)
        out: dict[str, SegmentInfo] = {}  # a damaged segment must not keep the others from being copied

        async def one(segment: str) -> None:
            with suppress(NotFound, Corrupt):
                out[segment] = await self._segments.info(segment)

        await for_each_bounded(segments, one)
        return [out.get(segment) for segment in segments]

    async def _unclean(
        self,
        scope: str,
        moments: Sequence[Moment],
        rows: Mapping[StreamName, SourceStream],
        merged: Mapping[StreamName, set[int]],
    ) -> list[StreamName]:
        """Return the streams whose lengths may belong to different moments.

        `merged`: transactions that were merged into all segments before the lengths were read."""
        out, checked = list[StreamName](), list[StreamName]()
        for moment in moments:
            if len(moment.infos) < len(moment.alive) or rows[moment.name].record.pending:
                out.append(moment.name)
            elif not moment.is_single:
                checked.append(moment.name)
        half = set[StreamName]()

        async def collect(name: StreamName) -> None:
            for txn, parts in (await self._committing(rows[name])).items():
                if txn not in merged.get(name, ()) and parts is not Parts.ALL:
                    half.add(name)

        await for_each_bounded(checked, collect)
        if checked:
            # Read the versions last: a transaction that ended meanwhile has changed its stream's.
            values = await self._catalog.get(scope, [keys.stream_key(name.stream) for name in checked])
            for name, value in zip(checked, values, strict=True):
                changed = value is None or value.version != rows[name].version
                if changed or name in half or rows[name].is_half_merged:
                    out.append(name)
        return out

    async def _merged(self, rows: Sequence[SourceStream | None]) -> dict[StreamName, set[int]]:
        """Return the transactions of streams that are merged into all segments, and not ended yet."""
        out: dict[StreamName, set[int]] = {}
        for row in rows:
            if row is not None:
                found = await self._committing(row)
                out[row.name] = {txn for txn, parts in found.items() if parts is Parts.NONE}
        return out

    async def _committing(self, row: SourceStream) -> dict[int, Parts]:
        return await committing(self._catalog, self._infos, row.name, row.record)

    # -- records ----------------------------------------------------------------------------------

    async def settled(self, scope: str, names: Sequence[StreamName]) -> list[SourceStream | None]:
        """Return streams whose work is complete, in order; None: there is no such stream."""
        rows = await self._rows(scope, names)
        pending = [row.name for row in rows if row is not None and row.record.pending]
        if not pending:
            return rows

        async def complete(name: StreamName) -> None:
            await self._streams.complete_pending(name)

        await for_each_bounded(pending, complete)
        return await self._rows(scope, names)

    async def _rows(self, scope: str, names: Sequence[StreamName]) -> list[SourceStream | None]:
        wanted = [key for name in names for key in _keys_of(name.stream)]

        async def read(table: str) -> tuple[str, list[TableValue | None]]:
            return table, await self._catalog.tables.get(table, wanted) if wanted else []

        try:
            table, values = await self._catalog.in_scope(scope, read)
        except NotFound:
            return [None] * len(names)
        incarnation, step = keys.incarnation_of(table), len(_keys_of(""))
        return [self._row(name, incarnation, values[n * step : (n + 1) * step]) for n, name in enumerate(names)]

    def _row(self, name: StreamName, incarnation: bytes, values: Sequence[TableValue | None]) -> SourceStream | None:
        stream, created, *_ = values
        if stream is None or codec.is_deleting(stream.value):
            self._known.pop(name, None)
            return None
        known = self._known.pop(name, None)
        # Commits write a record again unchanged: the facts keep the version that they had then.
        content = (incarnation, *(None if value is None else value.value for value in values))
        if known is not None and known.content == content:
            row = known.row
            if row.version != stream.version:
                row = replace(row, version=stream.version)
        else:
            record, version = self._catalog.seen.decode(name, stream)
            stored = None if created is None else codec.decode_creation(created.value)
            created_as = creation_id(incarnation, name.stream, record.first_number, stored)
            mirror = read_mirror(name, values[3])
            row = SourceStream(name, record, version, version, created_as, content[3], mirror)
        self._known[name] = _Known(content, row)
        if len(self._known) > MAX_STREAMS_KNOWN:
            self._known.popitem(last=False)
        return row


def _keys_of(stream: str) -> list[bytes]:
    """Return the keys of what is known of a stream."""
    return [
        keys.stream_key(stream), keys.creation_key(stream), keys.properties_key(stream), keys.mirror_key(stream),
    ]  # fmt: skip
