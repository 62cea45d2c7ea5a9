"""Delegation tokens: what a controller gives a client, so that a store serves it.

A token is a JWT, signed with HS512 and a key that controllers and stores share.  Its claims are those of Pravega's: for
each resource its permission.  A resource in a token is one name, never a pattern: `*` in it would be a character of a
name that nothing has.  Two things follow from how official clients read a token: its middle part must decode as
standard base64, too, and `exp` must be a plain number of seconds.

*Keys.*  A key file has one key a line.  The first signs, all verify: a new key is added as the second line everywhere,
then moved to the first, and the old one is removed when its last token has expired.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Invalid, SaritError
from sarit.security.limits import MIN_TOKEN_KEY_BYTES
from sarit.security.permissions import Permission, is_literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ALGORITHM: Final = "HS512"
AUDIENCE: Final = "segmentstore"
SUBJECT: Final = "segmentstoreresource"
_STANDARD: Final = frozenset({"sub", "aud", "iat", "exp"})


class TokenRefused(SaritError):
    """A token that opens nothing.  `expired`: a new one may."""

    def __init__(self, message: str, *, expired: bool = False) -> None:
        super().__init__(message)
        self.expired = expired


@dataclass(frozen=True, slots=True)
class Grant:
    """The content of a valid token; `expires`: seconds since 1970; `user`: whose it is, empty where it does not say."""

    expires: int
    permissions: Mapping[str, Permission]
    user: str = ""

    def on(self, resource: str) -> Permission:
        """Return the permission on exactly this resource."""
        return self.permissions.get(resource, Permission.NONE)


class TokenKeys:
    """Signs and verifies.  Raises Invalid for keys that are too short."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys:
            raise Invalid("the file of token keys has no key: write one a line, the first one signs")
        for number, key in enumerate(keys, 1):
            if len(key) < MIN_TOKEN_KEY_BYTES:
                raise Invalid(
                    f"line {number} of the token keys has {len(key)} bytes; the least is {MIN_TOKEN_KEY_BYTES}: "
                    "`openssl rand -hex 64` makes a good one"
                )
        self._keys = tuple(keys)

    def __repr__(self) -> str:
        return f"<TokenKeys, {len(self._keys)}>"

    def sign(self, permissions: Mapping[str, Permission], now: int, seconds: int, user: str = "") -> str:
        """Return a token of a user for resources, valid for `seconds` from `now` (seconds since 1970).

        Raises Invalid for a resource that nothing can be called: no token is signed that says more than was checked."""
        import jwt

        for resource in permissions:
            if not is_literal(resource):
                raise Invalid(f"{resource[:80]!r} cannot be the name of anything: give the name of one stream or table")
        claims: dict[str, Any] = {"sub": user or SUBJECT, "aud": AUDIENCE, "iat": now, "exp": now + seconds}
        claims |= {resource: permission.name for resource, permission in permissions.items()}
        return jwt.encode(claims, self._keys[0], algorithm=ALGORITHM)

    def verify(self, token: str, now: float) -> Grant:
        """Return the grant of a token at `now`.  Raises TokenRefused."""
        import jwt

        for key in self._keys:
            try:
                # Expiry is checked here, by the clock of the caller, and not by PyJWT's own.
                claims = jwt.decode(
                    token, key, algorithms=[ALGORITHM], audience=AUDIENCE,
                    options={"verify_exp": False, "verify_iat": False, "require": ["exp"]},
                )  # fmt: skip
            except jwt.InvalidSignatureError:
                continue
            except jwt.InvalidTokenError as error:
                raise TokenRefused(f"the token cannot be read: {error}") from None
            return _granted(claims, now)
        raise TokenRefused("the token was not signed by this installation")


def _granted(claims: Mapping[str, Any], now: float) -> Grant:
    expires = claims["exp"]
    if not isinstance(expires, int):
        raise TokenRefused("the token has no time of expiry")
    if expires <= now:
        raise TokenRefused("the token has expired", expired=True)
    try:
        permissions = {name: Permission[value] for name, value in claims.items() if name not in _STANDARD}
    except KeyError:
        raise TokenRefused("the token names a permission that does not exist") from None
    subject = claims.get("sub", SUBJECT)
    return Grant(expires, permissions, subject if isinstance(subject, str) and subject != SUBJECT else "")


def parse_keys(text: bytes) -> list[bytes]:
    """Return the keys in a file: one a line, without spaces around them; empty lines and lines with # are left out."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith(b"#")]
