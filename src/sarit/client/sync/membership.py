"""Who is there: the members of a group, and the end of those that die.

Theory of operation.  The roster (`current.py`) is a shared state.  A member beats four times a lease, by a conditional
update: that it succeeds shows, too, that the member is still on the roster.  Everybody, members and watchers, fetches
the roster when it changes and takes those off who were silent for a whole lease (`detector.py`) - on the condition
that their count is still the same, so a beat that came in between saves its member.

A member that finds itself off the roster joins again, under a new number.  `holds` is what it may rely on by itself:
its last beat that succeeded was *sent* less than 0.8 leases ago.  Nobody can have taken it off by then, as others count
a whole lease from a later moment, as long as clocks run at the same rate within a fifth.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar

from sarit.client.sync import membership_list
from sarit.client.sync.failure_detector import FailureDetector
from sarit.client.sync.synchronizer import StateFollower
from sarit.core.errors import Conflict, Invalid, SaritError, Unavailable
from sarit.core.limits import (
    HEARTBEATS_PER_LEASE,
    LEAVE_TIMEOUT_SECONDS,
    MAX_LEASE_SECONDS,
    MEMBERSHIP_POLLS_PER_LEASE,
    MIN_LEASE_SECONDS,
    SAFE_LEASE_FRACTION,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.client.core.session import Session
    from sarit.client.sync.membership_list import Member, MembershipList
    from sarit.client.sync.synchronizer import StateSynchronizer

log = logging.getLogger(__name__)


T = TypeVar("T")


async def initialize_group(shared: StateSynchronizer[MembershipList], lease_seconds: float) -> None:
    """Make the group if there is none.  Raises Invalid: no lease may be as long; the group has another."""
    if not MIN_LEASE_SECONDS <= lease_seconds <= MAX_LEASE_SECONDS:
        raise Invalid(f"a lease of {lease_seconds} s: it must be {MIN_LEASE_SECONDS} to {MAX_LEASE_SECONDS:.0f} s")
    lease_ms = round(lease_seconds * 1000)
    await shared.initialize(membership_list.encode(membership_list.empty(lease_ms)))
    if shared.state.lease_ms != lease_ms:
        raise Invalid(
            f"the group {shared.stream.stream} has a lease of {shared.state.lease_ms / 1000} s, not {lease_seconds} s"
        )


class Membership:
    """A place in a group, or a view of it.  Make one with `await client.coordination.membership(...)`."""

    def __init__(
        self, session: Session, shared: StateSynchronizer[MembershipList], name: str | None, data: str
    ) -> None:
        """`name` None: watch, do not join."""
        self.name = name
        self._session = session
        self._shared = shared
        self._data = data
        self._number: int | None = None
        self._confirmed_at = 0.0
        self._heartbeat_due = 0.0
        self._follower = StateFollower(shared)
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._join_requested = False  # whether the newest steps were to join
        self.lease_seconds = shared.state.lease_ms / 1000
        self._failure_detector: FailureDetector[int] = FailureDetector(self.lease_seconds)

    def __repr__(self) -> str:
        return f"Membership({self._shared.stream.stream}, {self.name}, number {self._number})"

    async def open(self) -> Membership:
        """Join.  Raises NotFound, Unavailable."""
        self._session.register(self)
        try:
            await self._heartbeat_round()
        except BaseException:
            self._session.unregister(self)
            self._follower.end()
            raise
        self._task = self._session.background.spawn(self._run(), f"member of {self._shared.stream.stream}")
        return self

    # -- what is known --------------------------------------------------------------------------

    @property
    def members(self) -> tuple[Member, ...]:
        """Who is there, in the order of joining, as last seen."""
        return tuple(sorted(self._shared.state.members.values(), key=lambda member: member.number))

    @property
    def number(self) -> int | None:
        """This member's number; None while it is not in."""
        return self._number

    @property
    def holds(self) -> bool:
        """Whether this member is in, and certainly nobody has taken it off yet."""
        return self._number is not None and self.left_seconds() > 0

    def left_seconds(self) -> float:
        """For how long that is certain without another beat."""
        return self._confirmed_at + SAFE_LEASE_FRACTION * self.lease_seconds - self._session.env.clock.monotonic()

    async def until(self, condition: Callable[[], T | None], seconds: Callable[[], float | None] = lambda: None) -> T:
        """What `condition` returns once that is not None; called after each heartbeat round and after `seconds()`."""
        return await self._follower.until(condition, seconds)

    async def changed(self, since: tuple[Member, ...]) -> tuple[Member, ...]:
        """Who is there, once it is not `since`.  Raises the failure that ended the membership."""
        return await self.until(lambda: None if self.members == since else self.members)

    # -- what a member does -----------------------------------------------------------------------

    async def joined(self) -> int:
        """Wait until this member is in (its name may have been taken); its number."""
        self._check_named()
        return await self.until(lambda: self._number)

    async def describe(self, data: str) -> None:
        """Replace this member's data.  Raises Invalid (too long)."""
        membership_list.check_member(self._check_named(), data)
        async with self._lock:
            self._data = data
            number = self._number
            if number is not None:
                await self._shared.update(lambda _: [membership_list.describe(number, data)])
        self._follower.notify()

    async def rejoin(self) -> None:
        """Go to the end of the order: leave and join in one step."""
        name = self._check_named()

        def decide(current: MembershipList) -> list[bytes]:
            leave = [] if current.numbered(self._number) is None else [membership_list.leave(self._number or 0)]
            return [*leave, membership_list.join(name, self._data)] if leave or name not in current.members else []

        async with self._lock:
            began = self._session.env.clock.monotonic()
            if await self._shared.update(decide):
                self._set_joined(self._shared.state.members[name].number, began)
        self._follower.notify()

    def _check_named(self) -> str:
        if self._follower.failure is not None:
            raise self._follower.failure
        if self.name is None:
            raise Invalid("this one only watches the group")
        return self.name

    async def close(self) -> None:
        """Leave, so that others need not wait for the end of the lease."""
        self._session.unregister(self)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        self._follower.end()
        number, self._number = self._number, None
        if number is not None:
            try:
                async with asyncio.timeout(LEAVE_TIMEOUT_SECONDS):
                    await self._shared.update(lambda r: [membership_list.leave(number)] if r.numbered(number) else [])
            except (SaritError, TimeoutError) as error:
                log.info("%s leaves by the end of its lease: %s", self.name, error)

    def client_closed(self) -> None:
        """The client ends before the membership: others see it at the end of the lease."""
        self._number = None
        self._follower.end(Invalid("the client was closed"))

    async def __aenter__(self) -> Membership:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- the loop -------------------------------------------------------------------------------

    async def _run(self) -> None:
        backoff = self._session.backoff()
        try:
            while True:
                await asyncio.sleep(self.lease_seconds / MEMBERSHIP_POLLS_PER_LEASE)
                pause = max(0.0, self._heartbeat_due - self._session.env.clock.monotonic())
                try:
                    await self._follower.wait(pause)
                    await self._heartbeat_round()
                    backoff.reset()
                except (Unavailable, Conflict) as error:
                    await backoff.wait(error)
        except Exception as error:  # any: who waits for a change would wait for ever
            log.warning("%r ends: %r", self, error, exc_info=not isinstance(error, SaritError))
            self._number = None
            self._follower.end(error)

    async def _heartbeat_round(self) -> None:
        """Fetch, take off who is silent, beat or join when that is due."""
        async with self._lock:
            await self._shared.fetch()
            now = self._session.env.clock.monotonic()
            silent = self._failure_detector.observe(self._shared.state.heartbeats, now)
            silent.pop(self._number or 0, None)
            self._detect_removal()
            due = self.name is not None and (self._number is None or now >= self._heartbeat_due)
            if due or silent:
                wrote = await self._shared.update(lambda current: self._due_updates(current, silent))
                self._detect_removal()
                if self._number is not None:
                    if wrote:
                        self._set_joined(self._number, now)
                elif wrote and self.name is not None and self._join_requested:
                    self._set_joined(self._shared.state.members[self.name].number, now)
            if now >= self._heartbeat_due:
                self._heartbeat_due = now + self.lease_seconds / HEARTBEATS_PER_LEASE
        self._follower.notify()

    def _due_updates(self, current: MembershipList, silent: dict[int, int]) -> list[bytes]:
        """The updates that are due: members off that are still silent, then this one's beat or joining."""
        gone = {number for number, heartbeats in silent.items() if current.heartbeats.get(number) == heartbeats}
        steps = [membership_list.leave(number) for number in sorted(gone)]
        self._join_requested = False
        if self.name is None:
            return steps
        if self._number is not None and current.numbered(self._number) is not None:
            return [*steps, membership_list.heartbeat(self._number)]
        holder = current.members.get(self.name)
        if (holder is None or holder.number in gone) and len(current.members) - len(gone) < membership_list.MAX_MEMBERS:
            self._join_requested = True
            steps.append(membership_list.join(self.name, self._data))
        return steps

    def _detect_removal(self) -> None:
        if self._number is not None and self._shared.state.numbered(self._number) is None:
            log.warning("%r was taken off: it was silent for more than %s s", self, self.lease_seconds)
            self._number = None

    def _set_joined(self, number: int, confirmed: float) -> None:
        self._number, self._confirmed_at = number, confirmed
        self._heartbeat_due = confirmed + self.lease_seconds / HEARTBEATS_PER_LEASE


