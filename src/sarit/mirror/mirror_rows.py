"""Reads and changes the rows of `mirror_records`, each in one batch with the record of its stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sarit.controller import keys
from sarit.controller.catalog import Found
from sarit.controller.model import codec
from sarit.controller.ports import TableUpdate
from sarit.mirror.mirror_records import MirrorRecord, encode_mirror, read_mirror
from sarit.wire.limits import NO_VERSION

if TYPE_CHECKING:
    from sarit.controller.catalog import Catalog
    from sarit.controller.model.records import StreamRecord
    from sarit.core.names import StreamName


class Known(NamedTuple):
    """A stream's record with its version, and what is known of it as a part of links; None: it takes part in none.

    Whoever changes either gives the stream's record a new version, so that version stands for both."""

    found: Found
    row: MirrorRecord | None

    @property
    def record(self) -> StreamRecord:
        """The stream's record."""
        return self.found.record


async def find_known(catalog: Catalog, name: StreamName) -> Known | None:
    """Return what is stored of a stream; None: there is no such stream.  Raises NotFound (scope), Corrupt."""
    stream, row = await catalog.get(name.scope, [keys.stream_key(name.stream), keys.mirror_key(name.stream)])
    if stream is None:
        return None
    return Known(catalog.seen.decode(name, stream), read_mirror(name, row))


async def put_known(
    catalog: Catalog, name: StreamName, known: Known, row: MirrorRecord, record: StreamRecord | None = None
) -> Known:
    """Store what a stream is as a part of links, and its own record if that changes.  Raises Conflict, NotFound."""
    stored = known.record if record is None else record
    updates = [
        TableUpdate(keys.stream_key(name.stream), codec.encode_stream(stored), known.found.version),
        TableUpdate(keys.mirror_key(name.stream), encode_mirror(row), NO_VERSION),
    ]
    versions = await catalog.update(name.scope, updates)
    return Known(Found(stored, versions[0]), row)
