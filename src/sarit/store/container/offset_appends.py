"""Appends at offsets: bytes that belong to no writer, and are stored only if the segment ends where they begin.

Such an append needs no session and no attribute: whoever repeats it after a lost answer is refused, and learns where
the segment ends.  It waits at the append gate as the appends of writers do.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sarit.core.errors import Invalid, SaritError, Unavailable
from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.store.container.operations import NO_WRITER
from sarit.store.limits import MAX_APPEND_BYTES
from sarit.wire.frames import Append

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.store.container.container import Container
    from sarit.store.container.segment import Segment


class OffsetAppend:
    """One append at an offset: a session of the append gate.  `sink`: the batch of appends, whose order the gate keeps.

    `begins_event`: an event begins at the offset.  `done`: is completed when the append is durable, or refused."""

    __slots__ = ("_begins_event", "_container", "_data", "_offset", "_segment", "done", "sink")

    def __init__(
        self, container: Container, segment: Segment, offset: int, data: bytes, sink: object, *, begins_event: bool
    ) -> None:
        self._container = container
        self._segment = segment
        self._offset = offset
        self._data = data
        self._begins_event = begins_event
        self.sink = sink
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __repr__(self) -> str:
        return f"<OffsetAppend of {len(self._data)} bytes at {self._offset} of {self._segment.name}>"

    @property
    def is_open(self) -> bool:
        """Whether somebody waits for the append."""
        return not self.done.done()

    def begin(self) -> None:
        """Check and queue the append, or let it wait while the node is short of memory."""
        container = self._container
        self._segment.pins += 1
        if container.budget.over_append_limit or container.append_gate.queue:
            append = Append(NO_WRITER, (self._data,), len(self._data), 0, NULL_ATTRIBUTE_VALUE, 0)
            container.append_gate.throttle(self, append, self._offset)
        else:
            self._submit()

    def submit(self, append: Append, expected_offset: int | None) -> None:
        """Check and queue the append, which has waited at the gate."""
        self._submit()

    def _submit(self) -> None:
        self._segment.pins -= 1
        if self.done.done():  # whoever asked for it is gone
            return
        try:
            self._container.submit_append_at(
                self._segment, self._data, self._offset, self.done, begins_event=self._begins_event
            )
        except SaritError as error:
            self.done.set_exception(error)

    def refuse(self, append: Append, error: BaseException) -> None:
        """Answer that the append, which waited at the gate, failed."""
        self._segment.pins -= 1
        if not self.done.done():
            self.done.set_exception(error)


async def append_in_order(
    container: Container, writes: Sequence[tuple[str, int, bytes]], *, begin_events: bool = True
) -> list[int | SaritError]:
    """Append bytes to segments of one container, each (segment, offset, bytes), in order and by one group commit.

    `begin_events`: each of them begins with an event; otherwise none of the offsets is taken for such a place.

    Returns the length of the segment after each append, or why it was refused: NotFound, Sealed, Conflict (with the
    actual length), Invalid (a table, too many bytes), Corrupt, Moved; Unavailable: it may be stored or not."""
    await container.metadata.find_all([segment for segment, _, _ in writes])
    batch: list[OffsetAppend | SaritError] = []
    for name, offset, data in writes:
        try:
            # No await from here to the queue if the segment is in memory: appends keep the order of the batch.
            if len(data) > MAX_APPEND_BYTES:
                raise Invalid(f"an append has at most {MAX_APPEND_BYTES} bytes, not {len(data)}")
            segment = await container.metadata.require(name)
            append = OffsetAppend(container, segment, offset, data, batch, begins_event=begin_events)
        except SaritError as error:
            batch.append(error)
            continue
        append.begin()
        batch.append(append)
    waiting = [one.done for one in batch if isinstance(one, OffsetAppend)]
    try:
        answers = iter(await asyncio.gather(*waiting, return_exceptions=True))
    except asyncio.CancelledError:
        # Free the memory of the appends that wait at the gate: they would stay there while the node is short of it.
        container.append_gate.sweep_ended()
        raise
    outcomes: list[int | SaritError] = []
    for one, (_, offset, data) in zip(batch, writes, strict=True):
        answer = one if isinstance(one, SaritError) else next(answers)
        if answer is not None and not isinstance(answer, SaritError):
            raise answer
        outcomes.append(offset + len(data) if answer is None else answer)
    if any(isinstance(outcome, SaritError) for outcome in outcomes):
        return await _confirmed(container, outcomes)
    return outcomes


async def _confirmed(container: Container, outcomes: list[int | SaritError]) -> list[int | SaritError]:
    """Wait until the refusals rest on nothing that a crash undoes, or that another owner has changed."""
    try:
        await container.group_commit.wait_durable()
        await container.confirm()
    except SaritError as error:
        unknown = Unavailable(str(error))
        return [unknown if isinstance(outcome, SaritError) else outcome for outcome in outcomes]
    return outcomes
