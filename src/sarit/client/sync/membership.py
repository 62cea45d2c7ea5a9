"""Membership in a group with failure detection, and leader election on top of it.

Theory of operation.  The membership list (`membership_list.py`) is a shared state.  A member sends four heartbeats a
lease, each a conditional update: its success shows, too, that the member is still in the list.  Every process, members
and watchers, fetches the list when it changes, and removes members that were silent for a whole lease
(`failure_detector.py`).  The removal is conditional on the same heartbeat count: a heartbeat in between saves its
member.

A member that finds itself removed joins again, under a new number.  `holds` is what a member may rely on by itself: its
last successful heartbeat was *sent* less than 0.8 leases ago.  No other process can have removed it by then: others
count a whole lease from a later moment, as long as clocks run at the same rate within a fifth.

Election.  The leader is the member that joined first.  Its number is its fencing token: it rises with every change of
leader, since leaders follow each other in the order of joining and numbers are never used again.  At most one member
finds `leading` true at any moment, under the same condition on clocks.  But a process can be stopped between the check
and the act, for any time.  What must not be done by two leaders must carry the token, and its receiver must refuse a
token below the highest it has seen.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar

from sarit.client.limits import (
    HEARTBEATS_PER_LEASE,
    LEAVE_TIMEOUT_SECONDS,
    MAX_LEASE_SECONDS,
    MEMBERSHIP_POLLS_PER_LEASE,
    MIN_LEASE_SECONDS,
    SAFE_LEASE_FRACTION,
)
from sarit.client.session.guard import guarded
from sarit.client.sync import membership_list
from sarit.client.sync.failure_detector import FailureDetector
from sarit.client.sync.synchronizer import StateFollower
from sarit.core.errors import Conflict, Invalid, SaritError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.client.session.session import Session
    from sarit.client.sync.membership_list import Member, MembershipList
    from sarit.client.sync.synchronizer import StateSynchronizer

log = logging.getLogger(__name__)


T = TypeVar("T")


async def initialize_group(shared: StateSynchronizer[MembershipList], lease_seconds: float) -> None:
    """Create the group if there is none.  Raises Invalid: the lease is out of bounds, or the group has another."""
    if not MIN_LEASE_SECONDS <= lease_seconds <= MAX_LEASE_SECONDS:
        raise Invalid(f"a lease of {lease_seconds} s: it must be {MIN_LEASE_SECONDS} to {MAX_LEASE_SECONDS:.0f} s")
    lease_ms = round(lease_seconds * 1000)
    await shared.initialize(membership_list.encode(membership_list.empty(lease_ms)))
    if shared.state.lease_ms != lease_ms:
        raise Invalid(
            f"the group {shared.stream.stream} has a lease of {shared.state.lease_ms / 1000} s, not {lease_seconds} s"
        )


@guarded("_session", local=("close",), unguarded=("client_closed", "left_seconds", "until", "rejoin"))
class Membership:
    """Membership in a group, or a view of it.  Create one with `await client.coordination.membership(...)`."""

    def __init__(
        self, session: Session, shared: StateSynchronizer[MembershipList], name: str | None, data: str
    ) -> None:
        """`name` None: watch only."""
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
        self._join_requested = False  # whether the updates last decided on contain our join
        self.lease_seconds = shared.state.lease_ms / 1000
        self._failure_detector: FailureDetector[int] = FailureDetector(self.lease_seconds)

    def __repr__(self) -> str:
        return f"Membership({self._shared.stream.stream}, {self._session.state()}, {self.name}, number {self._number})"

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

    # -- state ----------------------------------------------------------------------------------

    @property
    def members(self) -> tuple[Member, ...]:
        """The members in the order of joining, as last fetched."""
        return tuple(sorted(self._shared.state.members.values(), key=lambda member: member.number))

    @property
    def number(self) -> int | None:
        """This member's number; None while it is not in the group."""
        return self._number

    @property
    def holds(self) -> bool:
        """Whether this member is in the group, and certainly no process has removed it yet."""
        return self._number is not None and self.left_seconds() > 0

    def left_seconds(self) -> float:
        """For how many seconds that stays certain without another heartbeat."""
        return self._confirmed_at + SAFE_LEASE_FRACTION * self.lease_seconds - self._session.env.clock.monotonic()

    async def until(self, condition: Callable[[], T | None], seconds: Callable[[], float | None] = lambda: None) -> T:
        """Return what `condition` returns once that is not None; called after each heartbeat round and after
        `seconds()`."""
        return await self._follower.until(condition, seconds)

    async def changed(self, since: tuple[Member, ...]) -> tuple[Member, ...]:
        """Return the members, once they differ from `since`.  Raises the failure that ended the membership."""
        return await self.until(lambda: None if self.members == since else self.members)

    # -- changes ----------------------------------------------------------------------------------

    async def joined(self) -> int:
        """Wait until this member is in the group (its name may be taken).  Returns its number."""
        self._check_named()
        return await self.until(lambda: self._number)

    async def describe(self, data: str) -> None:
        """Replace this member's data.  Raises Invalid (too long)."""
        membership_list.check_member(self._check_named(), data)
        async with self._lock:
            self._check_named()  # again: the membership may have ended while this waited
            self._data = data
            number = self._number
            if number is not None:
                await self._shared.update(lambda _: [membership_list.describe(number, data)])
        self._follower.notify()

    async def rejoin(self) -> None:
        """Move to the end of the order: leave and join in one update."""
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
            raise Invalid("this membership only watches the group")
        return self.name

    async def close(self) -> None:
        """Leave; other members see it at once."""
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
                log.info("%s could not leave; its lease will run out: %s", self.name, error)

    def client_closed(self) -> None:
        """Stop without leaving, because the client is closed.  Others see the member until its lease ends."""
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
                # The least pause between two rounds, however often the list changes.
                await asyncio.sleep(self.lease_seconds / MEMBERSHIP_POLLS_PER_LEASE)
                pause = max(0.0, self._heartbeat_due - self._session.env.clock.monotonic())
                try:
                    await self._follower.wait(pause)
                    # The time that the round itself spends with retries counts.
                    backoff.begin()
                    await self._heartbeat_round()
                    backoff.reset()
                except (Unavailable, Conflict) as error:
                    await backoff.wait(error)
        except Exception as error:  # after any error, or waits for a change would never end
            log.warning(
                "member %s of %s ends: %s",
                self.name,
                self._shared.stream.stream,
                error,
                exc_info=not isinstance(error, SaritError),
            )
            self._number = None
            self._follower.end(error)

    async def _heartbeat_round(self) -> None:
        """Fetch the list, remove failed members, send a heartbeat or join when that is due."""
        async with self._lock:
            await self._shared.fetch()
            # Before the write: others count the lease from when they see it, later.  So this member stops first.
            now = self._session.env.clock.monotonic()
            failed = self._failure_detector.observe(self._shared.state.heartbeats, now)
            # A member never removes itself.
            failed.pop(self._number or 0, None)
            self._detect_removal()
            due = self.name is not None and (self._number is None or now >= self._heartbeat_due)
            if due or failed:
                wrote = await self._shared.update(lambda current: self._due_updates(current, failed))
                self._detect_removal()
                if self._number is not None:
                    if wrote:
                        self._set_joined(self._number, now)
                elif wrote and self.name is not None and self._join_requested:
                    self._set_joined(self._shared.state.members[self.name].number, now)
            if now >= self._heartbeat_due:
                self._heartbeat_due = now + self.lease_seconds / HEARTBEATS_PER_LEASE
        self._follower.notify()

    def _due_updates(self, current: MembershipList, failed: dict[int, int]) -> list[bytes]:
        """Return the updates that are due: failed members leave, then this one sends a heartbeat or joins."""
        # A heartbeat since the observation saves its member.
        gone = {number for number, heartbeats in failed.items() if current.heartbeats.get(number) == heartbeats}
        updates = [membership_list.leave(number) for number in sorted(gone)]
        self._join_requested = False
        if self.name is None:
            return updates
        if self._number is not None and current.numbered(self._number) is not None:
            return [*updates, membership_list.heartbeat(self._number)]
        holder = current.members.get(self.name)
        if (holder is None or holder.number in gone) and len(current.members) - len(gone) < membership_list.MAX_MEMBERS:
            self._join_requested = True
            updates.append(membership_list.join(self.name, self._data))
        return updates

    def _detect_removal(self) -> None:
        if self._number is not None and self._shared.state.numbered(self._number) is None:
            log.warning("member %s of %s was removed: no heartbeat of it succeeded for %s s", self.name,
                        self._shared.stream.stream, self.lease_seconds)  # fmt: skip
            self._number = None

    def _set_joined(self, number: int, confirmed: float) -> None:
        self._number, self._confirmed_at = number, confirmed
        self._heartbeat_due = confirmed + self.lease_seconds / HEARTBEATS_PER_LEASE


