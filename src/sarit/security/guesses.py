"""Bounds failed log-ins, by user and by network, and separately for users at networks where they logged in before.

A user with MAX_FAILED_LOGINS wrong passwords within FAILED_LOGIN_SECONDS has to wait for the rest of that time, and so
has a network with MAX_FAILED_LOGINS_OF_HOST, whatever the names.  A user who has logged in from a network before is
counted separately there, so that guesses from elsewhere, or by others behind the same proxy, do not lock the user out.

*Concurrency.*  An attempt counts as failed from its beginning until it succeeds, so that a thousand attempts that begin
together are bounded like successive ones.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.security.limits import (
    FAILED_LOGIN_SECONDS,
    MAX_CACHED_LOGINS,
    MAX_FAILED_LOGINS,
    MAX_FAILED_LOGINS_OF_HOST,
    MAX_KNOWN_NETWORKS,
    MAX_KNOWN_NETWORKS_OF_USER,
)

if TYPE_CHECKING:
    from collections.abc import Hashable


@dataclass(frozen=True, slots=True)
class Try:
    """An attempt to log in, which counts as failed until it is taken back.  `known`: the user has logged in from this
    network before."""

    name: str
    network: str
    known: bool
    at: float


class Guesses:
    """The attempts to log in to one process.  `by_name`: count users over all networks, too, which passwords need."""

    def __init__(self, *, by_name: bool) -> None:
        self._by_name = by_name
        self._known = _KnownNetworks()
        self._of_user = _Failures(MAX_FAILED_LOGINS)  # by name; by (name, network) if known there
        self._of_network = _Failures(MAX_FAILED_LOGINS_OF_HOST)

    def __repr__(self) -> str:
        return f"<Guesses of {len(self._of_user)} users and {len(self._of_network)} networks, {self._known!r}>"

    def begin(self, name: str, network: str, now: float) -> Try | float:
        """Count an attempt.  Returns it, or the seconds until the next attempt is allowed.  `name`: empty: no user can
        have the name."""
        made = Try(name, network, self._known.has(name, network), now)
        counts = self._counts(made)
        if (left := max(failures.wait(key, now) for failures, key in counts)) > 0:
            return left
        for failures, key in counts:
            failures.add(key, now)
        return made

    def take_back(self, made: Try) -> None:
        """Remove an attempt from the counts: its password was right, or was not checked."""
        for failures, key in self._counts(made):
            failures.take_back(key, made.at)

    def right(self, name: str, network: str) -> None:
        """Remember that a user has logged in from a network."""
        self._known.add(name, network)

    def forgive(self) -> None:
        """Forget the failed attempts by user, but not who has logged in from where."""
        self._of_user.clear()

    def _counts(self, made: Try) -> list[tuple[_Failures, Hashable]]:
        if made.known:
            return [(self._of_user, (made.name, made.network))]
        of_network: tuple[_Failures, Hashable] = (self._of_network, made.network)
        return [of_network, (self._of_user, made.name)] if made.name and self._by_name else [of_network]


class _Failures:
    """The times of recent failures, by key; bounded, by dropping keys whose last failure is the oldest."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._times: OrderedDict[Hashable, list[float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._times)

    def clear(self) -> None:
        self._times.clear()

    def add(self, key: Hashable, now: float) -> None:
        times = self._times.setdefault(key, [])
        times.append(now)
        del times[: -self._most]
        self._times.move_to_end(key)
        if len(self._times) > MAX_CACHED_LOGINS:
            self._times.popitem(last=False)

    def take_back(self, key: Hashable, at: float) -> None:
        times = self._times.get(key, [])
        with suppress(ValueError):
            times.remove(at)
        if not times:
            self._times.pop(key, None)

    def wait(self, key: Hashable, now: float) -> float:
        """Return the seconds until the next attempt is allowed; 0: now."""
        times = [at for at in self._times.get(key, ()) if now - at < FAILED_LOGIN_SECONDS]
        return FAILED_LOGIN_SECONDS - (now - times[0]) if len(times) >= self._most else 0.0


class _KnownNetworks:
    """The networks from which each user has logged in.

    A user with too many networks loses their own oldest one, not another user's."""

    def __init__(self) -> None:
        self._of_user: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()
        self._count = 0

    def __repr__(self) -> str:
        return f"{self._count} known networks"

    def has(self, name: str, network: str) -> bool:
        return network in self._of_user.get(name, ())

    def add(self, name: str, network: str) -> None:
        networks = self._of_user.setdefault(name, OrderedDict())
        self._of_user.move_to_end(name)
        if network in networks:
            networks.move_to_end(network)
            return
        networks[network] = None
        self._count += 1
        if len(networks) > MAX_KNOWN_NETWORKS_OF_USER:
            networks.popitem(last=False)
            self._count -= 1
        elif self._count > MAX_KNOWN_NETWORKS:
            _, oldest = self._of_user.popitem(last=False)
            self._count -= len(oldest)
