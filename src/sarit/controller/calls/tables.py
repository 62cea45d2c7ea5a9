"""The calls on key-value tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.controller import keys
from sarit.controller.key_value_tables import partitions
from sarit.controller.model.records import State, TableRecord
from sarit.core.errors import Exists, Invalid, NotFound
from sarit.core.names import StreamName
from sarit.rpc.convert import page_token, segment_range
from sarit.rpc.generated import controller_pb2 as pb

if TYPE_CHECKING:
    from sarit.controller.catalog import Catalog
    from sarit.controller.key_value_tables import KeyValueTables

_Create = pb.CreateKeyValueTableStatus
_Page = pb.KVTablesInScopeResponse
_Config = pb.KeyValueTableConfigResponse
_Delete = pb.DeleteKVTableStatus


class TableCalls:
    """Rpcs on key-value tables."""

    def __init__(self, catalog: Catalog, tables: KeyValueTables) -> None:
        self._catalog = catalog
        self._tables = tables

    async def createKeyValueTable(self, request: pb.KeyValueTableConfig) -> pb.CreateKeyValueTableStatus:
        wanted = TableRecord(
            State.CREATING, 0, request.partitionCount, request.primaryKeyLength, request.secondaryKeyLength,
            request.rolloverSizeBytes, 0,
        )  # fmt: skip
        try:
            await self._tables.create(request.scope, request.kvtName, wanted)
        except Invalid:
            return _Create(status=_Create.INVALID_TABLE_NAME)
        except NotFound:
            return _Create(status=_Create.SCOPE_NOT_FOUND)
        except Exists:
            return _Create(status=_Create.TABLE_EXISTS)
        return _Create(status=_Create.SUCCESS)

    async def getCurrentSegmentsKeyValueTable(self, request: pb.KeyValueTableInfo) -> pb.SegmentRanges:
        name = StreamName(request.scope, request.kvtName)
        segments = partitions(await self._tables.find(request.scope, request.kvtName))
        return pb.SegmentRanges(segmentRanges=[segment_range(name, s.segment, s.low, s.high) for s in segments])

    async def listKeyValueTablesInScope(self, request: pb.KVTablesInScopeRequest) -> pb.KVTablesInScopeResponse:
        scope, asked = request.scope.scope, request.continuationToken.token
        try:
            names = await self._catalog.page(scope, keys.TABLES, asked)
        except NotFound:
            return _Page(status=_Page.SCOPE_NOT_FOUND, continuationToken=page_token([], asked))
        tables = [pb.KeyValueTableInfo(scope=scope, kvtName=name) for name in names]
        return _Page(kvtables=tables, continuationToken=page_token(names, asked), status=_Page.SUCCESS)

    async def getKeyValueTableConfiguration(self, request: pb.KeyValueTableInfo) -> pb.KeyValueTableConfigResponse:
        try:
            record = await self._tables.find(request.scope, request.kvtName)
        except NotFound:
            return _Config(status=_Config.TABLE_NOT_FOUND)
        config = pb.KeyValueTableConfig(
            scope=request.scope, kvtName=request.kvtName, partitionCount=record.partitions,
            primaryKeyLength=record.primary_key_length, secondaryKeyLength=record.secondary_key_length,
            rolloverSizeBytes=record.rollover_bytes,
        )  # fmt: skip
        return _Config(config=config, status=_Config.SUCCESS)

    async def deleteKeyValueTable(self, request: pb.KeyValueTableInfo) -> pb.DeleteKVTableStatus:
        try:
            await self._tables.delete(request.scope, request.kvtName)
        except NotFound:
            return _Delete(status=_Delete.TABLE_NOT_FOUND)
        return _Delete(status=_Delete.SUCCESS)
