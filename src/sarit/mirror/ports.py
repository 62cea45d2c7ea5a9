"""The two sides of a link, as the copier sees them.

One of them is the copier's own installation (`source.LocalSource`, `target.LocalTarget`), the other one is reached by
its controllers (`remote.py`); in tests both are in memory.  Every call names one scope, so that access is decided by
it, and every list is bounded (`limits.py`).  All calls may be repeated at any time, by any number of copiers: what a
late one writes is what is there already, or is refused.  Calls raise the kinds of `core.errors`; Unavailable: the
outcome is unknown, so repeat; Forbidden, Unauthenticated: the link's user may not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.controller.model.cuts import Cut
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
    from sarit.mirror.values import (
        LinkIdentity,
        MirrorState,
        Offer,
        Position,
        Range,
        Round,
        Site,
        StreamFacts,
        Write,
        Written,
    )


class AttachedSource(Protocol):
    """Tables, cuts, groups of a source (`attachments.py`).  The registry has the scope `_system`."""

    async def tables(self, scope: str, after: str) -> list[TableFacts]:
        """Return a page of the scope's key-value tables behind the name `after`; none only at the end.

        Of `_system`: the registry, as one table of one partition; none if there is no schema."""

    async def table_changes(self, scope: str, ask: TableAsk) -> TableChanges:
        """Return rows of a table, of about MIRROR_BATCH_BYTES at most.

        Raises NotFound (also: it was created again)."""

    async def cuts(self, scope: str, after: Sequence[tuple[StreamName, int]]) -> list[StreamCuts]:
        """Return the recorded cuts of streams behind times, of those that have any, the oldest first; perhaps not
        all of them."""

    async def groups(self, scope: str, after: str) -> list[GroupFacts]:
        """Return a page of the scope's reader groups behind the name `after`; none only at the end."""


class AttachedTarget(Protocol):
    """Tables, cuts, groups that go with the mirrors of a target (`attachments.py`)."""

    async def begin_tables(self, link: LinkIdentity, scope: str, tables: Sequence[TableFacts]) -> list[TableState]:
        """Make mirrors of tables, if there are none, and return their states, in order.  REFUSED: as with streams."""

    async def compare_table(self, link: LinkIdentity, scope: str, name: StreamName, partition: int) -> TableState:
        """Begin a comparison of a partition, which ends any other one.  Returns the state of the table."""

    async def write_table(self, link: LinkIdentity, scope: str, write: TableWrite) -> TableState:
        """Make rows of a partition equal, durably, if it is still in the state that the write names.

        Returns the state of the table, which tells whether it was."""

    async def cut_times(self, link: LinkIdentity, scope: str, names: Sequence[StreamName]) -> list[int]:
        """Return the time of the last cut that mirrors of streams have, in order; 0: none."""

    async def add_cuts(self, link: LinkIdentity, scope: str, cuts: Sequence[StreamCuts]) -> None:
        """Record cuts of streams, as far as the mirrors reach; the others are left out."""

    async def put_groups(self, link: LinkIdentity, scope: str, groups: Sequence[GroupFacts]) -> list[str]:
        """Make reader groups begin at these cuts, where the mirrors reach and no reader is online.

        Returns for each group, in order, why it was left out; empty: it was not."""

    async def promote_attached(self, link: LinkIdentity, scope: str) -> list[TableState]:
        """Make the tables of the scope that this link copied writable; with `_system` the registry.

        Returns all of them.  Where a partition equals the source's at no position, the reason says so."""


