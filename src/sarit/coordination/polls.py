"""Work that is repeated whenever it may be due: after each wake-up, and at intervals, since a wake-up may be lost.

And the end of a membership."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sarit.coordination.limits import COORDINATION_POLL_SECONDS, COORDINATION_RETRY_SECONDS
from sarit.core.errors import Invalid, SaritError, Unavailable
from sarit.core.repeated_log import RepeatedLog

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable
    from typing import Never

    from sarit.coordination.port import Membership
    from sarit.env.ports import Clock


async def poll(
    attempt: Callable[[], Awaitable[object]], wake: asyncio.Event, clock: Clock, log: logging.Logger, failed: str
) -> Never:
    """Attempt it now, after each `wake`, and every COORDINATION_POLL_SECONDS; until cancelled.

    An attempt that raises Unavailable is repeated sooner; Invalid is for an operator.  Both are logged after `failed`,
    once while they last.  Raises what else `attempt` raises."""
    repeated = RepeatedLog(log, clock.monotonic)
    while True:
        # Before the attempt: what changes during it wakes it again.
        wake.clear()
        pause = COORDINATION_POLL_SECONDS
        try:
            await attempt()
            repeated.ended("")
        except Unavailable as error:
            pause = COORDINATION_RETRY_SECONDS
            repeated.warning("", f"{failed} now: {error}")
        except Invalid as error:
            repeated.critical("", f"{failed}: {error}")
        await woken(wake, pause)


async def woken(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, so many seconds at most."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


async def leave(membership: Membership | None, log: logging.Logger, member: str) -> None:
    """End a membership now, if there is one.  When the service cannot be reached, its lease ends by itself."""
    if membership is None:
        return
    try:
        await membership.leave()
    except SaritError as error:
        log.warning("%s could not leave: %s", member, error)
