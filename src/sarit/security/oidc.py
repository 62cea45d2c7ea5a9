"""Verifies tokens of an identity provider (OpenID Connect): JWTs that it signs with keys that it publishes.

A token must be signed by a published key with that key's algorithm, be of the issuer and for the audience that the
operator has set, be valid now, and name a user.  Verified tokens are cached until they expire; refused ones, in a cache
of their own, for OIDC_REFUSED_SECONDS or until the keys change.

*Keys.*  Keys are in a file, or in a document at a URL: the one that is set, or the one that the issuer names under
`/.well-known/openid-configuration`.  They are fetched when the first token arrives, when they are older than
OIDC_REFRESH_SECONDS, and when a token names an unknown key, which may be new.  Concurrent calls share one fetch, and
fetches are at least OIDC_FETCH_INTERVAL_SECONDS apart, so that tokens with invented keys do not load the provider.  If
a fetch fails, the old keys stay in force, and an error is logged.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from sarit.core.bounded_json import parse_json
from sarit.core.errors import Invalid, SaritError, Unauthenticated, Unavailable
from sarit.core.repeated_log import RepeatedLog
from sarit.env.background import shielded
from sarit.env.https import check_url, fetch
from sarit.security.jwks import ALGORITHMS, PublicKeys, parse_keys
from sarit.security.limits import (
    LOGIN_KEY_BYTES,
    MAX_CACHED_LOGINS,
    MAX_OIDC_DOCUMENT_BYTES,
    MAX_OIDC_ROLES,
    OIDC_FETCH_INTERVAL_SECONDS,
    OIDC_FETCH_SECONDS,
    OIDC_LEEWAY_SECONDS,
    OIDC_REFRESH_SECONDS,
    OIDC_REFUSED_SECONDS,
)
from sarit.security.permissions import ADMIN_ROLE, Caller
from sarit.security.users import is_user_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sarit.env.ports import Env

_log = logging.getLogger("sarit.security")

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
_DISCOVERY: Final = "/.well-known/openid-configuration"


@dataclass(frozen=True, slots=True)
class OidcConfig:
    """The settings of an identity provider.

    `keys`: the URL or the file of the provider's keys; None: the URL that the issuer names.  `ca`: the file of the CA
    of its server's certificate; None: the system's CAs.  `name_claim`: the claim with the name of the user.
    `roles_claim`: the claim with roles or groups, by its path (`realm_access.roles`).  `roles`: (name in the token, our
    role)."""

    issuer: str
    audience: str
    keys: str | None = None
    ca: str | None = None
    name_claim: str = "sub"
    roles_claim: str = "roles"
    roles: tuple[tuple[str, str], ...] = ()

    @property
    def keys_file(self) -> str | None:
        """The file of the provider's keys; None: they are at a URL."""
        return None if self.keys is None or _SCHEME.match(self.keys) else self.keys

    def check(self) -> None:
        """Check the settings.  Raises Invalid."""
        if not self.audience:
            raise Invalid("--oidc-audience is empty: without it, tokens for any other service would open this one")
        try:
            if self.keys is None:
                check_url(self.issuer)
        except Invalid as error:
            raise Invalid(f"--oidc-issuer: {error}; or name the keys by --oidc-keys") from None
        try:
            if self.keys is not None and self.keys_file is None:
                check_url(self.keys)
        except Invalid as error:
            raise Invalid(f"--oidc-keys: {error}") from None
        for option, claim in (("--oidc-name-claim", self.name_claim), ("--oidc-roles-claim", self.roles_claim)):
            if not all(claim.split(".")):
                raise Invalid(f"{option} {claim!r} is not a claim: write its name, or a path as realm_access.roles")
        for theirs, ours in self.roles:
            if not theirs or not is_user_name(ours):
                raise Invalid(f"--oidc-roles {theirs}={ours}: write NAME=ROLE, as data-team=analyst")


def role_pairs(text: str) -> tuple[tuple[str, str], ...]:
    """Parse `NAME=ROLE;NAME=ROLE`.  NAME may contain `=`, as names in directories (LDAP) do."""
    parts = (part.strip().rpartition("=") for part in text.split(";") if part.strip())
    return tuple((theirs, ours) for theirs, _, ours in parts)


