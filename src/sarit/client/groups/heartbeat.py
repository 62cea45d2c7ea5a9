"""The background task of a reader: it follows the group's state, reports progress, and detects failed readers.

Theory of operation.  Each reader reports its distance (its positions) to the state; every report counts as a heartbeat.
The interval grows with the number of readers, so that the write rate of a group does not.  A reader with a death
timeout reports at least `HEARTBEATS_PER_DEATH_TIMEOUT` times in it.  It also declares readers offline from which it saw
no heartbeat for the whole timeout; their segments continue at their last checkpoint.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from sarit.client.groups import generations
from sarit.client.groups.state import RemoveReader, Update, UpdateDistance
from sarit.client.limits import (
    GROUP_CONFIG_CHANGE_GRACE_SECONDS,
    GROUP_FETCH_PAUSE_SECONDS,
    GROUP_HEARTBEAT_UNIT_SECONDS,
    HEARTBEATS_PER_DEATH_TIMEOUT,
    MAX_GROUP_FETCH_PAUSE_SECONDS,
)
from sarit.client.sync.failure_detector import FailureDetector
from sarit.client.sync.synchronizer import StateFollower
from sarit.core.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.client.groups.shared_state import SharedState
    from sarit.client.groups.state import GroupState
    from sarit.client.session.session import Session

log = logging.getLogger(__name__)


class Heartbeat:
    """`failure`: what ended the task; None while it runs."""

    def __init__(
        self,
        session: Session,
        shared: SharedState,
        reader: str,
        is_current: Callable[[GroupState], bool],
        distance: Callable[[GroupState], UpdateDistance],
        wake: Callable[[], None],
        death_timeout: float | None,
    ) -> None:
        """`wake` is called when the state may have changed."""
        self.failure: Exception | None = None
        self._session = session
        self._clock = session.env.clock
        self._shared = shared
        self._reader = reader
        self._is_current = is_current
        self._distance = distance
        self._wake = wake
        self._follower = StateFollower(shared.synchronizer)
        self._death_timeout = death_timeout
        self._failure_detector: FailureDetector[str] | None = (
            None if death_timeout is None else FailureDetector(death_timeout)
        )
        self._updating_since: float | None = None

    def __repr__(self) -> str:
        return f"Heartbeat({self._shared.name}, {self._reader}, {self.failure})"

    async def run(self) -> None:
        """Run until the reader is not in the group any more."""
        try:
            await self._follow()
        except Exception as error:  # after any error, or the reader would wait for changes for ever
            self.failure = error
            self._wake()

    async def _follow(self) -> None:
        backoff = self._session.backoff()
        heartbeat_at = self._clock.monotonic() + self._heartbeat_interval_seconds(self._shared.state)
        while True:
            try:
                await self._follower.wait(max(0.0, heartbeat_at - self._clock.monotonic()))
                # The time that the calls spend with retries counts.
                backoff.begin()
                state = await self._shared.fetch()
                if not self._is_current(state):
                    return
                now = self._clock.monotonic()
                if now >= heartbeat_at:
                    await self._shared.write(self._distance(state))
                    heartbeat_at = now + self._heartbeat_interval_seconds(state)
                    await self._finish_config_change(state, now)
                    await self._remove_failed_readers(state)
                backoff.reset()
                # Every write wakes every reader of the group: the pause bounds the fetches, more so in a large group.
                await asyncio.sleep(min(GROUP_FETCH_PAUSE_SECONDS * len(state.assigned), MAX_GROUP_FETCH_PAUSE_SECONDS))
            except Unavailable as error:
                await backoff.wait(error)
            finally:
                # Wake the reader even after an error: it decides itself whether a round is due.
                self._wake()

    def _heartbeat_interval_seconds(self, state: GroupState) -> float:
        regular = GROUP_HEARTBEAT_UNIT_SECONDS * (len(state.assigned) + 1)
        return (
            regular if self._death_timeout is None else min(regular, self._death_timeout / HEARTBEATS_PER_DEATH_TIMEOUT)
        )

    async def _finish_config_change(self, state: GroupState, now: float) -> None:
        """Complete a configuration change whose author was lost before it did."""
        # Asked again after each grace period: the flag stays set until a generation begins (`adopt_generation`).
        if not state.updating:
            self._updating_since = None
        elif self._updating_since is None:
            self._updating_since = now
        elif now - self._updating_since > GROUP_CONFIG_CHANGE_GRACE_SECONDS:
            self._updating_since = None
            await generations.adopt_generation(self._session, self._shared)

    async def _remove_failed_readers(self, state: GroupState) -> None:
        """Declare readers offline that sent no heartbeat for the whole death timeout."""
        if self._failure_detector is None:
            return
        heartbeats = {reader: state.heartbeats.get(reader, 0) for reader in state.assigned if reader != self._reader}
        failed = self._failure_detector.observe(heartbeats, self._clock.monotonic())
        if not failed:
            return

        def decide(newest: GroupState) -> list[Update]:  # a heartbeat in between saves its reader
            return [
                # No positions of it are known: its segments continue where its last checkpoint was.
                RemoveReader(reader, {})
                for reader, count in failed.items()
                if reader in newest.assigned and newest.heartbeats.get(reader, 0) == count
            ]

        if await self._shared.update(decide):
            log.warning("readers %s of %s sent no heartbeat in time: offline", sorted(failed), self._shared.name)

    def end(self) -> None:
        """Stop following."""
        self._follower.end()
