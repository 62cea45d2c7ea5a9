"""Transactions at the segment store: segments that are merged into the target or deleted.

Each transaction is a writer of its own in the history.  Its events count as sent when the merge is requested: a read
before that reads uncommitted data.  Those of a deleted transaction are never sent.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from checkers import txn
from sarit.core.errors import Unavailable
from sarit.core.names import transaction_segment
from sarit.wire import commands as wire
from simulation.actors.appends import Appends
from simulation.actors.links import Link
from simulation.events import body, framed
from simulation.world import now

if TYPE_CHECKING:
    from checkers.log import Violation
    from simulation.cluster import Cluster
    from simulation.events import History


class Transactions:
    """All transaction writers, and their history."""

    def __init__(self, cluster: Cluster, history: History, segments: list[str]) -> None:
        self.cluster = cluster
        self.history = history
        self.segments = segments
        self.sizes: dict[int, int] = {}
        self.merged_bytes = 0

    def start(self) -> list[asyncio.Task[Any]]:
        """Tasks that end by themselves."""
        return [
            self.cluster.spawn(Committer(self, number).run(), f"transactions {number}")
            for number in range(self.cluster.options.transaction_writers)
        ]

    def check(self) -> list[Violation]:
        """Transactions that were torn or split."""
        return txn.check(self.history.log, self.sizes)


class Committer:
    """One transaction after the other."""

    def __init__(self, transactions: Transactions, number: int) -> None:
        self._all = transactions
        self._cluster = transactions.cluster
        self._name = f"transactions {number}"
        self._rng = self._cluster.rng(self._name)
        self._link = Link(self._cluster, self._rng, self._name, as_controller=True)

    async def run(self) -> None:
        """A drawn number of transactions."""
        options = self._cluster.options
        for _ in range(options.transactions):
            await asyncio.sleep(self._rng.random() * 4 * options.think_seconds)
            await self._one(self._rng.choice(self._all.segments))

    async def _one(self, target: str) -> None:
        writer = self._all.history.new_writer()
        source = transaction_segment(target, writer)
        count = self._rng.randint(1, 2 * self._cluster.options.block_events)
        events = [
            framed(body(writer, number, self._rng.randrange(self._cluster.options.event_bytes)))
            for number in range(1, count + 1)
        ]
        await self._until(lambda request: wire.CreateSegment(request, source, 0, 0, ""))
        await self._fill(writer, source, events)
        if self._rng.random() < 0.2:
            self._cluster.trace.probe("transaction_aborted")
            await self._until(lambda request: wire.DeleteSegment(request, source, ""))
            return
        await self._merge(writer, source, target, events)

    async def _fill(self, writer: int, source: str, events: list[bytes]) -> None:
        appends = Appends(self._link, writer.to_bytes(16, "big"), source)
        written: int | None = None
        while written is None or written < len(events):
            try:
                if written is None:
                    written = await appends.set_up()
                    if written is None:
                        raise AssertionError(f"{source} is gone")
                    continue
                last = min(len(events), written + self._rng.randint(1, self._cluster.options.block_events))
                answer = await appends.block(b"".join(events[written:last]), last - written, last)
                if not isinstance(answer, wire.DataAppended):
                    raise AssertionError(f"append to {source}: {answer}")
                written = last
            except Unavailable:
                written = None
                await asyncio.sleep(0.02 + 0.05 * self._rng.random())

    async def _merge(self, writer: int, source: str, target: str, events: list[bytes]) -> None:
        history, segment = self._all.history, self._all.history.segment(target)
        for number, event in enumerate(events, 1):
            history.log.sent(writer, number, segment, len(event), now())
        self._all.sizes[writer] = len(events)
        self._all.merged_bytes += sum(map(len, events))
        answer = await self._until(lambda request: wire.MergeSegments(request, target, source, ""))
        # A source that is gone was merged by a request whose answer was lost.
        end = answer.new_target_write_offset if isinstance(answer, wire.SegmentsMerged) else -1
        history.log.acked(writer, len(events), segment, end, now())
        history.acked_events += len(events)
        self._cluster.trace.probe("transaction_merged")

    async def _until(self, command: Any) -> Any:
        """Ask until there is a reply.  A repeated creation exists already, a repeated deletion or merge finds
        nothing."""
        answer = await self._link.retry_forever(lambda: self._link.ask(command))
        expected = (
            wire.SegmentCreated, wire.SegmentAlreadyExists, wire.SegmentDeleted, wire.SegmentsMerged, wire.NoSuchSegment
        )  # fmt: skip
        if not isinstance(answer, expected):
            raise AssertionError(f"{self._name}: {answer}")
        return answer