class LeaderElection:
    """One candidate.  Make one with `await client.coordination.leader_election(...)`."""

    def __init__(self, membership: Membership) -> None:
        self.membership = membership

    def __repr__(self) -> str:
        return f"LeaderElection({self.membership!r}, {'leads' if self.leading else 'follows'})"

    @property
    def leader(self) -> Member | None:
        """Who leads, as last seen."""
        return next(iter(self.membership.members), None)

    @property
    def token(self) -> int | None:
        """The fencing token of this candidate's leadership; None while it does not lead."""
        leader = self.leader
        mine = leader is not None and leader.number == self.membership.number
        return leader.number if leader is not None and mine and self.membership.holds else None

    @property
    def leading(self) -> bool:
        """Whether this candidate leads, now.  Turns False in time even when nothing can be reached."""
        return self.token is not None

    async def lead(self) -> int:
        """Wait until this candidate leads; its fencing token.  Raises the failure that ended the candidacy."""
        return await self.membership.until(lambda: self.token)

    async def lost(self, token: int) -> None:
        """Wait until this candidate does not lead under `token` any more.  Raises as `lead` does."""
        membership = self.membership
        await membership.until(
            lambda: True if self.token != token else None, lambda: max(0.0, membership.left_seconds())
        )

    async def resign(self) -> None:
        """Let the next candidate lead; this one goes to the end of the order."""
        await self.membership.rejoin()

    async def close(self) -> None:
        """Give up the candidacy; the next leads at once."""
        await self.membership.close()

    async def __aenter__(self) -> LeaderElection:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
