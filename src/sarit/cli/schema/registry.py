"""The client of the schema registry that a command asks, which logs in as the environment or the context says."""

from __future__ import annotations

import os

from sarit.client.core.login import BearerToken, UserPassword, default_credentials
from sarit.serializers.registry_client import RegistryClient


def open_registry(url: str) -> RegistryClient:
    """Return a client; it connects with its first call.  Raises Invalid: the log-in contradicts itself, or the
    password would be sent to another machine in clear text."""
    credentials = default_credentials()
    ca = os.environ.get("SARIT_CA_FILE") or None
    if isinstance(credentials, UserPassword):
        return RegistryClient(url, user=credentials.user, password=credentials.password, ca=ca)
    return RegistryClient(url, token=credentials.token if isinstance(credentials, BearerToken) else None, ca=ca)
