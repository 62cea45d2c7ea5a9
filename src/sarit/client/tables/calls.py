"""Requests to the controller about tables (controller.md 2): core values in and out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.client.core import pages as listing
from sarit.client.core.values import SegmentRange
from sarit.client.tables.layout import Layout, TableConfig
from sarit.core.errors import Invalid, NotFound, Unavailable
from sarit.core.names import SegmentId, StreamName, is_user_name
from sarit.rpc.generated import controller_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sarit.client.core.controller import ControllerClient, Token
    from sarit.client.session.session import Session


async def create(controller: ControllerClient, table: StreamName, config: TableConfig) -> bool:
    """True when created, False when it existed (and is unchanged).  Raises NotFound (scope), Invalid."""
    if not is_user_name(table.stream):
        raise Invalid(f"{table.stream!r} is no name for a table: use letters, digits, '.' and '-', at most 250")
    config.check()
    status = pb.CreateKeyValueTableStatus
    request = pb.KeyValueTableConfig(
        scope=table.scope,
        kvtName=table.stream,
        partitionCount=config.partitions,
        primaryKeyLength=config.primary_key_bytes,
        secondaryKeyLength=config.secondary_key_bytes,
    )
    reply = await controller.call(controller.stub.createKeyValueTable, request)
    if reply.status == status.SCOPE_NOT_FOUND:
        raise NotFound(f"scope {table.scope} does not exist: create it first")
    if reply.status == status.INVALID_TABLE_NAME:
        raise Invalid(f"the controller refused table {table}: its name, key lengths or partitions are invalid")
    if reply.status == status.FAILURE:
        raise Unavailable(f"table {table} was not created: the controller reported a failure")
    return bool(reply.status == status.SUCCESS)


async def delete(controller: ControllerClient, table: StreamName) -> None:
    """Delete a table with all it holds.  Raises NotFound."""
    status = pb.DeleteKVTableStatus
    reply = await controller.call(controller.stub.deleteKeyValueTable, _info(table))
    if reply.status == status.TABLE_NOT_FOUND:
        raise NotFound(f"table {table} does not exist")
    if reply.status != status.SUCCESS:
        raise Unavailable(f"table {table} was not deleted: the controller reported a failure")


def pages(session: Session, scope: str) -> AsyncIterator[list[StreamName]]:
    """Return the tables of a scope.  Raises NotFound."""
    controller = session.controller

    async def page_after(token: Token) -> tuple[list[StreamName], Token]:
        request = pb.KVTablesInScopeRequest(scope=pb.ScopeInfo(scope=scope), continuationToken=token)
        page = await controller.call(controller.stub.listKeyValueTablesInScope, request)
        if page.status == pb.KVTablesInScopeResponse.SCOPE_NOT_FOUND:
            raise NotFound(f"scope {scope} does not exist")
        return [StreamName(found.scope, found.kvtName) for found in page.kvtables], page.continuationToken

    return listing.pages(session, page_after)


async def layout(controller: ControllerClient, table: StreamName) -> Layout:
    """Return the configuration and the partitions of a table.  Raises NotFound."""
    status = pb.KeyValueTableConfigResponse
    reply = await controller.call(controller.stub.getKeyValueTableConfiguration, _info(table))
    if reply.status == status.TABLE_NOT_FOUND:
        raise NotFound(f"table {table} does not exist: create it first")
    if reply.status != status.SUCCESS:
        raise Unavailable(f"table {table}: the controller reported a failure")
    try:
        found = await controller.call(controller.stub.getCurrentSegmentsKeyValueTable, _info(table))
    except NotFound:
        raise NotFound(f"table {table} does not exist any more") from None
    made = reply.config
    return Layout(
        TableConfig(made.primaryKeyLength, made.secondaryKeyLength, made.partitionCount),
        [
            SegmentRange(SegmentId.unpack(each.segmentId.segmentId), each.minKey, each.maxKey)
            for each in found.segmentRanges
        ],
    )


def _info(table: StreamName) -> pb.KeyValueTableInfo:
    return pb.KeyValueTableInfo(scope=table.scope, kvtName=table.stream)
