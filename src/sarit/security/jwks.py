"""Parses the keys that an identity provider publishes (a JWK set, RFC 7517).

The algorithm follows from the key and not from the token, so that no token can make a public key be used as a secret
(HS256), or ask for no signature (`none`).  Keys of other kinds are left out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sarit.core.bounded_json import parse_json
from sarit.core.errors import Invalid
from sarit.security.limits import MAX_OIDC_KEYS, MIN_RSA_KEY_BITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# The algorithm by kind of key and curve.
_ALGORITHMS: Final = {("RSA", None): "RS256", ("EC", "P-256"): "ES256", ("OKP", "Ed25519"): "EdDSA"}
ALGORITHMS: Final = frozenset(_ALGORITHMS.values())


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that verifies signatures.  `text`: the key as published, by which keys are compared."""

    name: str | None
    algorithm: str
    key: Any
    text: str

    def __repr__(self) -> str:
        return f"<PublicKey {self.name}, {self.algorithm}>"


class PublicKeys:
    """The public keys of one provider."""

    def __init__(self, keys: Iterable[PublicKey] = ()) -> None:
        self._keys = tuple(keys)

    def __repr__(self) -> str:
        return f"<PublicKeys, {len(self._keys)}>"

    def __len__(self) -> int:
        return len(self._keys)

    def same_as(self, other: PublicKeys) -> bool:
        """Return whether both have the same keys."""
        return {key.text for key in self._keys} == {key.text for key in other._keys}

    def find(self, name: str | None, algorithm: str) -> PublicKey | None:
        """Return the key that a token names; without a name, the only key for its algorithm; None: no key fits."""
        fitting = [key for key in self._keys if key.algorithm == algorithm and name in (None, key.name)]
        return fitting[0] if len(fitting) == 1 or (fitting and name is not None) else None


def parse_keys(data: bytes, where: str) -> PublicKeys:
    """Parse the keys of a document.  `where`: its file or URL, for errors.  Raises Invalid."""
    import jwt

    try:
        found = parse_json(data)
        listed = found["keys"]
        if not isinstance(listed, list):
            raise TypeError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Invalid(f"{where} is not a JWK set: no JSON object with a list `keys`") from None
    keys = []
    for one in listed[:MAX_OIDC_KEYS]:
        if not isinstance(one, dict) or (algorithm := _algorithm(one)) is None:
            continue
        try:
            key = jwt.PyJWK(one, algorithm).key
        except (jwt.PyJWTError, ValueError, TypeError):
            continue  # one key that cannot be read must not make the others unusable
        if algorithm == "RS256" and key.key_size < MIN_RSA_KEY_BITS:
            continue
        name = one.get("kid")
        keys.append(PublicKey(name if isinstance(name, str) else None, algorithm, key, json.dumps(one, sort_keys=True)))
    if not keys:
        raise Invalid(
            f"{where} has no key that can be used: RSA of {MIN_RSA_KEY_BITS} bits (RS256), P-256 (ES256) "
            "or Ed25519 (EdDSA), for signatures"
        )
    return PublicKeys(keys)


def _algorithm(key: Mapping[str, Any]) -> str | None:
    kind = key.get("kty")
    if not isinstance(kind, str) or not isinstance(curve := key.get("crv"), str | None):
        return None
    algorithm = _ALGORITHMS.get((kind, curve))
    if algorithm is None or key.get("use", "sig") != "sig" or key.get("alg", algorithm) != algorithm:
        return None
    return None if "d" in key else algorithm  # "d": a private key, which must not be published
