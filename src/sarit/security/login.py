"""Log-ins: from the header `authorization` of a request to the caller who makes it.

Official clients send it with every call: `Basic` and base64 of `USER:PASSWORD`, or `Bearer` and a token of a provider
that the node trusts.  A password takes milliseconds of a processor to check, on purpose, so results are cached by a
keyed hash of the header until the user file changes.

*Guessing.*  At most MAX_PASSWORD_CHECKS are under way and waiting; more are refused at once.  A user with
MAX_FAILED_LOGINS wrong passwords within FAILED_LOGIN_SECONDS has to wait for the rest of them; who is logged in already
does not notice.  The same holds for a host with MAX_FAILED_LOGINS_OF_HOST of them, whatever the names.  Who has logged
in from a host before is counted apart there: guesses from elsewhere, or of others behind the same proxy, lock out
nobody who was there.  Each refusal says nothing about whether the user exists, and takes as long either way.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
from collections import OrderedDict
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, Protocol

from sarit.core.errors import Unauthenticated, Unavailable
from sarit.core.repeated_log import RepeatedLog
from sarit.security.limits import (
    FAILED_LOGIN_SECONDS,
    LOGIN_KEY_BYTES,
    MAX_AUTHORIZATION_BYTES,
    MAX_CACHED_LOGINS,
    MAX_FAILED_LOGINS,
    MAX_FAILED_LOGINS_OF_HOST,
    MAX_PASSWORD_CHECKS,
)
from sarit.security.permissions import ADMIN_ROLE, Caller
from sarit.security.users import User, matches

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from sarit.env.ports import Env

_log = logging.getLogger("sarit.security")

OWN_NAME: Final = "sarit"  # in the audit log: what the node asks for itself
_REFUSED: Final = "user or password is wrong"
# Nobody's: a check against it takes as long as one against a user's.
_NOBODY: Final = User(
    "", "$argon2id$v=19$m=19456,t=2,p=1$c2FyaXQgbm9ib2R5IQ$wZ8b2pJtBv7N3Yyq3r8bqWm0T4w8yQe0s2Fq4b1o0dE"
)


class BearerTokens(Protocol):
    """Tokens of an identity provider."""

    async def caller(self, token: str, now: float) -> tuple[Caller, float]:
        """Who has the token, and until when, in seconds since 1970.  Raises Unauthenticated, Unavailable."""


class Logins:
    """Who the callers of one process are."""

    def __init__(self, env: Env, users: Mapping[str, User], bearer: BearerTokens | None = None) -> None:
        self._env = env
        self._users = users
        self._bearer = bearer
        self._worker = env.threads.worker("passwords")
        self._key = env.random.bytes(LOGIN_KEY_BYTES)
        self._cached: OrderedDict[bytes, Caller | None] = OrderedDict()  # None: the password is wrong
        self._checks = 0
        self._closed = False
        self._own: str | None = None
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()  # users and hosts that they logged in from
        self._failed = _Failures(MAX_FAILED_LOGINS)  # by user; by user and host of those that are known
        self._failed_of_host = _Failures(MAX_FAILED_LOGINS_OF_HOST)
        self._repeated = RepeatedLog(_log, env.clock.monotonic)

    def __repr__(self) -> str:
        return f"<Logins of {len(self._users)} users, {len(self._cached)} cached>"

    def replace_users(self, users: Mapping[str, User]) -> None:
        """Use another user file from now on; connections that are open are asked at their next call."""
        self._users = users
        self._cached.clear()
        self._failed.clear()

    async def close(self) -> None:
        """End the thread that checks passwords."""
        self._closed = True
        await self._worker.close()

    def own_token(self) -> str:
        """A token for this process's own requests, which it never leaves; its bearer may do everything."""
        if self._own is None:
            self._own = base64.urlsafe_b64encode(self._env.random.bytes(LOGIN_KEY_BYTES)).decode()
        return self._own

    async def caller(self, authorization: str | None, peer: str) -> Caller:
        """Who sent the header.  `peer`: for the log.  Raises Unauthenticated, Unavailable."""
        if authorization is None:
            raise Unauthenticated("log in: this server takes no anonymous requests (user and password, or a token)")
        if len(authorization) > MAX_AUTHORIZATION_BYTES:
            raise Unauthenticated(f"the header authorization has more than {MAX_AUTHORIZATION_BYTES} bytes")
        method, _, value = authorization.partition(" ")
        if self._own is not None and hmac.compare_digest(authorization.encode(), f"Bearer {self._own}".encode()):
            return Caller(OWN_NAME, frozenset((ADMIN_ROLE,)))
        if method.lower() == "bearer" and self._bearer is not None:
            return await self._by_token(self._bearer, value.strip(), peer)
        if method.lower() != "basic":
            raise Unauthenticated(f"this server does not take log-ins of the kind {method[:20]!r}")
        return await self._by_password(value.strip(), peer)

    async def _by_token(self, bearer: BearerTokens, token: str, peer: str) -> Caller:
        try:
            caller, _ = await bearer.caller(token, self._env.clock.wall_ms() / 1000)
            if caller.name in self._users or caller.name == OWN_NAME:
                # Otherwise whoever chooses their name at the provider could take that of a user here.
                raise Unauthenticated(f"{caller.name} is the name of a user of this server: a token cannot take it")
        except Unauthenticated as error:
            host = _host(peer)
            self._repeated.warning(("token", host), f"a token from {host} was refused: {error}")
            raise
        return caller

    async def _by_password(self, value: str, peer: str) -> Caller:
        key = blake2b(value.encode(), key=self._key, digest_size=LOGIN_KEY_BYTES).digest()
        if key in self._cached:
            self._cached.move_to_end(key)
            if (caller := self._cached[key]) is not None:
                return caller
            raise self._refused("", peer)
        name, password = _parse_basic(value)
        self._check_guesses(name, _host(peer))
        if self._checks >= MAX_PASSWORD_CHECKS:
            raise Unavailable("too many log-ins at once: try again")
        if self._closed:
            raise Unavailable("the process stops")
        users, user = self._users, self._users.get(name)
        self._checks += 1
        try:
            right = await self._worker.run(lambda: matches(user or _NOBODY, password))
        finally:
            self._checks -= 1
        caller = Caller(user.name, user.roles) if right and user is not None else None
        if users is self._users:  # otherwise the file was replaced meanwhile
            self._cached[key] = caller
            if len(self._cached) > MAX_CACHED_LOGINS:
                self._cached.popitem(last=False)
        if caller is None:
            raise self._refused(name, peer)
        self._known[name, _host(peer)] = None
        self._known.move_to_end((name, _host(peer)))
        if len(self._known) > MAX_CACHED_LOGINS:
            self._known.popitem(last=False)
        return caller

    def _check_guesses(self, name: str, host: str) -> None:
        now = self._env.clock.monotonic()
        if (name, host) in self._known:
            left = self._failed.wait((name, host), now)
        else:
            left = max(self._failed.wait(name, now), self._failed_of_host.wait(host, now))
        if left > 0:
            self._repeated.warning(("guesses", host), f"log-ins from {host} are refused: too many wrong passwords")
            raise Unauthenticated(f"too many wrong passwords: try again in {left:.0f} s")

    def _refused(self, name: str, peer: str) -> Unauthenticated:
        host = _host(peer)
        self._repeated.warning(("password", host), f"a log-in from {host} was refused: {_REFUSED}")
        now = self._env.clock.monotonic()
        if (name, host) in self._known:
            self._failed.add((name, host), now)
        elif name:
            self._failed.add(name, now)
            self._failed_of_host.add(host, now)
        return Unauthenticated(_REFUSED)


class _Failures:
    """When log-ins failed of late, by name; bounded, without those that failed longest ago."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._times: OrderedDict[Hashable, list[float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._times)

    def clear(self) -> None:
        self._times.clear()

    def add(self, name: Hashable, now: float) -> None:
        times = self._times.setdefault(name, [])
        times.append(now)
        del times[: -self._most]
        self._times.move_to_end(name)
        if len(self._times) > MAX_CACHED_LOGINS:
            self._times.popitem(last=False)

    def wait(self, name: Hashable, now: float) -> float:
        """Seconds until the next try; 0: now."""
        times = [at for at in self._times.get(name, ()) if now - at < FAILED_LOGIN_SECONDS]
        return FAILED_LOGIN_SECONDS - (now - times[0]) if len(times) >= self._most else 0.0


def _host(peer: str) -> str:
    return peer.rpartition(":")[0] or peer


def _parse_basic(value: str) -> tuple[str, str]:
    try:
        name, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise Unauthenticated("the header authorization is not base64 of USER:PASSWORD") from None
    if not colon:
        raise Unauthenticated("the header authorization has no password")
    return name, password


def basic(user: str, password: str) -> str:
    """The header of a user: what `Logins` reads."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
