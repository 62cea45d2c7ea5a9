"""Log-ins: authenticates the caller of a request by its header `authorization`.

Official clients send the header with every call: `Basic` and base64 of `USER:PASSWORD`, or `Bearer` and a token of a
provider that the node trusts.  The check of a password takes milliseconds of a processor, on purpose, so results are
cached by a keyed hash until the user file changes; failures in a cache of their own, so that they do not displace
successes.  Concurrent requests with the same password share one check.

*Guessing.*  `guesses.py` counts failed attempts, `password_queue.py` bounds the checks that wait.  Names that no user
can have and passwords that are too long are refused without a check, and counted.  A refusal does not show whether the
user exists, and takes as long either way.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import logging
from collections import OrderedDict
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, TypeVar

from sarit.core.errors import Unauthenticated
from sarit.core.networks import network_of_peer
from sarit.core.repeated_log import RepeatedLog
from sarit.env.background import ignore_outcome, shielded
from sarit.security.guesses import Guesses, Try
from sarit.security.limits import LOGIN_KEY_BYTES, MAX_AUTHORIZATION_BYTES, MAX_CACHED_LOGINS, MAX_PASSWORD_BYTES
from sarit.security.password_queue import PasswordQueue
from sarit.security.permissions import ADMIN_ROLE, Caller
from sarit.security.users import User, is_user_name, matches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.env.ports import Env
    from sarit.security.oidc import OidcTokens

T = TypeVar("T")

# Headers of an HTTP answer to a request without a log-in: a browser asks for user and password.
CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="sarit", charset="UTF-8"'}

_log = logging.getLogger("sarit.security")

OWN_NAME: Final = "sarit"  # the caller in the audit log for the node's own requests
_REFUSED: Final = "user or password is wrong"
_NOT_BASIC: Final = "the header authorization is not base64 of USER:PASSWORD"
# A user with a hash that no password has: a check against it takes as long as one against a real user's hash.
_NOBODY: Final = User(
    "", "$argon2id$v=19$m=19456,t=2,p=1$c2FyaXQgbm9ib2R5IQ$wZ8b2pJtBv7N3Yyq3r8bqWm0T4w8yQe0s2Fq4b1o0dE"
)


class Logins:
    """Authenticates the callers of one process."""

    def __init__(self, env: Env, users: Mapping[str, User], bearer: OidcTokens | None = None) -> None:
        self._env = env
        self._users = users
        self._bearer = bearer
        self._queue = PasswordQueue(env.threads.worker("passwords"))
        self._key = env.random.bytes(LOGIN_KEY_BYTES)
        self._right: OrderedDict[bytes, tuple[User, Caller]] = OrderedDict()
        self._wrong: OrderedDict[bytes, None] = OrderedDict()
        self._under_way: dict[bytes, asyncio.Task[Caller]] = {}
        self._own: str | None = None
        self._guesses = Guesses(by_name=True)
        # Signatures cannot be guessed, so failed tokens do not lock names: they only bound the work for each network.
        self._token_guesses = Guesses(by_name=False)
        self._repeated = RepeatedLog(_log, env.clock.monotonic)

    def __repr__(self) -> str:
        return f"<Logins of {len(self._users)} users, {len(self._right)} cached>"

    def replace_users(self, users: Mapping[str, User]) -> None:
        """Use another user file from now on, for open connections at their next call.

        Cached log-ins of users whose line is unchanged stay, so that not all passwords are checked again at once."""
        self._users = users
        for key in [key for key, (user, _) in self._right.items() if users.get(user.name) != user]:
            del self._right[key]
        self._wrong.clear()
        self._under_way.clear()
        self._guesses.forgive()

    def user_now(self, name: str, roles: frozenset[str]) -> Caller | None:
        """Return a user with the present roles; None: there is no such user any more.

        `roles`: that the user had once, which count for who logs in with tokens: of them nothing else is known."""
        if (user := self._users.get(name)) is not None:
            return Caller(name, user.roles)
        return None if self._bearer is None else Caller(name, roles)

    async def close(self) -> None:
        """End the thread that checks passwords."""
        await self._queue.close()

    def own_token(self) -> str:
        """Return the token for this process's own requests.  It never leaves the process; its bearer may do
        everything."""
        if self._own is None:
            self._own = base64.urlsafe_b64encode(self._env.random.bytes(LOGIN_KEY_BYTES)).decode()
        return self._own

    async def caller(self, authorization: str | None, peer: str) -> Caller:
        """Return the caller who sent a header.  `peer`: address and port; the limits apply to its network.

        Raises Unauthenticated, Unavailable."""
        if authorization is None:
            raise Unauthenticated("log in: this server takes no anonymous requests (user and password, or a token)")
        if len(authorization) > MAX_AUTHORIZATION_BYTES:
            raise Unauthenticated(f"the header authorization has more than {MAX_AUTHORIZATION_BYTES} bytes")
        method, _, value = authorization.partition(" ")
        if self._own is not None and hmac.compare_digest(authorization.encode(), f"Bearer {self._own}".encode()):
            return Caller(OWN_NAME, frozenset((ADMIN_ROLE,)))
        if method.lower() == "bearer" and self._bearer is not None:
            return await self._by_token(self._bearer, value.strip(), network_of_peer(peer))
        if method.lower() != "basic":
            raise Unauthenticated("this server does not take log-ins of this kind: send a user and password")
        return await self._by_password(value.strip(), network_of_peer(peer))

    async def _by_token(self, bearer: OidcTokens, token: str, network: str) -> Caller:
        now = self._env.clock.wall_ms() / 1000
        try:
            caller = bearer.known(token, now)
            if caller is None:
                made = self._begin(self._token_guesses, bearer.claimed_name(token), network, "token")
                try:
                    caller, _ = await bearer.caller(token, now)
                except Unauthenticated:
                    raise
                except BaseException:
                    self._token_guesses.take_back(made)
                    raise
                self._token_guesses.take_back(made)
            if caller.name in self._users or caller.name == OWN_NAME:
                # Refuse a token with the name of a user of the file: names at the provider may be chosen freely.
                raise Unauthenticated(f"a token cannot take the name of a user of this server: {caller.name}")
        except Unauthenticated as error:
            self._repeated.warning(("token", network), f"a token from {network} was refused: {error}")
            raise
        self._token_guesses.right(caller.name, network)
        return caller

    async def _by_password(self, value: str, network: str) -> Caller:
        pair = _decode_basic(value)
        key = blake2b(pair, key=self._key, digest_size=LOGIN_KEY_BYTES).digest()
        if (found := self._right.get(key)) is not None:
            self._right.move_to_end(key)
            self._guesses.right(found[1].name, network)
            return found[1]
        if key in self._wrong:
            self._wrong.move_to_end(key)
            raise self._refused(network)
        if (task := self._under_way.get(key)) is None:
            task = self._under_way[key] = asyncio.ensure_future(self._check(key, *_split_basic(pair), network))
            task.add_done_callback(ignore_outcome)
            task.add_done_callback(lambda task: self._under_way.get(key) is task and self._under_way.pop(key))
        return await shielded(task)

    async def _check(self, key: bytes, name: str, password: str, network: str) -> Caller:
        possible = is_user_name(name) and len(password.encode()) <= MAX_PASSWORD_BYTES
        made = self._begin(self._guesses, name if possible else "", network, "password")
        if not possible:
            raise self._refused(network)
        users, user = self._users, self._users.get(name)
        try:
            right = await self._queue.run(
                lambda: matches(user or _NOBODY, password), (name, network) if made.known else network, known=made.known
            )
        except BaseException:
            self._guesses.take_back(made)
            raise
        same = users is self._users  # False: the user file was replaced meanwhile
        if not right or user is None:
            if same:
                _remember(self._wrong, key, None)
            raise self._refused(network)
        self._guesses.take_back(made)
        self._guesses.right(name, network)
        caller = Caller(user.name, user.roles)
        if same:
            _remember(self._right, key, (user, caller))
        return caller

    def _begin(self, guesses: Guesses, name: str, network: str, kind: str) -> Try:
        """Count an attempt to log in.  Raises Unauthenticated: there were too many."""
        made = guesses.begin(name, network, self._env.clock.monotonic())
        if isinstance(made, Try):
            return made
        self._repeated.warning(("guesses", network), f"log-ins from {network} are refused: too many wrong {kind}s")
        raise Unauthenticated(f"too many wrong {kind}s: try again in {made:.0f} s")

    def _refused(self, network: str) -> Unauthenticated:
        self._repeated.warning(("password", network), f"a log-in from {network} was refused: {_REFUSED}")
        return Unauthenticated(_REFUSED)


def _remember(cache: OrderedDict[bytes, T], key: bytes, value: T) -> None:
    cache[key] = value
    if len(cache) > MAX_CACHED_LOGINS:
        cache.popitem(last=False)


def _decode_basic(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise Unauthenticated(_NOT_BASIC) from None


def _split_basic(pair: bytes) -> tuple[str, str]:
    try:
        name, colon, password = pair.decode().partition(":")
    except UnicodeDecodeError:
        raise Unauthenticated(_NOT_BASIC) from None
    if not colon:
        raise Unauthenticated("the header authorization has no password")
    return name, password


def basic(user: str, password: str) -> str:
    """Return the header `authorization` for a user and password."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
