"""Repeats work after each wake-up and at intervals, since a wake-up may be lost, and ends memberships."""

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
    """Call `attempt` now, after each `wake`, and every COORDINATION_POLL_SECONDS, until cancelled.

    After Unavailable it is called again sooner.  Unavailable and Invalid are logged, beginning with `failed`, once
    while they last.  Raises all other errors of `attempt`."""
    repeated = RepeatedLog(log, clock.monotonic)
    while True:
        # Clear the event before the attempt, so that changes during the attempt wake it again.
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
    """Wait for an event for up to `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


async def leave(membership: Membership | None, log: logging.Logger, member: str) -> None:
    """End a membership now, if there is one.  If the service does not answer, the membership ends with its lease."""
    if membership is None:
        return
    try:
        await membership.leave()
    except SaritError as error:
        log.warning("%s could not leave: %s", member, error)
