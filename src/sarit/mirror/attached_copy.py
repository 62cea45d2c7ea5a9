"""The copier of what goes with streams: tables with their changes, recorded cuts, schemas, reader groups.

One round for one scope.  A table whose positions are those of the last round costs no call.  A partition that equals
the source's at a position takes the changes behind it; any other one, or one whose changes the source has forgotten, is
compared first (`table_target.py`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Forbidden, Invalid, NotFound, SaritError, Unauthenticated, Unavailable
from sarit.core.links import StreamProblem
from sarit.core.names import SYSTEM_SCOPE
from sarit.mirror.attachments import NO_POSITION, TableAsk, TableChanges, TableWrite
from sarit.mirror.globs import matches
from sarit.mirror.limits import (
    MAX_COMPARISON_TAIL_BYTES,
    MAX_EQUAL_TABLES,
    MAX_MIRROR_STREAMS_PER_CALL,
    MIRROR_BATCH_BYTES,
    TABLE_ROUND_CALLS,
)
from sarit.mirror.registry_rows import RANGES
from sarit.mirror.table_source import REGISTRY
from sarit.mirror.values import MirrorStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.core.links import LinkSettings
    from sarit.core.names import StreamName
    from sarit.mirror.attachments import PartitionState, TableFacts, TableState
    from sarit.mirror.ports import AttachedSource, AttachedTarget, MirrorSource, MirrorTarget
    from sarit.mirror.values import LinkIdentity

Rows = list[tuple[bytes, bytes | None]]

_ALL_ROWS: Final = ((b"", None),)


class AttachedCopy:
    """The copier of what goes with the streams of one link.

    Its memory is what the last round found, so that the next one asks for nothing that is unchanged."""

    def __init__(self) -> None:
        self._equal: dict[StreamName, tuple[int, ...]] = {}  # the positions of tables that the mirrors equal

    def __repr__(self) -> str:
        return f"<AttachedCopy, {len(self._equal)} tables are equal>"

    async def copy(
        self, source: MirrorSource, target: MirrorTarget, link: LinkIdentity, settings: LinkSettings, scope: str,
        names: Sequence[StreamName],
    ) -> list[StreamProblem]:  # fmt: skip
        """Bring what goes with the streams `names` of a scope up to date; with the scope `_system` the registry.

        Returns what is not copied, and why.  Raises Unavailable, Unauthenticated, Forbidden."""
        problems: list[StreamProblem] = []
        if settings.registry if scope == SYSTEM_SCOPE else settings.tables:
            problems += await self._tables(source.attached, target.attached, link, settings, scope)
        for at in range(0, len(names), MAX_MIRROR_STREAMS_PER_CALL):
            some = names[at : at + MAX_MIRROR_STREAMS_PER_CALL]
            await self._cuts(source.attached, target.attached, link, scope, some)
        if settings.groups and scope != SYSTEM_SCOPE:
            problems += await self._groups(source.attached, target.attached, link, scope)
        return problems

    async def _cuts(
        self, source: AttachedSource, target: AttachedTarget, link: LinkIdentity, scope: str,
        names: Sequence[StreamName],
    ) -> None:  # fmt: skip
        times = await target.cut_times(link, scope, names)
        found = await source.cuts(scope, list(zip(names, times, strict=True)))
        if found:
            await target.add_cuts(link, scope, found)

    async def _groups(
        self, source: AttachedSource, target: AttachedTarget, link: LinkIdentity, scope: str
    ) -> list[StreamProblem]:  # fmt: skip
        problems: list[StreamProblem] = []
        after = ""
        while page := await source.groups(scope, after):
            reasons = await target.put_groups(link, scope, page)
            problems += [
                StreamProblem(f"{scope}/{facts.group}", reason)
                for facts, reason in zip(page, reasons, strict=True)
                if reason
            ]
            after = page[-1].group
        return problems

    async def _tables(
        self, source: AttachedSource, target: AttachedTarget, link: LinkIdentity, settings: LinkSettings, scope: str
    ) -> list[StreamProblem]:  # fmt: skip
        problems: list[StreamProblem] = []
        after = ""
        while page := await source.tables(scope, after):
            after = page[-1].name.stream
            wanted = [
                facts
                for facts in page
                if self._equal.get(facts.name) != facts.positions
                and (scope == SYSTEM_SCOPE or _is_chosen(facts, settings))
            ]
            if not wanted:
                continue
            states = await target.begin_tables(link, scope, wanted)
            for facts, state in zip(wanted, states, strict=True):
                problem = state.reason
                if state.status is MirrorStatus.PROMOTED:
                    problem = problem or f"{facts.name} was promoted: clients change it now"
                if state.status is MirrorStatus.READY:
                    try:
                        problem = await _TableCopy(source, target, link, facts, state).run()
                    except (Unavailable, Unauthenticated, Forbidden):
                        raise
                    except SaritError as error:
                        problem = str(error)
                if problem:
                    problems.append(StreamProblem(str(facts.name), problem))
                elif len(self._equal) < MAX_EQUAL_TABLES:
                    self._equal[facts.name] = facts.positions
        return problems


class AttachedToLink:
    """The copier of what goes with the streams of one link, between its two sides (`housekeeping.AttachedCopier`)."""

    def __init__(
        self, source: MirrorSource, target: MirrorTarget, identity: LinkIdentity, settings: LinkSettings
    ) -> None:
        self._source = source
        self._target = target
        self._identity = identity
        self._settings = settings
        self._copy = AttachedCopy()

    def __repr__(self) -> str:
        return f"<AttachedToLink {self._identity.name}, {self._copy!r}>"

    async def copy(self, scope: str, names: Sequence[StreamName]) -> list[StreamProblem]:
        """Copy what has changed.  Returns what cannot be copied, and why."""
        return await self._copy.copy(self._source, self._target, self._identity, self._settings, scope, names)

    async def promote(self, scope: str) -> None:
        """Make what was copied writable, after the streams."""
        await self._target.attached.promote_attached(self._identity, scope)


def _is_chosen(facts: TableFacts, settings: LinkSettings) -> bool:
    """Return whether a link copies a table: its globs count for tables as for streams."""
    name = str(facts.name)
    return facts.name == REGISTRY or (
        any(matches(glob, name) for glob in settings.include)
        and not any(matches(glob, name) for glob in settings.exclude)
    )


class _TableCopy:
    """A round of one table."""

    def __init__(
        self, source: AttachedSource, target: AttachedTarget, link: LinkIdentity, facts: TableFacts, state: TableState
    ) -> None:
        self._source = source
        self._target = target
        self._link = link
        self._facts = facts
        self._state = state

    async def run(self) -> str:
        """Bring the mirror up to the positions of the facts, or further.  Returns why it is not there."""
        for partition, position in enumerate(self._facts.positions):
            try:
                problem = await self._bring_up(partition, position)
            except NotFound:  # the source's table was deleted, or created again: the next round knows
                return f"table {self._facts.name} changes at the moment"
            if problem:
                return problem
        return ""

    async def _bring_up(self, partition: int, position: int) -> str:
        for _ in range(TABLE_ROUND_CALLS):
            if self._state.status is not MirrorStatus.READY:
                return self._state.reason
            known = self._state.partitions[partition]
            if known.source >= position:
                return ""
            changes = None if known.source == NO_POSITION else await self._changes(partition, known.source)
            if changes is None or changes.lost:
                await self._compare(partition)
                known = self._state.partitions[partition]
                if known.source == NO_POSITION:
                    return f"table {self._facts.name} changes faster than it is compared"
                continue
            await self._write(changes, known)
        return f"table {self._facts.name} changes faster than it is copied"

    async def _changes(self, partition: int, since: int) -> TableChanges:
        facts = self._facts
        ask = TableAsk(facts.name, facts.creation_id, partition, since)
        return _checked(ask, await self._source.table_changes(facts.name.scope, ask))

    async def _write(self, changes: TableChanges, state: PartitionState, *, ends_comparison: bool = False) -> bool:
        """Write changes, and learn the state.  Returns whether the mirror moved on, or need not."""
        write = TableWrite(changes, state, ends_comparison)
        self._state = await self._target.write_table(self._link, self._facts.name.scope, write)
        return self._state.status is MirrorStatus.READY

    async def _compare(self, partition: int) -> None:
        """Compare a partition with the source's, and make it equal."""
        facts = self._facts
        scope = facts.name.scope
        self._state = await self._target.compare_table(self._link, scope, facts.name, partition)
        if self._state.status is not MirrorStatus.READY:
            return
        comparison = self._state.partitions[partition].comparison
        began: int | None = None
        for start, end in RANGES if facts.name == REGISTRY else _ALL_ROWS:
            at: bytes | None = start
            while at is not None:
                ask = TableAsk(facts.name, facts.creation_id, partition, NO_POSITION, at, end)
                changes = _checked(ask, await self._source.table_changes(scope, ask))
                began = changes.until if began is None else began
                if facts.name == REGISTRY and changes.until != began:
                    return  # rows of another moment may name what was not copied: begin again
                if not await self._write(changes, self._state.partitions[partition]):
                    return
                if self._state.partitions[partition].comparison != comparison:
                    return
                at = None if not changes.rows or changes.high == end else changes.high
        assert began is not None  # there is at least one range
        await self._catch_up(partition, began)

    async def _catch_up(self, partition: int, began: int) -> None:
        """Apply what the source changed during a comparison, each key once, so that no row goes back."""
        last: dict[bytes, bytes | None] = {}
        until, size = began, 0
        while True:
            changes = await self._changes(partition, until)
            if changes.lost:
                return
            if changes.until == until:
                break
            until = changes.until
            last.update(changes.rows)
            size += sum(len(key) + len(value or b"") for key, value in changes.rows)
            if size > MAX_COMPARISON_TAIL_BYTES:
                return
        rows = list(last.items())
        while True:
            some, rows = _split(rows)
            changes = TableChanges(self._facts.name, partition, began, until, tuple(some))
            moved = await self._write(changes, self._state.partitions[partition], ends_comparison=not rows)
            if not moved or not rows:
                return


def _split(rows: Rows) -> tuple[Rows, Rows]:
    """Return the rows of one call, and the others."""
    size = 0
    for count, (key, value) in enumerate(rows):
        size += len(key) + len(value or b"")
        if count and size > MIRROR_BATCH_BYTES:
            return rows[:count], rows[count:]
    return rows, []


def _checked(ask: TableAsk, changes: TableChanges) -> TableChanges:
    """Return changes that a source sent for an ask, under the names of the ask.  Raises Invalid."""
    if changes.since != ask.since or changes.until < max(ask.since, 0):
        raise Invalid(f"the source answered for another position of table {ask.name}")
    stays = changes.high is not None and changes.high <= ask.start
    if ask.since == NO_POSITION and (changes.low != ask.start or stays):
        raise Invalid(f"the source answered with other rows of table {ask.name}")
    return replace(changes, name=ask.name, partition=ask.partition)