class OidcTokens:
    """Verifies the tokens of one identity provider.  `read`: returns the document at a URL or in a file; blocks, raises
    SaritError."""

    def __init__(self, env: Env, config: OidcConfig, read: Callable[[str], bytes] | None = None) -> None:
        self._env = env
        self._config = config
        self._read = read or self._read_really
        self._worker = env.threads.worker("provider-keys")
        self._key = env.random.bytes(LOGIN_KEY_BYTES)
        self._keys = PublicKeys()
        self._fetched: float | None = None  # when the last fetch that succeeded began
        self._tried: float | None = None  # when the last fetch began
        self._fetch: asyncio.Task[None] | None = None
        self._cached: OrderedDict[bytes, tuple[Caller, float]] = OrderedDict()
        self._refused: OrderedDict[bytes, tuple[str, float]] = OrderedDict()  # (reason, until when)
        self._repeated = RepeatedLog(_log, env.clock.monotonic)

    def __repr__(self) -> str:
        return f"<OidcTokens of {self._config.issuer}, {len(self._keys)} keys, {len(self._cached)} cached>"

    def start(self) -> None:
        """Fetch the keys in the background, so that the first token need not wait, and an error is logged early."""
        self._begin_fetch()

    async def close(self) -> None:
        """Cancel a fetch in progress, and end the thread."""
        if self._fetch is not None:
            self._fetch.cancel()
            await asyncio.gather(self._fetch, return_exceptions=True)
        await self._worker.close()

    def use(self, keys: PublicKeys) -> None:
        """Verify tokens by these keys from now on; tokens signed by a removed key are refused."""
        if not keys.same_as(self._keys):
            self._cached.clear()
            self._refused.clear()
            _log.info("the identity provider %s has %d keys", self._config.issuer, len(keys))
        self._keys = keys

    def known(self, token: str, now: float) -> Caller | None:
        """Return the caller of a token that was verified before; None: it was not.  Raises Unauthenticated: it was
        refused a moment ago."""
        index = self._index(token)
        if (refused := self._refused.get(index)) is not None:
            if self._env.clock.monotonic() < refused[1]:
                raise Unauthenticated(refused[0])
            del self._refused[index]
        if (found := self._cached.get(index)) is not None:
            if now < found[1]:
                self._cached.move_to_end(index)
                self._refresh_if_old()
                return found[0]
            del self._cached[index]
        return None

    def claimed_name(self, token: str) -> str:
        """Return the unverified user name in a token; empty: there is none that a user can have."""
        try:
            payload = token.split(".")[1]
            claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        except (IndexError, ValueError, RecursionError):
            return ""
        name = _claim(claims, self._config.name_claim) if isinstance(claims, dict) else None
        return name if isinstance(name, str) and is_user_name(name) else ""

    async def caller(self, token: str, now: float) -> tuple[Caller, float]:
        """Verify a token.  Returns its caller, and until when it is valid.  Raises Unauthenticated, Unavailable."""
        if self._fetched is None:
            await self._fetch_if_due()
            if not len(self._keys):
                raise Unavailable("the keys of the identity provider are not known yet: try again")
        self._refresh_if_old()
        index = self._index(token)
        try:
            made = caller_of(await self._verified(token), self._config, now)
        except Unauthenticated as error:
            self._refused[index] = str(error), self._env.clock.monotonic() + OIDC_REFUSED_SECONDS
            if len(self._refused) > MAX_CACHED_LOGINS:
                self._refused.popitem(last=False)
            raise
        self._cached[index] = made
        if len(self._cached) > MAX_CACHED_LOGINS:
            self._cached.popitem(last=False)
        return made

    def _index(self, token: str) -> bytes:
        return blake2b(token.encode(), key=self._key, digest_size=LOGIN_KEY_BYTES).digest()

    def _refresh_if_old(self) -> None:
        """Begin a fetch in the background if the keys are old."""
        if self._fetched is not None and self._env.clock.monotonic() - self._fetched >= OIDC_REFRESH_SECONDS:
            self._begin_fetch()

    async def _verified(self, token: str) -> Mapping[str, Any]:
        import jwt

        try:
            header = jwt.get_unverified_header(token)
        except (jwt.InvalidTokenError, ValueError, RecursionError):
            raise Unauthenticated("the token is not a JWT") from None
        algorithm, name = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise Unauthenticated(f"the token is not signed by one of {', '.join(sorted(ALGORITHMS))}")
        if "crit" in header or not isinstance(name, str | None):
            raise Unauthenticated("the token has a header that this server does not know")
        key = self._keys.find(name, algorithm)
        if key is None:
            await self._fetch_if_due()
            key = self._keys.find(name, algorithm)
        if key is None:
            raise Unauthenticated("the token is signed by a key that its issuer does not publish")
        try:
            # PyJWT must not check times: `caller_of` does, by the clock of the environment.
            claims: Mapping[str, Any] = jwt.decode(
                token, key.key, algorithms=[key.algorithm], audience=self._config.audience, issuer=self._config.issuer,
                options={"verify_exp": False, "verify_iat": False, "verify_nbf": False, "require": ["exp"]},
            )  # fmt: skip
        except (jwt.InvalidTokenError, ValueError, RecursionError) as error:
            raise Unauthenticated(f"the token is refused: {error}") from None
        return claims

    # -- keys -----------------------------------------------------------------------------------

    async def _fetch_if_due(self) -> None:
        """Wait for the fetch in progress, or for a new one if the last one is long enough ago."""
        self._begin_fetch()
        if self._fetch is not None:
            await shielded(self._fetch)  # a caller that gives up must not cancel it for the others

    def _begin_fetch(self) -> None:
        now = self._env.clock.monotonic()
        if self._fetch is None and (self._tried is None or now - self._tried >= OIDC_FETCH_INTERVAL_SECONDS):
            self._tried = now
            self._fetch = asyncio.ensure_future(self._fetch_keys(now))

    async def _fetch_keys(self, now: float) -> None:
        try:
            self.use(await self._worker.run(self._current_keys))
        except (SaritError, OSError) as error:
            stay = f"the {len(self._keys)} known keys stay in force" if len(self._keys) else "none is known"
            self._repeated.error("keys", f"the keys of the identity provider cannot be read, and {stay}: {error}")
        else:
            self._fetched = now
            self._repeated.ended("keys")
        finally:
            self._fetch = None

    def _current_keys(self) -> PublicKeys:
        where = self._config.keys
        if where is None:
            url = self._config.issuer.rstrip("/") + _DISCOVERY
            where = keys_url(self._read(url), self._config.issuer, url)
        return parse_keys(self._read(where), where)

    def _read_really(self, where: str) -> bytes:
        if self._config.keys_file is not None:
            file = self._env.files.open(where, "read")
            try:
                return file.pread(MAX_OIDC_DOCUMENT_BYTES, 0)
            finally:
                file.close()
        return fetch(where, self._config.ca, OIDC_FETCH_SECONDS, MAX_OIDC_DOCUMENT_BYTES, self._env.clock.monotonic)


