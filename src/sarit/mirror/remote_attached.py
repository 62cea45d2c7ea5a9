"""The `attached` ports of `ports.py`, of what goes with streams, over MirrorService."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.errors import Invalid
from sarit.mirror import attached_messages, messages
from sarit.mirror.limits import MAX_MIRROR_STREAMS_PER_CALL
from sarit.rpc.generated import mirror_pb2 as pb
from sarit.rpc.mirror_methods import MIRROR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.core.names import StreamName
    from sarit.mirror.attachments import (
        GroupFacts,
        StreamCuts,
        TableAsk,
        TableChanges,
        TableFacts,
        TableState,
        TableWrite,
    )
    from sarit.mirror.peer import Peer
    from sarit.mirror.values import LinkIdentity


class RemoteAttachedSource:
    """The tables, cuts and reader groups of a peer."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def __repr__(self) -> str:
        return f"<RemoteAttachedSource {self._peer!r}>"

    async def tables(self, scope: str, after: str) -> list[TableFacts]:
        """Return a page of a scope's key-value tables."""
        reply = await self._peer.call(MIRROR.mirrorTables, pb.MirrorPageRequest(scope=scope, after=after))
        return [attached_messages.table_of(one, scope) for one in reply.tables]

    async def table_changes(self, scope: str, ask: TableAsk) -> TableChanges:
        """Return rows of a table."""
        request = pb.MirrorTableChangesRequest(
            scope=scope, table=ask.name.stream, creationId=ask.creation_id, partition=ask.partition, since=ask.since,
            start=ask.start, end=ask.end,
        )  # fmt: skip
        found = attached_messages.changes_of(await self._peer.call(MIRROR.mirrorTableChanges, request), scope)
        if (found.name, found.partition) != (ask.name, ask.partition):
            raise Invalid("the peer of the link answers with the changes of another table")
        return found

    async def cuts(self, scope: str, after: Sequence[tuple[StreamName, int]]) -> list[StreamCuts]:
        """Return recorded cuts of streams."""
        found: list[StreamCuts] = []
        for at in range(0, len(after), MAX_MIRROR_STREAMS_PER_CALL):
            part = after[at : at + MAX_MIRROR_STREAMS_PER_CALL]
            asked = [pb.MirrorAfter(stream=name.stream, timeMs=time_ms) for name, time_ms in part]
            reply = await self._peer.call(MIRROR.mirrorCuts, pb.MirrorCutsRequest(scope=scope, after=asked))
            found += [attached_messages.cuts_of(one, scope) for one in reply.cuts]
        return found

    async def groups(self, scope: str, after: str) -> list[GroupFacts]:
        """Return a page of a scope's reader groups."""
        reply = await self._peer.call(MIRROR.mirrorGroups, pb.MirrorPageRequest(scope=scope, after=after))
        return [attached_messages.group_of(one) for one in reply.groups]


class RemoteAttachedTarget:
    """The tables, cuts and reader groups that go with the mirrors of a peer."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def __repr__(self) -> str:
        return f"<RemoteAttachedTarget {self._peer!r}>"

    async def begin_tables(self, link: LinkIdentity, scope: str, tables: Sequence[TableFacts]) -> list[TableState]:
        """Make mirrors of tables, and return their states."""
        found: list[TableState] = []
        for made in messages.parts(tables, attached_messages.table_message):
            request = pb.MirrorBeginTablesRequest(scope=scope, link=messages.link_message(link), tables=made)
            reply = await self._peer.call(MIRROR.mirrorBeginTables, request)
            if [state.table for state in reply.states] != [one.table for one in made]:
                raise Invalid("the peer of the link answers with the states of other tables")
            found += [attached_messages.table_state_of(state, scope) for state in reply.states]
        return found

    async def compare_table(self, link: LinkIdentity, scope: str, name: StreamName, partition: int) -> TableState:
        """Begin a comparison of a partition."""
        request = pb.MirrorCompareTableRequest(
            scope=scope, link=messages.link_message(link), table=name.stream, partition=partition
        )
        return attached_messages.table_state_of(await self._peer.call(MIRROR.mirrorCompareTable, request), scope)

    async def write_table(self, link: LinkIdentity, scope: str, write: TableWrite) -> TableState:
        """Make rows of a partition equal."""
        request = pb.MirrorWriteTableRequest(
            scope=scope, link=messages.link_message(link), changes=attached_messages.changes_message(write.changes),
            state=attached_messages.partition_message(write.state), endsComparison=write.ends_comparison,
        )  # fmt: skip
        return attached_messages.table_state_of(await self._peer.call(MIRROR.mirrorWriteTable, request), scope)

    async def cut_times(self, link: LinkIdentity, scope: str, names: Sequence[StreamName]) -> list[int]:
        """Return the times of the last cuts of mirrors."""
        found: list[int] = []
        for at in range(0, len(names), MAX_MIRROR_STREAMS_PER_CALL):
            part = [name.stream for name in names[at : at + MAX_MIRROR_STREAMS_PER_CALL]]
            request = pb.MirrorNamesRequest(scope=scope, link=messages.link_message(link), streams=part)
            reply = await self._peer.call(MIRROR.mirrorCutTimes, request)
            if len(reply.timesMs) != len(part):
                raise Invalid("the peer of the link answers with another number of times")
            found += reply.timesMs
        return found

    async def add_cuts(self, link: LinkIdentity, scope: str, cuts: Sequence[StreamCuts]) -> None:
        """Record cuts of mirrors."""
        for made in messages.parts(cuts, attached_messages.cuts_message):
            request = pb.MirrorAddCutsRequest(scope=scope, link=messages.link_message(link), cuts=made)
            await self._peer.call(MIRROR.mirrorAddCuts, request)

    async def put_groups(self, link: LinkIdentity, scope: str, groups: Sequence[GroupFacts]) -> list[str]:
        """Make reader groups begin at cuts, and return why some were left out."""
        found: list[str] = []
        for made in messages.parts(groups, attached_messages.group_message):
            request = pb.MirrorPutGroupsRequest(scope=scope, link=messages.link_message(link), groups=made)
            reply = await self._peer.call(MIRROR.mirrorPutGroups, request)
            if len(reply.reasons) != len(made):
                raise Invalid("the peer of the link answers with another number of reader groups")
            found += map(messages.shown, reply.reasons)
        return found

    async def promote_attached(self, link: LinkIdentity, scope: str) -> list[TableState]:
        """Make the tables of a scope writable."""
        request = pb.MirrorPromoteAttachedRequest(scope=scope, link=messages.link_message(link))
        reply = await self._peer.call(MIRROR.mirrorPromoteAttached, request)
        return [attached_messages.table_state_of(state, scope) for state in reply.states]
