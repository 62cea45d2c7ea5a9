"""The quotas of scopes and users, as one store applies them.

Theory of operation.  Controllers give a store all quotas and the number of stores (`use`).  A quota of bytes per second
is for the installation: each of n stores applies an n-th.  What a connection has received or sent is charged to the
scope, and to the user if it is known (`security/byte_bucket.py`).  All connections of a scope or user share one bucket,
that is, the rate and the debt: none of them takes an append before the debt is paid.

While there is no quota, `active` is false, and no other method is called.  `when_switched` registers a callback for
each change of `active`, so that connections need not read it at each append.

A scope whose storage quota is used up, or that holds as much for a link as it may, is *full*: connections that write
to it are not read from while it is.

*Tables that clients create* are counted as they are created and deleted.  The stored tables are counted at the first
creation in a scope, at the next one after the store has opened or closed a container, and at the quota, where the count
may be too high: a table may be deleted in another way, and a request without an answer may have created none.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from sarit.core.limits import QUOTA_MEASURE_SECONDS
from sarit.core.repeated_log import RepeatedLog
from sarit.security.byte_bucket import ByteBucket
from sarit.security.quotas import SCOPE, USER, Quotas
from sarit.store.limits import MAX_CHARGED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sarit.env.ports import Clock

_log = logging.getLogger("sarit.store.quotas")

_IN: Final = "in"
_OUT: Final = "out"


class Waiting(Protocol):
    """A connection that waits because of a quota."""

    def quotas_changed(self) -> None:
        """Ask again how long to wait, because the quotas have changed."""


class Tables(Protocol):
    """The tables that clients created in the containers of a store."""

    def held(self) -> frozenset[tuple[int, int]]:
        """Return the containers that serve now, each with the epoch of its opening."""

    async def count(self, scope: str) -> int:
        """Return how many tables of a scope the containers hold.  Raises SaritError."""


@dataclass(slots=True)
class _Made:
    """The number of tables that clients created in a scope, as counted at `counted` in the containers `of`."""

    count: int
    counted: float
    of: frozenset[tuple[int, int]]


class _Charge:
    """The charge of one scope or user in one direction; `throttled_seconds`: the sum over all its connections."""

    __slots__ = ("bucket", "bytes", "throttled_seconds")

    def __init__(self, rate: float) -> None:
        self.bucket = ByteBucket(rate)
        self.bytes = 0
        self.throttled_seconds = 0.0


class TenantQuotas:
    """The quotas of scopes and users, and their charges in this store."""

    def __init__(self, clock: Clock, tables: Tables) -> None:
        self.active = False
        self._clock = clock
        self._quotas = Quotas()
        self._stores = 1
        self._charges: dict[tuple[str, str], _Charge] = {}  # by direction and subject
        self._connections: dict[str, int] = {}  # by user
        self._tables = tables
        self._made: dict[str, _Made] = {}  # by scope
        self._making: dict[str, int] = {}  # creations in progress, by scope
        self._counting = asyncio.Lock()
        self._waiting: dict[Waiting, None] = {}
        self._switched: list[Callable[[], None]] = []
        self._repeated = RepeatedLog(_log, clock.monotonic, counted=False)
        self.connections_refused = 0

    def __repr__(self) -> str:
        return f"<TenantQuotas {self._quotas!r}, an {self._stores}-th of them>"

    def use(self, quotas: Quotas, stores: int) -> None:
        """Apply `quotas` from now on; those of bytes per second are divided by the number of `stores`."""
        if (quotas, stores) == (self._quotas, self._stores):
            return
        self._quotas, self._stores = quotas, max(1, stores)
        switched, self.active = self.active != bool(quotas), bool(quotas)
        now = self._clock.monotonic()
        for key, charge in list(self._charges.items()):
            rate = self._rate(*key)
            if rate:
                charge.bucket.change(now, rate)
            else:
                del self._charges[key]
        for waiting in list(self._waiting):
            waiting.quotas_changed()
        if switched:
            for call in self._switched:
                call()

    def when_switched(self, call: Callable[[], None]) -> None:
        """Have `call` called when the first quota comes and when the last one goes."""
        self._switched.append(call)

    # -- bytes --------------------------------------------------------------------------------------

    def received(self, scope: str, user: str, size: int) -> None:
        """Charge bytes that a connection of `user` has sent to a scope."""
        self._take(_IN, SCOPE + scope, size)
        if user:
            self._take(_IN, USER + user, size)

    def sent(self, scope: str, user: str, size: int) -> None:
        """Charge bytes of a scope that were sent to a connection of `user`."""
        self._take(_OUT, SCOPE + scope, size)
        if user:
            self._take(_OUT, USER + user, size)

    def read_delay(self, scope: str, user: str) -> float:
        """Return how many seconds the next reply to a read has to wait."""
        return self._debt(_OUT, scope, user)

    def write_delay(self, scope: str, user: str) -> float:
        """Return how many seconds the next append has to wait."""
        return self._debt(_IN, scope, user)

    def _debt(self, direction: str, scope: str, user: str) -> float:
        now, found = self._clock.monotonic(), 0.0
        for subject in (SCOPE + scope, USER + user):
            charge = self._charges.get((direction, subject))
            if charge is not None:
                found = max(found, charge.bucket.debt(now))
        return found

    def waited(self, direction_in: bool, scope: str, seconds: float) -> None:
        """Add the time that a connection has waited because of a scope's quota, for the metrics."""
        charge = self._charges.get((_IN if direction_in else _OUT, SCOPE + scope))
        if charge is not None:
            charge.throttled_seconds += seconds

    def is_full(self, scope: str) -> bool:
        """Return whether a scope accepts no appends now: its storage quota is used up, or what it holds for a link."""
        if scope not in self._quotas.full:
            return False
        text = f"scope {scope} has used its storage quota, or holds all it may for a link: appends to it wait"
        self._repeated.warning(scope, text)
        return True

    def wait(self, waiting: Waiting) -> None:
        """Notify `waiting` when the quotas change."""
        self._waiting[waiting] = None

    def done_waiting(self, waiting: Waiting) -> None:
        """Record that a connection waits no longer."""
        self._waiting.pop(waiting, None)

    def _take(self, direction: str, subject: str, size: int) -> None:
        key = direction, subject
        charge = self._charges.get(key)
        now = self._clock.monotonic()
        if charge is None:
            rate = self._rate(direction, subject)
            if not rate:
                return
            if len(self._charges) >= MAX_CHARGED:
                self._forget(now)
            charge = self._charges[key] = _Charge(rate)
        charge.bytes += size
        charge.bucket.take(now, size)

    def _rate(self, direction: str, subject: str) -> float:
        kind, _, name = subject.partition(":")
        quota = self._quotas.of_scope(name) if kind == "scope" else self._quotas.of_user(name)
        return (quota.bytes_in if direction == _IN else quota.bytes_out) / self._stores

    def _forget(self, now: float) -> None:
        """Drop a charge without a debt, or the oldest: their number is bounded, since names come from clients."""
        free = next((key for key, charge in self._charges.items() if not charge.bucket.debt(now)), None)
        del self._charges[free or next(iter(self._charges))]

    # -- tables that clients make -------------------------------------------------------------------

    async def create(self, scope: str) -> bool:
        """Count a table that a client is about to create.  Returns whether the quota of its scope allows it.

        If so, the caller calls `creation_ended` later.  Raises SaritError when the tables cannot be counted now."""
        quota = self._quotas.of_scope(scope).segments
        if quota:
            most = max(1, quota // self._stores)
            async with self._counting:
                made = await self._count(scope, most)
            if made.count >= most:
                return False
            made.count += 1
        self._making[scope] = self._making.get(scope, 0) + 1
        return True

    def creation_ended(self, scope: str) -> None:
        """Record that a creation that `create` counted has ended; if it made no table, the caller calls `removed`."""
        self._making[scope] -= 1
        if not self._making[scope]:
            del self._making[scope]

    def removed(self, scope: str) -> None:
        """Subtract a table that was deleted, or was not created after all."""
        made = self._made.get(scope)
        if made is not None:
            made.count = max(0, made.count - 1)

    async def _count(self, scope: str, most: int) -> _Made:
        found, now, held = self._made.get(scope), self._clock.monotonic(), self._tables.held()
        fresh = found is not None and found.of == held
        if found is not None and fresh and (found.count < most or now < found.counted + QUOTA_MEASURE_SECONDS):
            return found
        # A table whose creation is in progress may be counted twice, until the next count.
        count = await self._tables.count(scope) + self._making.get(scope, 0)
        if len(self._made) >= MAX_CHARGED and scope not in self._made:
            del self._made[next(iter(self._made))]
        self._made[scope] = _Made(count, now, held)
        return self._made[scope]

    # -- connections --------------------------------------------------------------------------------

    def connected(self, user: str) -> bool:
        """Count a connection of a user.  Returns whether the user's quota allows it.

        The caller calls `disconnected` later in either case."""
        count = self._connections[user] = self._connections.get(user, 0) + 1
        most = self._quotas.of_user(user).connections
        if most and count > most:
            self.connections_refused += 1
            self._repeated.warning(USER + user, f"user {user} has {most} connections, which is the quota: {count - most} more are refused")  # fmt: skip  # noqa: E501
            return False
        return True

    def disconnected(self, user: str) -> None:
        """Count a connection of a user as ended."""
        left = self._connections[user] - 1
        if left:
            self._connections[user] = left
        else:
            del self._connections[user]

    # -- for metrics --------------------------------------------------------------------------------

    def scopes_charged(self) -> Iterator[tuple[str, str, int, float]]:
        """Yield (scope, direction, bytes, throttled seconds) of each scope with a quota of bytes per second."""
        for (direction, subject), charge in self._charges.items():
            if subject.startswith(SCOPE):
                yield subject.removeprefix(SCOPE), direction, charge.bytes, charge.throttled_seconds

    @property
    def full_scopes(self) -> int:
        """How many scopes accept no appends because of their storage quota, or of what they hold for a link."""
        return len(self._quotas.full)
