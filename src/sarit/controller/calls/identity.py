"""The call of Sarit's own service that returns creation ids: a recreated stream, group, table or scope has another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.controller import keys
from sarit.controller.model import codec
from sarit.controller.model.creation import creation_id
from sarit.core.errors import NotFound
from sarit.core.names import READER_GROUP_PREFIX, TABLE_SUFFIX
from sarit.rpc.generated import sarit_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.controller.catalog import Catalog


class IdentityCalls:
    """Calls on creation ids."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def creationId(self, request: pb.CreationIdRequest) -> pb.CreationIdResponse:
        scope, kind = request.scope, request.WhichOneof("named")
        found: bytes | None
        if kind is None:
            record = await self._catalog.scope(scope)
            found = None if record is None else creation_id(record[0].incarnation, "", 0, None)
        elif kind == "table":
            owner, key = request.table + TABLE_SUFFIX, keys.table_key(request.table)
            found = await self._of(scope, owner, key, lambda value: codec.decode_table(value).first_number)
        else:
            # A reader group has the creation id of its stream, which is created and deleted with it.
            owner = request.stream if kind == "stream" else READER_GROUP_PREFIX + request.readerGroup
            key = keys.stream_key(owner)
            found = await self._of(scope, owner, key, lambda value: codec.decode_stream(value).first_number)
        if found is None:
            name = request.stream or request.readerGroup or request.table
            raise NotFound(f"{scope}/{name} does not exist" if name else f"scope {scope} does not exist")
        return pb.CreationIdResponse(creationId=found)

    async def _of(self, scope: str, owner: str, record: bytes, first_number_of: Callable[[bytes], int]) -> bytes | None:
        """Return the creation id of a stream or table; None: it does not exist.  `record`: the key of its record;
        `owner`: the name that its segments have."""

        async def read(table: str) -> bytes | None:
            found, stored = await self._catalog.tables.get(table, [record, keys.creation_key(owner)])
            if found is None or codec.is_deleting(found.value):
                return None
            created = None if stored is None else codec.decode_creation(stored.value)
            return creation_id(keys.incarnation_of(table), owner, first_number_of(found.value), created)

        return await self._catalog.in_scope(scope, read)
