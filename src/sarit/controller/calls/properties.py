"""The calls on the properties of streams."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from sarit.controller import keys
from sarit.controller.model import codec
from sarit.controller.model.streams import require_writable
from sarit.controller.ports import TableUpdate
from sarit.controller.streams import MAX_ATTEMPTS
from sarit.core import properties
from sarit.core.errors import Conflict, NotFound, Unavailable
from sarit.rpc.generated import sarit_pb2 as pb
from sarit.wire.limits import NO_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.controller.catalog import Catalog
    from sarit.controller.ports import TableValue


class PropertyCalls:
    """Calls on the properties of streams."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def streamProperties(self, request: pb.StreamPropertiesRequest) -> pb.StreamPropertiesResponse:
        stream, found = await self._read(request.scope, request.stream)
        return pb.StreamPropertiesResponse(properties=found, link=codec.decode_stream(stream.value).link)

    async def changeStreamProperties(self, request: pb.ChangeStreamPropertiesRequest) -> pb.StreamPropertiesResponse:
        changes = dict(request.properties)
        properties.check_change(changes)
        for _ in range(MAX_ATTEMPTS):
            stream, present = await self._read(request.scope, request.stream)
            require_writable(codec.decode_stream(stream.value))  # a mirror has the properties of its source
            found = properties.changed(present, changes)
            with suppress(Conflict):
                await self._store(request.scope, request.stream, stream, found)
                return pb.StreamPropertiesResponse(properties=found)
        raise Unavailable(f"stream {request.scope}/{request.stream} is changed by too many others at once; try again")

    async def _read(self, scope: str, stream: str) -> tuple[TableValue, dict[str, str]]:
        """Return the record of a stream, and its properties.  Raises NotFound."""
        wanted = [keys.stream_key(stream), keys.properties_key(stream)]
        record, found = await self._catalog.get(scope, wanted)
        if record is None or codec.is_deleting(record.value):
            raise NotFound(f"stream {scope}/{stream} does not exist")
        return record, {} if found is None else codec.decode_properties(found.value)

    async def _store(self, scope: str, stream: str, record: TableValue, found: Mapping[str, str]) -> None:
        # Write the stream's record again unchanged, so that concurrent changes of properties and deletions conflict.
        value = codec.encode_properties(found) if found else None
        updates = [
            TableUpdate(keys.stream_key(stream), record.value, record.version),
            TableUpdate(keys.properties_key(stream), value, NO_VERSION),
        ]
        await self._catalog.update(scope, updates)
