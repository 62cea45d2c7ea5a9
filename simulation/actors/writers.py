"""A writer on the wire protocol: blocks in flight, reconnects, exactly once by event number.

It holds what is not acknowledged, asks after every reconnect for the last number in the store (SetupAppend), and sends
the rest again.  Block sizes are drawn again after a reconnect, so that blocks do not line up with those sent before.
Now and then it abandons a healthy connection, whose bytes then arrive together with those of the next one.  Or it
"crashes": a new writer with a new id continues, and the outcome of what was not acknowledged stays unknown.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sarit.core.errors import Unavailable
from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.wire import commands as wire
from sarit.wire.frames import append_block_end_header
from simulation.actors.links import ANSWER_SECONDS, Link
from simulation.events import body, framed

if TYPE_CHECKING:
    from sarit.client.core.connection import Connection
    from simulation.cluster import Cluster
    from simulation.events import History


class WireWriter:
    """Writes `events` events to one segment."""

    def __init__(self, cluster: Cluster, history: History, number: int, segment: str) -> None:
        self._cluster = cluster
        self._history = history
        self._options = cluster.options
        self._rng = cluster.rng(f"writer {number}")
        self._link = Link(cluster, self._rng, f"writer {number}")
        self._segment = segment
        self._segment_number = history.segment(segment)
        self._left = cluster.options.events
        self.done = False
        self._begin()

    def __repr__(self) -> str:
        return f"<WireWriter {self._writer}: {self._acked} of {self._made} acknowledged, {self._left} to come>"

    def _begin(self) -> None:
        self._writer = self._history.new_writer()
        self._id = self._writer.to_bytes(16, "big")
        self._events: dict[int, bytes] = {}
        self._made = self._acked = self._sent = 0
        self._progress = asyncio.Event()
        self._open: Connection | None = None
        self._broken: str | None = None

    # -- called by the connection ---------------------------------------------------------------

    def reply(self, command: Any) -> bool:
        """A reply on the request id of this writer."""
        if isinstance(command, wire.DataAppended):
            if command.event_number > self._sent:
                self._broken = f"{command.event_number} acknowledged, {self._sent} sent"
            self._acknowledge(command.event_number, command.segment_write_offset)
        elif isinstance(command, wire.AppendSetup):
            self._set_up(command.last_event_number)
        else:
            self._cluster.trace.note("writer", f"{self._writer} got {type(command).__name__}")
            self._lose()
        return False

    def lost(self, error: Unavailable) -> None:
        """The connection ended."""
        self._open = None
        self._progress.set()

    def _set_up(self, last: int) -> None:
        last = 0 if last == NULL_ATTRIBUTE_VALUE else last
        if not self._acked <= last <= self._made:
            self._broken = f"the store knows {last}, acknowledged {self._acked}, made {self._made}"
            self._history.trace.note("bug", f"writer {self._writer}: {self._broken}")
            self._cluster.failures.append(f"lost: writer {self._writer}: {self._broken}")
            self.done = True
        if last > self._acked:
            self._cluster.trace.probe("ack_learned_at_setup")
            self._acknowledge(last, -1)
        self._sent = last
        self._progress.set()

    def _acknowledge(self, number: int, end: int) -> None:
        now = asyncio.get_running_loop().time()
        self._history.log.acked(self._writer, number, self._segment_number, end, now)
        self._history.acked_events += max(0, number - self._acked)
        if end >= 0:
            self._history.boundaries.setdefault(self._segment_number, []).append(end)
        for one in range(self._acked + 1, number + 1):
            self._events.pop(one, None)
        self._acked = max(self._acked, number)
        self._progress.set()

    def _is_open(self) -> bool:
        return self._open is not None

    def _lose(self) -> None:
        self._open = None
        self._link.drop()
        self._progress.set()

    # -- the task -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Until everything is acknowledged."""
        rng, options = self._rng, self._options
        while (self._left or self._acked < self._made) and not self.done:
            if self._open is None:
                await self._connect()
                continue
            if self._left and len(self._events) < options.window_blocks * options.block_events:
                self._make(rng.randint(1, options.block_events))
            if self._sent < self._made:
                self._send()
            if not self._cluster.quiet:
                await self._misbehave()
            if (self._left and self._acked == self._made) or rng.random() < 0.3:
                await asyncio.sleep(rng.random() * 2 * options.think_seconds)
            elif self._open is not None and self._acked < self._made:
                await self._wait()
        self.done = True

    async def _misbehave(self) -> None:
        rng = self._rng
        if self._options.breaks and rng.random() < 0.02:
            self._cluster.trace.probe("writer_gave_up_connection")
            self._lose()
        elif self._options.client_crashes and rng.random() < 0.01:
            self._cluster.trace.probe("writer_crashed")
            self._lose()
            self._begin()

    async def _wait(self) -> None:
        self._progress.clear()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._progress.wait()
        except TimeoutError:
            self._lose()

    async def _connect(self) -> None:
        connection = await self._link.connection(self._segment)
        try:
            self._request = connection.expect(self)
        except Unavailable:
            return
        self._open = connection
        self._progress.clear()
        connection.send([wire.encode(wire.SetupAppend(self._request, self._id, self._segment, ""))])
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._progress.wait()
        except TimeoutError:
            self._lose()
        if not self._is_open():  # the store serves, the container does not: pause before the next attempt
            await asyncio.sleep(0.02 + 0.05 * self._rng.random())

    def _make(self, count: int) -> None:
        options, now = self._options, asyncio.get_running_loop().time()
        for _ in range(min(count, self._left)):
            self._left -= 1
            self._made += 1
            event = framed(body(self._writer, self._made, self._rng.randrange(options.event_bytes)))
            self._events[self._made] = event
            self._history.log.sent(self._writer, self._made, self._segment_number, len(event), now)

    def _send(self) -> None:
        """Send everything not yet sent on this connection, in blocks of drawn lengths."""
        assert self._open is not None
        while self._sent < self._made:
            last = min(self._made, self._sent + self._rng.randint(1, self._options.block_events))
            data = b"".join(self._events[number] for number in range(self._sent + 1, last + 1))
            prefix, suffix = append_block_end_header(self._id, len(data), last - self._sent, last, self._request)
            self._open.send([prefix, data, suffix])
            self._sent = last
