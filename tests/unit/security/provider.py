"""An identity provider: keys, what it publishes of them, and tokens."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER = "https://login.example.com/realms/one"
AUDIENCE = "sarit"
NOW = 1_700_000_000
_KINDS: dict[str, Any] = {"RS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}


@cache
def private_key(algorithm: str, number: int = 0) -> Any:
    """A key; the same for the same arguments."""
    if algorithm == "RS256":
        return rsa.generate_private_key(65537, 2048 + 8 * number)
    return ec.generate_private_key(ec.SECP256R1()) if algorithm == "ES256" else ed25519.Ed25519PrivateKey.generate()


def published(algorithm: str, number: int = 0, **more: Any) -> dict[str, Any]:
    """The public part, as a JWK named ALGORITHM-NUMBER."""
    found = json.loads(_KINDS[algorithm].to_jwk(private_key(algorithm, number).public_key()))
    return {**found, "kid": f"{algorithm}-{number}", "use": "sig", "alg": algorithm, **more}


def document(*keys: dict[str, Any]) -> bytes:
    """A JWK set."""
    return json.dumps({"keys": list(keys)}).encode()


def claims(**more: Any) -> dict[str, Any]:
    """Those of a good token at NOW; a value of None leaves a claim out."""
    found = {"iss": ISSUER, "aud": AUDIENCE, "sub": "carol", "exp": NOW + 300, "iat": NOW, "roles": ["analyst"], **more}
    return {name: value for name, value in found.items() if value is not None}


def token(algorithm: str = "ES256", number: int = 0, headers: dict[str, Any] | None = None, **more: Any) -> str:
    """A token by a key, with claims changed."""
    named = {"kid": f"{algorithm}-{number}"} if headers is None else headers
    return jwt.encode(claims(**more), private_key(algorithm, number), algorithm, headers=named)
