"""What goes with streams in this installation, as both sides of links: the ports `AttachedSource`, `AttachedTarget`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.errors import Invalid
from sarit.mirror.limits import MAX_MIRROR_STREAMS_PER_CALL
from sarit.mirror.table_source import TableSource
from sarit.mirror.table_target import TableTarget
from sarit.mirror.timeline_copies import TimelineTarget, cuts_after

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sarit.controller.catalog import Catalog
    from sarit.controller.groups import Groups
    from sarit.controller.key_value_tables import KeyValueTables
    from sarit.controller.ports import Segments
    from sarit.controller.scopes import Scopes
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
    from sarit.mirror.link_table import LinkTable
    from sarit.mirror.values import LinkIdentity


class LocalAttachedSource:
    """The tables, recorded cuts and reader groups of this installation, for links that copy them."""

    def __init__(self, catalog: Catalog, installation: str, segments: Segments) -> None:
        self._catalog = catalog
        self._segments = segments
        self._tables = TableSource(catalog, installation)

    async def tables(self, scope: str, after: str) -> list[TableFacts]:
        """Return a page of tables."""
        return await self._tables.tables(scope, after)

    async def table_changes(self, scope: str, ask: TableAsk) -> TableChanges:
        """Return rows of a table.  Raises NotFound."""
        _require_scope(scope, [ask.name])
        return await self._tables.changes(ask)

    async def cuts(self, scope: str, after: Sequence[tuple[StreamName, int]]) -> list[StreamCuts]:
        """Return the recorded cuts of streams behind times."""
        _require_scope(scope, [name for name, _ in after])
        return await cuts_after(self._catalog, after)

    async def groups(self, scope: str, after: str) -> list[GroupFacts]:
        """Return a page of reader groups with their positions."""
        # Import here: most links copy no groups, and their states need a part of the client.
        from sarit.mirror.group_copies import GroupSource

        return await GroupSource(self._catalog, self._segments).groups(scope, after)


class LocalAttachedTarget:
    """The tables, recorded cuts and reader groups that links write in this installation."""

    def __init__(
        self, catalog: Catalog, scopes: Scopes, tables: KeyValueTables, groups: Groups, segments: Segments,
        installation: str, links: LinkTable | None = None,
    ) -> None:  # fmt: skip
        """`links`: where it is recorded which links write here; None: nowhere."""
        self._links = links
        self._catalog, self._segments = catalog, segments
        self._tables = TableTarget(catalog, scopes, tables, segments, installation, links)
        self._timeline = TimelineTarget(catalog, segments)
        self._groups = groups

    async def begin_tables(self, link: LinkIdentity, scope: str, tables: Sequence[TableFacts]) -> list[TableState]:
        """Make mirrors of tables, if there are none, and return their states."""
        _require_scope(scope, [facts.name for facts in tables])
        if self._links is not None:
            await self._links.passive(link, scope)
        return [await self._tables.begin(link, facts) for facts in tables]

    async def compare_table(self, link: LinkIdentity, scope: str, name: StreamName, partition: int) -> TableState:
        """Begin a comparison of a partition.  Raises NotFound."""
        _require_scope(scope, [name])
        return await self._tables.compare(link, name, partition)

    async def write_table(self, link: LinkIdentity, scope: str, write: TableWrite) -> TableState:
        """Change a partition as the source was changed.  Raises NotFound, Invalid."""
        _require_scope(scope, [write.changes.name])
        return await self._tables.write(link, write)

    async def cut_times(self, link: LinkIdentity, scope: str, names: Sequence[StreamName]) -> list[int]:
        """Return the time of the last recorded cut of mirrors."""
        _require_scope(scope, names)
        return await self._timeline.times(names)

    async def add_cuts(self, link: LinkIdentity, scope: str, cuts: Sequence[StreamCuts]) -> None:
        """Record cuts of mirrors, as far as these reach.  Raises Invalid."""
        _require_scope(scope, [one.name for one in cuts])
        for one in cuts:
            await self._timeline.add(link, one)

    async def put_groups(self, link: LinkIdentity, scope: str, groups: Sequence[GroupFacts]) -> list[str]:
        """Make reader groups begin at positions, unless they are used here.  Returns for each why it was left out."""
        from sarit.mirror.group_copies import GroupTarget

        if len(groups) > MAX_MIRROR_STREAMS_PER_CALL:
            raise Invalid(f"one call names at most {MAX_MIRROR_STREAMS_PER_CALL} reader groups")
        target = GroupTarget(self._catalog, self._groups, self._segments)
        return [await target.put(link, scope, facts) for facts in groups]

    async def promote_attached(self, link: LinkIdentity, scope: str) -> list[TableState]:
        """Let clients change the tables of a scope that the link copied."""
        promoted: list[TableState] = []
        after = ""
        while names := await self._tables.names(scope, after):
            found = [await self._tables.promote(link, name) for name in names]
            promoted += [state for state in found if state is not None]
            after = names[-1].stream
        return promoted


def _require_scope(scope: str, names: Collection[StreamName]) -> None:
    """Check that names are of the scope by which access was decided.  Raises Invalid."""
    if len(names) > MAX_MIRROR_STREAMS_PER_CALL:
        raise Invalid(f"one call names at most {MAX_MIRROR_STREAMS_PER_CALL} streams")
    if any(name.scope != scope for name in names):
        raise Invalid(f"a call of a link on scope {scope} names what is in another scope")
