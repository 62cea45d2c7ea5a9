"""Delegation tokens, which a controller gives to clients, and by which stores authorize their requests.

A token is a JWT, signed with HS512 and a key that controllers and stores share.  As in Pravega, its claims are
permissions by resource.  A resource in a token is one name, never a pattern: `*` has no meaning there.  For official
clients, the payload must decode as standard base64, too, and `exp` must be a plain number of seconds.

*Keys.*  A key file has one key a line.  The first key signs, all verify.  To change keys, add the new key as the second
line everywhere, then move it to the first, and remove the old one when its last token has expired.
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
    """Raised for an invalid token.  `expired`: the client should get a new one."""

    def __init__(self, message: str, *, expired: bool = False) -> None:
        super().__init__(message)
        self.expired = expired


@dataclass(frozen=True, slots=True)
class Grant:
    """The content of a valid token.  `expires`: in seconds since 1970.  `user`: the user who got it; empty: unknown."""

    expires: int
    permissions: Mapping[str, Permission]
    user: str = ""

    def on(self, resource: str) -> Permission:
        """Return the permission that the token grants on a resource."""
        return self.permissions.get(resource, Permission.NONE)


class TokenKeys:
    """Signs and verifies tokens.  Raises Invalid for keys that are too short."""

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
        """Return a signed token with permissions, valid for `seconds` from `now` (seconds since 1970).

        Raises Invalid for an impossible resource name, so that no token grants more than was checked."""
        import jwt

        for resource in permissions:
            if not is_literal(resource):
                raise Invalid(f"{resource[:80]!r} cannot be the name of anything: give the name of one stream or table")
        claims: dict[str, Any] = {"sub": user or SUBJECT, "aud": AUDIENCE, "iat": now, "exp": now + seconds}
        claims |= {resource: permission.name for resource, permission in permissions.items()}
        return jwt.encode(claims, self._keys[0], algorithm=ALGORITHM)

    def verify(self, token: str, now: float) -> Grant:
        """Verify a token at the time `now`.  Returns its content.  Raises TokenRefused."""
        import jwt

        for key in self._keys:
            try:
                # PyJWT must not check the expiry: `_granted` does, by the clock of the environment.
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
    """Parse a key file: one key a line, without surrounding spaces; empty lines and lines with # are skipped."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith(b"#")]
