"""Reads and stores mirrors: a stream's record together with the row of what is known of it as a part of links."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from sarit.controller import keys
from sarit.controller.model import codec, streams
from sarit.controller.model.creation import creation_id
from sarit.controller.model.epochs import known_segments
from sarit.controller.ports import TableUpdate
from sarit.core.errors import NotFound
from sarit.core.limits import NOT_EXISTS
from sarit.core.names import SegmentId
from sarit.mirror.limits import MAX_MIRRORS_SEEN
from sarit.mirror.mirror_checks import before_head
from sarit.mirror.mirror_records import MirrorRecord, decode_mirror, encode_mirror
from sarit.mirror.staging import Place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.controller.catalog import Catalog
    from sarit.controller.model.cuts import Cut
    from sarit.controller.model.epochs import SegmentRange
    from sarit.controller.model.records import StreamRecord
    from sarit.core.names import StreamName


class Mirror(NamedTuple):
    """A stream's record and its row, with their versions; a stream without a row takes part in no link.

    `creation_id`: empty if it was not read."""

    name: StreamName
    record: StreamRecord
    version: int
    row: MirrorRecord
    row_version: int
    creation_id: bytes = b""

    @property
    def starts(self) -> Cut:
        """Where segments begin, if that is not 0."""
        return self.row.head or streams.head(self.record)

    def place(self, segment: int, base: int) -> Place:
        """Return where bytes are staged for a segment that ends at `base`."""
        return Place(self.name.segment(SegmentId.unpack(segment)), base, self.row.drops.get(segment, 0))

    def copied(self, segments: Sequence[SegmentRange], known: dict[int, SegmentRange]) -> list[int]:
        """Return those of `segments` that have bytes at the source: not those that stand in for later ones."""
        if not self.row.head:
            return [s.segment for s in segments]
        return [s.segment for s in segments if not before_head(s, self.row.head, known)]


class OpenMirrors:
    """Reads and stores mirrors of one installation."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        # Rows are decoded once: every write of a link reads them.
        self._decoded: OrderedDict[StreamName, tuple[bytes, MirrorRecord]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<OpenMirrors, {len(self._decoded)} rows decoded>"

    async def read(self, scope: str, names: Sequence[StreamName]) -> list[Mirror | None]:
        """Return streams with their rows, in order; None: there is no such stream."""
        wanted = [key for name in names for key in (keys.stream_key(name.stream), keys.mirror_key(name.stream))]
        try:
            values = await self.catalog.get(scope, wanted)
        except NotFound:
            return [None for _ in names]
        out: list[Mirror | None] = []
        for name, stream, row in zip(names, values[::2], values[1::2], strict=True):
            if stream is None:
                out.append(None)
                continue
            record, version = self.catalog.seen.decode(name, stream)
            known = MirrorRecord() if row is None else self._decode(name, row.value)
            out.append(Mirror(name, record, version, known, NOT_EXISTS if row is None else row.version))
        return out

    def _decode(self, name: StreamName, data: bytes) -> MirrorRecord:
        seen = self._decoded.pop(name, None)
        if seen is None or seen[0] != data:
            seen = (data, decode_mirror(name, data))
        self._decoded[name] = seen
        if len(self._decoded) > MAX_MIRRORS_SEEN:
            self._decoded.popitem(last=False)
        return seen[1]

    async def identified(self, scope: str, names: Sequence[StreamName]) -> list[Mirror | None]:
        """Return streams with their rows and creation ids, in order; None: there is no such stream."""
        mirrors = await self.read(scope, names)
        if not any(mirrors):
            return mirrors
        values = await self.catalog.get(scope, [keys.creation_key(name.stream) for name in names])
        incarnation = keys.incarnation_of((await self.catalog.numbers.place(scope)).table)
        out: list[Mirror | None] = []
        for mirror, value in zip(mirrors, values, strict=True):
            if mirror is None:
                out.append(None)
                continue
            stored = None if value is None else codec.decode_creation(value.value)
            found = creation_id(incarnation, mirror.name.stream, mirror.record.first_number, stored)
            out.append(mirror._replace(creation_id=found))
        return out

    async def store(
        self, mirror: Mirror, *, record: StreamRecord | None = None, row: MirrorRecord | None = None,
        more: Sequence[TableUpdate] = (),
    ) -> Mirror:  # fmt: skip
        """Store a mirror changed.  Returns it with its new versions.  Raises Conflict, NotFound (scope)."""
        name, changed = mirror.name, mirror.record if record is None else record
        # Write the stream's record always, so that one version stands for both.
        updates = [TableUpdate(keys.stream_key(name.stream), codec.encode_stream(changed), mirror.version)]
        if row is not None:
            updates.append(TableUpdate(keys.mirror_key(name.stream), encode_mirror(row), mirror.row_version))
        versions = await self.catalog.update(name.scope, [*updates, *more])
        if row is None:
            return mirror._replace(record=changed, version=versions[0])
        return mirror._replace(record=changed, version=versions[0], row=row, row_version=versions[1])

    async def known(self, mirror: Mirror) -> dict[int, SegmentRange]:
        """Return the segments of a mirror: all of them while it has not all epochs of its head, else the latest."""
        if not mirror.row.head:
            return known_segments(mirror.record.epochs)
        return known_segments(await self.catalog.epochs(mirror.name, mirror.record, 0))
