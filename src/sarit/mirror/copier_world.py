"""Common to all parts of a link's copier: its sides and streams, whether it works, and calls for many streams."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from sarit.core.errors import Conflict, Corrupt, Invalid, NotFound, SaritError, Truncated
from sarit.core.repeated_log import RepeatedLog
from sarit.core.texts import cut_text
from sarit.mirror.limits import MAX_LINK_NOTE_CHARACTERS, MAX_MIRROR_RETRY_SECONDS, MIRROR_RETRY_SECONDS
from sarit.mirror.order import timer_seconds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from sarit.core.links import Link
    from sarit.env.ports import Clock
    from sarit.mirror.gate import Gate
    from sarit.mirror.hold_bounds import HoldBound
    from sarit.mirror.ports import MirrorSource, MirrorTarget
    from sarit.mirror.tracks import Tracks
    from sarit.mirror.values import LinkIdentity

_log = logging.getLogger("sarit.mirror")

A = TypeVar("A")

# Errors that may be of one stream among those of a call.
OF_A_STREAM = (Conflict, NotFound, Truncated, Invalid, Corrupt)


class LinkHealth:
    """Whether the link works, and until when nothing is tried."""

    def __init__(self, clock: Clock, name: str, *, pulls: bool) -> None:
        """`pulls`: the source is at the peer, and otherwise the target."""
        self._pulls = pulls
        self._clock = clock
        self._repeated = RepeatedLog(_log, clock.monotonic, counted=False)
        self._name = name
        self._tries = 0
        self._until = 0.0
        self.up = False
        self.contact_ms = 0
        self.note = ""

    def __repr__(self) -> str:
        return f"<LinkHealth of {self._name}, {'up' if self.up else self.note}>"

    def works(self) -> None:
        """Record that the peer has answered."""
        self.up, self.contact_ms, self.note, self._tries = True, self._clock.wall_ms(), "", 0
        self._repeated.ended(self._name)

    def answered(self, *, source: bool) -> None:
        """Record that one side has answered, which may be the peer."""
        if source == self._pulls:
            self.works()

    def failed(self, error: SaritError) -> None:
        """Record an error of the link: nothing is tried for a while, and longer each time."""
        self.up, self.note = False, cut_text(str(error), MAX_LINK_NOTE_CHARACTERS)
        self._repeated.warning(self._name, f"link {self._name} does not copy, and tries again: {self.note}")
        now = self._clock.monotonic()
        if now >= self._until:
            self._until = now + min(MIRROR_RETRY_SECONDS * 2 ** min(self._tries, 16), MAX_MIRROR_RETRY_SECONDS)
            self._tries += 1

    async def pause(self) -> None:
        """Wait until something may be tried."""
        while True:
            wait = timer_seconds(self._until - self._clock.monotonic())
            if not wait:
                return
            await asyncio.sleep(wait)

    async def repeat(self, work: Callable[[], Awaitable[None]], *, source: bool | None = None) -> None:
        """Do work of the link until it succeeds.  `source`: only that side is asked, or only the target; None: both."""
        while True:
            await self.pause()
            try:
                await work()
            except SaritError as error:
                self.failed(error)
            else:
                if source is None:
                    self.works()
                else:
                    self.answered(source=source)
                return


@dataclass(slots=True)
class CopierWorld:
    """The link, its two sides and its streams.  `skew_ms`: how far the source's clock is ahead of the own one.

    `bound`: of what the own installation holds, if it is the source."""

    link: Link
    identity: LinkIdentity
    source: MirrorSource
    target: MirrorTarget
    tracks: Tracks
    gate: Gate
    clock: Clock
    skew_ms: int = 0
    copied_bytes: int = 0
    lost_bytes: int = 0
    answers: int = 0  # of the target
    bound: HoldBound | None = None

    @property
    def source_ms(self) -> int:
        """The time at the source."""
        return self.clock.wall_ms() + self.skew_ms


async def halved(
    items: Sequence[A], call: Callable[[Sequence[A]], Awaitable[None]], alone: Callable[[A, Exception], Awaitable[None]]
) -> None:
    """Make a call for all items; if it fails for one of them, for each half, and so on.

    `alone`: called with an item for which the call failed alone."""
    if not items:
        return
    try:
        await call(items)
    except OF_A_STREAM as error:
        if len(items) == 1:
            await alone(items[0], error)
            return
        middle = len(items) // 2
        await halved(items[:middle], call, alone)
        await halved(items[middle:], call, alone)
