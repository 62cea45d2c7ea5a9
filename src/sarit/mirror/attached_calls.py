"""The calls of MirrorService about what goes with streams: tables, cuts, reader groups, the schema registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sarit.core.errors import Invalid
from sarit.mirror import attached_messages, messages
from sarit.mirror.attachments import NO_POSITION, TableAsk, TableState, TableWrite
from sarit.rpc.generated import mirror_pb2 as pb

if TYPE_CHECKING:
    from sarit.mirror.calls import Sides
    from sarit.mirror.values import LinkIdentity


class AttachedCalls:
    """The calls of MirrorService that `sides` answers by its `attached` ports."""

    def __init__(self, sides: Sides, own: str = "") -> None:
        """`own`: the id of this installation."""
        self._own = own
        self._sides = sides

    def _link(self, request: Any) -> LinkIdentity:
        return messages.link_of(request.link, self._own)

    def __repr__(self) -> str:
        return f"<AttachedCalls on {self._sides!r}>"

    async def mirrorTables(self, request: pb.MirrorPageRequest) -> pb.MirrorTablesResponse:
        found = await self._sides.source.attached.tables(request.scope, request.after)
        return pb.MirrorTablesResponse(tables=map(attached_messages.table_message, found))

    async def mirrorTableChanges(self, request: pb.MirrorTableChangesRequest) -> pb.MirrorTableChanges:
        if request.partition < 0 or request.since < NO_POSITION:
            raise Invalid("a link asks for the changes of no partition of a table")
        ask = TableAsk(
            messages.stream_of(request.scope, request.table), request.creationId, request.partition, request.since,
            request.start, request.end if request.HasField("end") else None,
        )  # fmt: skip
        found = await self._sides.source.attached.table_changes(request.scope, ask)
        return attached_messages.changes_message(found)

    async def mirrorCuts(self, request: pb.MirrorCutsRequest) -> pb.MirrorCutsResponse:
        messages.bounded(request.after)
        after = [(messages.stream_of(request.scope, one.stream), one.timeMs) for one in request.after]
        found = await self._sides.source.attached.cuts(request.scope, after)
        return pb.MirrorCutsResponse(cuts=map(attached_messages.cuts_message, found))

    async def mirrorGroups(self, request: pb.MirrorPageRequest) -> pb.MirrorGroupsResponse:
        found = await self._sides.source.attached.groups(request.scope, request.after)
        return pb.MirrorGroupsResponse(groups=map(attached_messages.group_message, found))

    async def mirrorBeginTables(self, request: pb.MirrorBeginTablesRequest) -> pb.MirrorTableStatesResponse:
        messages.bounded(request.tables)
        tables = [attached_messages.table_of(one, request.scope) for one in request.tables]
        link = self._link(request)
        return _states(await self._sides.target.attached.begin_tables(link, request.scope, tables))

    async def mirrorCompareTable(self, request: pb.MirrorCompareTableRequest) -> pb.MirrorTableState:
        name = messages.stream_of(request.scope, request.table)
        link = self._link(request)
        found = await self._sides.target.attached.compare_table(link, request.scope, name, request.partition)
        return attached_messages.table_state_message(found)

    async def mirrorWriteTable(self, request: pb.MirrorWriteTableRequest) -> pb.MirrorTableState:
        changes = attached_messages.changes_of(request.changes, request.scope)
        state = attached_messages.partition_of(request.state)
        write, link = TableWrite(changes, state, request.endsComparison), self._link(request)
        found = await self._sides.target.attached.write_table(link, request.scope, write)
        return attached_messages.table_state_message(found)

    async def mirrorCutTimes(self, request: pb.MirrorNamesRequest) -> pb.MirrorCutTimesResponse:
        names, link = messages.names_of(request.streams, request.scope), self._link(request)
        times = await self._sides.target.attached.cut_times(link, request.scope, names)
        return pb.MirrorCutTimesResponse(timesMs=times)

    async def mirrorAddCuts(self, request: pb.MirrorAddCutsRequest) -> pb.MirrorDone:
        messages.bounded(request.cuts)
        cuts = [attached_messages.cuts_of(one, request.scope) for one in request.cuts]
        await self._sides.target.attached.add_cuts(self._link(request), request.scope, cuts)
        return pb.MirrorDone()

    async def mirrorPutGroups(self, request: pb.MirrorPutGroupsRequest) -> pb.MirrorPutGroupsResponse:
        messages.bounded(request.groups)
        groups = [attached_messages.group_of(one) for one in request.groups]
        link = self._link(request)
        reasons = await self._sides.target.attached.put_groups(link, request.scope, groups)
        return pb.MirrorPutGroupsResponse(reasons=reasons)

    async def mirrorPromoteAttached(self, request: pb.MirrorPromoteAttachedRequest) -> pb.MirrorTableStatesResponse:
        link = self._link(request)
        return _states(await self._sides.target.attached.promote_attached(link, request.scope))


def _states(states: list[TableState]) -> pb.MirrorTableStatesResponse:
    return pb.MirrorTableStatesResponse(states=map(attached_messages.table_state_message, states))
