"""Writers' notes of event time: a writer's position in the stream at a time.  Watermarks are computed from them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sarit.controller import keys
from sarit.controller.model import codec
from sarit.controller.model.cuts import follows
from sarit.controller.model.epochs import known_segments
from sarit.controller.model.records import WriterRecord
from sarit.controller.model.streams import require_writable
from sarit.controller.ports import TableUpdate
from sarit.controller.streams import MAX_ATTEMPTS
from sarit.core.errors import Conflict, Invalid, NotFound, Unavailable
from sarit.core.limits import NOT_EXISTS
from sarit.core.names import StreamName, is_user_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.controller.catalog import Catalog
    from sarit.controller.ports import TableValue
    from sarit.controller.streams import Streams


class EarlierTime(Invalid):
    """A writer noted an earlier time than before."""


class UnknownWriter(NotFound):
    """A writer of this name has noted no time."""


class Writers:
    """The notes of writers."""

    def __init__(self, catalog: Catalog, streams: Streams) -> None:
        self._catalog = catalog
        self._streams = streams

    async def note(self, name: StreamName, writer: str, time: int, position: Mapping[int, int]) -> None:
        """Record a writer's time and position, which need not cover the key space.

        Raises NotFound (stream), EarlierTime, Forbidden (a mirror), Invalid (writer's name, or the position is before
        the last one)."""
        if not is_user_name(writer):
            raise Invalid(f"{writer!r} is not a writer's name")
        record = await self._streams.ready(name)
        require_writable(record)
        # Enter the stream before the note is stored, so that maintenance, which removes entries of streams without
        # notes, finds a new version of the entry and keeps it.
        await self._catalog.index_for_maintenance(keys.WATERMARK_INDEX, name)
        key = keys.writer_key(name.stream, writer)
        for _ in range(MAX_ATTEMPTS):
            (value,) = await self._catalog.get(name.scope, [key])
            before = None if value is None else codec.decode_writer(value.value)
            if before is not None and time < before.time and not before.leaving:
                raise EarlierTime(f"writer {writer} noted the later time {before.time} before")
            earlier = {} if before is None else before.position
            known = known_segments(await self._catalog.epochs_of(name, record, [*position, *earlier]))
            if not known.keys() >= position.keys() or min(position.values(), default=0) < 0:
                raise Invalid(f"writer {writer} has a position in segments that stream {name} never had")
            if before is not None:
                # Ignore unknown segments: if the stream was recreated, the last note may be older than it.
                last = {segment: offset for segment, offset in before.position.items() if segment in known}
                if not follows(known, last, position):
                    raise Invalid(f"writer {writer} noted a later position before")
                if before.leaving:  # the writer returned: the next watermark must still include its earlier position
                    old = {s: o for s, o in last.items() if not any(known[s].overlaps(known[p]) for p in position)}
                    position = old | dict(position)
            note = codec.encode_writer(WriterRecord(time, dict(position)))
            if await self._replace(name, key, value, note):
                return
        raise Unavailable(f"writer {writer} of {name} is changed by too many others at once; try again")

    async def remove(self, name: StreamName, writer: str) -> None:
        """Remove a writer that will not note again.  Raises NotFound (stream), UnknownWriter."""
        await self._catalog.require(name)
        key = keys.writer_key(name.stream, writer)
        for _ in range(MAX_ATTEMPTS):
            (value,) = await self._catalog.get(name.scope, [key])
            if value is None:
                raise UnknownWriter(f"writer {writer} of {name} has noted no time")
            # Keep the note for the next watermark, which must include this writer's last position: otherwise the
            # watermark could be ahead of events of this writer.
            note = codec.encode_writer(replace(codec.decode_writer(value.value), leaving=True))
            if note == value.value or await self._replace(name, key, value, note):
                return
        raise Unavailable(f"writer {writer} of {name} is changed by too many others at once; try again")

    async def _replace(self, name: StreamName, key: bytes, value: TableValue | None, note: bytes) -> bool:
        """Store a note.  Returns False if another call changed it.  Raises NotFound (the stream was deleted)."""
        updates = [
            # A stream's number is stored while the stream does not exist: this fails when the stream was deleted.
            TableUpdate(keys.number_key(name.stream), None, NOT_EXISTS),
            TableUpdate(key, note, NOT_EXISTS if value is None else value.version),
        ]
        try:
            await self._catalog.update(name.scope, updates)
        except Conflict:
            await self._catalog.require(name)
            return False
        return True