def keys_url(document: bytes, issuer: str, url: str) -> str:
    """Return the URL of the keys from an issuer's configuration document at `url`.  Raises Invalid."""
    try:
        found = parse_json(document)
        said, keys = found["issuer"], found["jwks_uri"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Invalid(f"{url} does not describe an issuer: no JSON object with `issuer` and `jwks_uri`") from None
    if said != issuer:
        raise Invalid(f"{url} is of the issuer {said!r}, and not of {issuer!r}: they must be the same to the letter")
    if not isinstance(keys, str):
        raise Invalid(f"{url}: `jwks_uri` is not a URL")
    check_url(keys)
    return keys


def caller_of(claims: Mapping[str, Any], config: OidcConfig, now: float) -> tuple[Caller, float]:
    """Return the caller that verified claims name, and until when they are valid.  Raises Unauthenticated."""
    expires, begins = claims["exp"], claims.get("nbf", 0)
    if not _is_time(expires) or not _is_time(begins):
        raise Unauthenticated("the token has a time that is not a number")
    if expires + OIDC_LEEWAY_SECONDS <= now:
        raise Unauthenticated("the token has expired")
    if begins - OIDC_LEEWAY_SECONDS > now:
        raise Unauthenticated("the token is not valid yet")
    name = _claim(claims, config.name_claim)
    if not isinstance(name, str) or not is_user_name(name):
        raise Unauthenticated(f"the token has no name of a user in the claim {config.name_claim!r}")
    return Caller(name, _roles(_claim(claims, config.roles_claim), dict(config.roles))), expires + OIDC_LEEWAY_SECONDS


def _roles(found: Any, mapped: Mapping[str, str]) -> frozenset[str]:
    # The claim may be one role, an array of roles, or roles with spaces between, as some providers write them.
    names = found.split() if isinstance(found, str) and found not in mapped else [found]
    if isinstance(found, list):
        names = found[:MAX_OIDC_ROLES]
    roles = set()
    for name in names:
        if not isinstance(name, str):
            continue
        if name in mapped:
            roles.add(mapped[name])
        elif is_user_name(name) and name != ADMIN_ROLE:
            # The provider's role `admin` does not count here: only --oidc-roles makes administrators of this node.
            roles.add(name)
    return frozenset(roles)


def _claim(claims: Mapping[str, Any], path: str) -> Any:
    """Return the claim named `path`, or else the nested claim at that path."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1 << 40
