"""The clients of the schema registry that a command asks, which logs in as the environment or the context says."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypedDict

from sarit.client.core.login import BearerToken, UserPassword, default_credentials
from sarit.serializers.registry_client import RegistryClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.serializers.pravega_registry import PravegaRegistry


class _Login(TypedDict):
    user: str | None
    password: str | None
    token: str | Callable[[], str] | None
    ca: str | None


def open_registry(url: str) -> RegistryClient:
    """Return a client of Confluent's API; it connects with its first call.

    Raises Invalid: the log-in contradicts itself, or the password would be sent to another machine in clear text."""
    return RegistryClient(url, **_login())


def open_pravega_registry(url: str) -> PravegaRegistry:
    """Return a client of Pravega's API at the same address.  Raises as `open_registry`."""
    from sarit.serializers.pravega_registry import PravegaRegistry

    return PravegaRegistry(url, **_login())


def _login() -> _Login:
    found = default_credentials()
    user, password = (found.user, found.password) if isinstance(found, UserPassword) else (None, None)
    token = found.token if isinstance(found, BearerToken) else None
    return {"user": user, "password": password, "token": token, "ca": os.environ.get("SARIT_CA_FILE") or None}