class MirrorSource(Protocol):
    """The installation whose streams are copied."""

    @property
    def attached(self) -> AttachedSource:
        """The tables, cuts and groups of the source."""

    async def site(self) -> Site:
        """Return which installation it is."""

    async def scopes(self, after: str) -> list[str]:
        """Return a page of the names of the scopes that the caller may copy, behind `after`; none only at the end."""

    async def streams(self, scope: str, after: str) -> list[StreamFacts]:
        """Return a page of the scope's streams behind the name `after`, with streams of watermarks (`_MARK…`), and
        without those of reader groups; none only at the end."""

    async def facts(self, scope: str, names: Sequence[StreamName], start_ms: int) -> list[StreamFacts | None]:
        """Return streams by name, in order; None: there is no such stream.

        `start_ms`: have the head be the recorded cut behind which everything is that was appended since that time;
        FROM_HEAD: the stream's own head; FROM_TAIL: its present end, at a moment without a commit."""

    async def offers(self, scope: str, positions: Sequence[Position], limit: int) -> list[Offer | None]:
        """Return what is behind positions, in order; None: there is no such stream.

        `limit`: offer about so many bytes of a stream at most, unless transactions need more.  Without lengths: the
        position is no position of the stream."""

    async def read(self, scope: str, ranges: Sequence[Range]) -> list[bytes]:
        """Return bytes, in order; the last ones may be cut short, or missing, if a reply would be too long.

        Raises Truncated (the bytes are gone), NotFound."""

    async def grown(self, link: LinkIdentity, scope: str, wait_seconds: float) -> list[StreamName] | None:
        """Wait until streams of the scope may have grown or changed since this link asked last, and return their
        names; None: any may have (it is the first call, or there were too many).  Empty after `wait_seconds`."""

    async def hold(self, link: LinkIdentity, scope: str, cuts: Sequence[tuple[StreamName, Cut]]) -> None:
        """Keep what is behind these cuts: truncation waits for this link from now on.  An empty cut: not any more.

        No cuts: keep nothing in this scope for the link any more."""

    async def fence(self, link: LinkIdentity, scope: str, names: Sequence[StreamName], lineage: bytes) -> None:
        """Make streams read-only, since their mirrors are promoted as `lineage`.  Repeated: nothing changes."""


class MirrorTarget(Protocol):
    """The installation that has the mirrors."""

    @property
    def attached(self) -> AttachedTarget:
        """The tables, cuts and groups of the mirrors."""

    async def site(self) -> Site:
        """Return which installation it is."""

    async def begin(
        self, link: LinkIdentity, scope: str, streams: Sequence[StreamFacts], *, discard_divergent: bool = False
    ) -> list[MirrorState]:
        """Make mirrors of streams, if there are none, and return their states, in order.

        Creates the scope and the segments at the starts that the facts name, and finishes a round that was decided.
        Where facts are newer than the mirror's, configuration and properties are taken over.  REFUSED: a stream of
        this name that is no mirror of this one (another creation id, another link, made by a user), a loop, itself.

        A stream that the source descends from by promotions becomes its mirror, and is read-only from then on.  If it
        has bytes that the source has not, it is REFUSED with their number; `discard_divergent`: they are exported to
        the stream `NAME.divergent-…`, and the stream is made again.  BUSY while that is being copied."""

    async def states(self, link: LinkIdentity, scope: str, names: Sequence[StreamName]) -> list[MirrorState]:
        """Return the states of mirrors, in order, without changing anything."""

    async def write(self, link: LinkIdentity, scope: str, writes: Sequence[Write]) -> list[Written]:
        """Append or stage bytes, durably.  In order for each segment; a refused one ends those of its segment."""

    async def finish(self, link: LinkIdentity, scope: str, rounds: Sequence[Round]) -> list[MirrorState]:
        """Decide rounds whose bytes are all staged, durably, and carry them out: merge, add epochs, seal.

        A round that was staged from other lengths than the mirror's is not decided: compare the state's position."""

    async def drop(self, link: LinkIdentity, scope: str, segments: Sequence[tuple[StreamName, int]]) -> None:
        """Delete what is staged for segments, unless a round with it is decided."""

    async def restart(self, link: LinkIdentity, scope: str, facts: StreamFacts) -> MirrorState:
        """Begin a mirror again at the head in `facts`, since bytes between it and that head are lost.

        What it had stays as the stream `NAME.before-EPOCHMS`, and the lost bytes are counted.  BUSY while it is being
        copied there: call again."""

    async def promote(self, link: LinkIdentity, scope: str, names: Sequence[StreamName]) -> list[MirrorState]:
        """Make streams of mirrors, for writers: finish a decided round, drop an undecided one, seal all segments, and
        open successors in new epochs under a new lineage."""
