"""Keeps the bytes in bounds that an installation holds for a link of its own that pushes.

    measured bytes ── at most the link's `hold_bytes` ──▶ nothing
         │ more
         ├─ THROTTLE ─▶ the scopes of held streams are full: their writers wait, as for a storage quota
         └─ DROP ─▶ the streams with the most bytes are held less, from their oldest bytes on

What is held less is not deleted by that: it goes when the stream's own retention policy truncates it.  Until then the
link copies it as ever; afterwards the copier finds a gap, counts the lost bytes, and begins the mirror again.

The measurement reads every stream, so there is a pause after it.  It goes on while the peer is away or the link is
paused: then what is held grows.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sarit.core.errors import SaritError
from sarit.core.links import HoldOverflow, LinkDirection
from sarit.core.names import SegmentId
from sarit.core.repeated_log import RepeatedLog
from sarit.mirror.limits import (
    FULL_HOLD_MEASURE_SECONDS,
    HOLD_FULL_UNTIL,
    HOLD_MEASURE_PAUSE,
    HOLD_MEASURE_SECONDS,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.controller.holds import Holds
    from sarit.controller.model.cuts import Cut
    from sarit.controller.quotas import QuotaTable
    from sarit.core.links import Link
    from sarit.core.names import StreamName
    from sarit.env.ports import Clock

_log = logging.getLogger("sarit.mirror")


class HoldBound:
    """The bound of what is held for one link.  `is_full`: it was reached, and writers wait."""

    def __init__(self, link: Link, holds: Holds, quotas: QuotaTable, clock: Clock) -> None:
        self.link = link
        self.is_full = False
        self._holds = holds
        self._quotas = quotas
        self._clock = clock
        self._given_up: dict[StreamName, Cut] = {}
        self._due = 0.0
        self._is_let_go = False
        self._is_dropping = False
        self._repeated = RepeatedLog(_log, clock.monotonic, counted=False)

    def __repr__(self) -> str:
        return f"<HoldBound of {self.link.name}{', full' if self.is_full else ''}>"

    async def check(self) -> None:
        """Measure what is held, unless that was done just before, and act if it is too much."""
        settings, clock = self.link.settings, self._clock
        begun = clock.monotonic()
        if begun < self._due or self._is_let_go:
            return
        try:
            if settings.direction is LinkDirection.PUSH and settings.hold_bytes:
                await self._bound(await self._holds.sizes(self.link.link_id))
            else:
                await self.let_go()  # the settings were others before
        except SaritError as error:
            self._repeated.warning("unknown", f"what is held for link {self.link.name} is not measured: {error}")
        pause = FULL_HOLD_MEASURE_SECONDS if self.is_full else HOLD_MEASURE_SECONDS
        self._due = clock.monotonic() + max(pause, HOLD_MEASURE_PAUSE * (clock.monotonic() - begun))

    async def let_go(self) -> None:
        """Have no writers wait for the link any more.  Raises SaritError."""
        await self._quotas.hold_back(self.link.link_id, ())
        self.is_full, self._is_let_go = False, True

    def is_given_up(self, name: StreamName, cut: Cut) -> bool:
        """Return whether a cut is before the one from which on a stream is held since it was held less."""
        at = self._given_up.get(name)
        if at is None:
            return False
        if not is_before(cut, at):
            del self._given_up[name]
            return False
        return True

    async def _bound(self, sizes: Mapping[StreamName, int]) -> None:
        settings, held = self.link.settings, sum(sizes.values())
        most = settings.hold_bytes
        if settings.overflow is HoldOverflow.THROTTLE:
            full = held > most * (HOLD_FULL_UNTIL if self.is_full else 1)
            await self._quotas.hold_back(self.link.link_id, {name.scope for name in sizes} if full else ())
            if full != self.is_full:
                _log.warning(
                    "link %s: %d bytes are held for it, and %d may be: %s", self.link.name, held, most,
                    "appends to what it copies wait until it has copied" if full else "appends go on",
                )  # fmt: skip
            self.is_full = full
        else:
            await self._quotas.hold_back(self.link.link_id, ())
            if held > most:
                await self._give_up(sizes, held, int(most * HOLD_FULL_UNTIL))
            elif held < most * HOLD_FULL_UNTIL / 2:  # the link copies again
                self._is_dropping = False

    async def _give_up(self, sizes: Mapping[StreamName, int], held: int, keep: int) -> None:
        given = to_give_up(sizes, keep)
        link = self.link
        if not self._is_dropping:
            _log.warning(
                "link %s: %d bytes are held for it, and %d may be: the oldest bytes of streams (%d now) may be "
                "truncated before they are copied", link.name, held, link.settings.hold_bytes, len(given),
            )  # fmt: skip
        self._is_dropping = True
        for name, size in given.items():
            cut = await self._holds.give_up(link.link_id, link.name, name, size / sizes[name])
            if cut is not None:
                self._given_up[name] = cut


def to_give_up(sizes: Mapping[StreamName, int], keep: int) -> dict[StreamName, int]:
    """Return how many bytes of which streams go, so that `keep` are left: those with the most bytes become equal."""
    ordered = sorted(sizes.items(), key=lambda item: (item[1], item[0]))
    left, count, level = keep, len(ordered), 0
    for _, size in ordered:
        level = left // count
        if size > level:
            break
        left, count = left - size, count - 1
    else:
        return {}
    return {name: size - level for name, size in ordered if size > level}


def is_before(cut: Cut, other: Cut) -> bool:
    """Return whether a cut has less than another one of the same stream, somewhere."""
    common = cut.keys() & other.keys()
    if common:
        return any(cut[segment] < other[segment] for segment in common)
    return _newest(cut) < _newest(other)


def _newest(cut: Cut) -> int:
    return max((SegmentId.unpack(segment).epoch for segment in cut if segment >= 0), default=-1)