@guarded("membership._session", local=("close",))
class LeaderElection:
    """One candidate.  Create one with `await client.coordination.leader_election(...)`."""

    def __init__(self, membership: Membership) -> None:
        self.membership = membership

    def __repr__(self) -> str:
        return f"LeaderElection({self.membership!r}, {'leads' if self.leading else 'follows'})"

    @property
    def leader(self) -> Member | None:
        """The leader as last fetched."""
        return next(iter(self.membership.members), None)

    @property
    def token(self) -> int | None:
        """The fencing token of this candidate; None while it does not lead."""
        leader = self.leader
        mine = leader is not None and leader.number == self.membership.number
        return leader.number if leader is not None and mine and self.membership.holds else None

    @property
    def leading(self) -> bool:
        """Whether this candidate leads now.  Becomes False in time even when no store can be reached."""
        return self.token is not None

    async def lead(self) -> int:
        """Wait until this candidate leads.  Returns its fencing token.  Raises the failure that ended the candidacy."""
        return await self.membership.until(lambda: self.token)

    async def lost(self, token: int) -> None:
        """Wait until this candidate does not lead under `token` any more.  Raises as `lead` does."""
        membership = self.membership
        await membership.until(
            lambda: True if self.token != token else None, lambda: max(0.0, membership.left_seconds())
        )

    async def resign(self) -> None:
        """Let the next candidate lead; this one moves to the end of the order."""
        await self.membership.rejoin()

    async def close(self) -> None:
        """Give up the candidacy.  The next candidate leads at once."""
        await self.membership.close()

    async def __aenter__(self) -> LeaderElection:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
