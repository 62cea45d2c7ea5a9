"""Users, tokens and TLS on every node that a test starts: `SARIT_TEST_SECURITY=1` (`make interop-security`).

The files of the nodes, and the environment in which clients find a user and the CA, which processes that tests start
inherit: Sarit's, Pravega's Python and Rust client (`pravega_client_auth_username`, `_password`,
`pravega_client_tls_cert_path`) and its Java client (`pravega_client_auth_method`, `_token`; our programs in Java take
the CA from the variable of the others).
"""

from __future__ import annotations

import atexit
import base64
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

ON = os.environ.get("SARIT_TEST_SECURITY") == "1"
USER, PASSWORD = "admin", "a password of the tests"
CA_VARIABLE = "SARIT_CA_FILE"
# The least that there is: official clients have to renew theirs within a test.
TOKEN_SECONDS = 30


@cache
def files() -> dict[str, str]:
    """Certificates, users and token keys of this process of tests."""
    from sarit.cli.dev_ca import make_certificates
    from sarit.security.users import User, format_users, hash_password

    directory = Path(tempfile.mkdtemp(prefix="sarit-security-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    made = {name: str(path) for name, path in make_certificates(directory / "certificates", (), 2).items()}
    users, keys = directory / "users", directory / "keys"
    users.write_text(format_users([User(USER, hash_password(PASSWORD), frozenset({"admin"}))]))
    keys.write_text(os.urandom(32).hex() + "\n")
    keys.chmod(0o600)
    return {**made, "users": str(users), "token keys": str(keys)}


def options() -> list[str]:
    """What `sarit standalone` is started with."""
    found = files()
    return [
        "--tls-cert", found["server"], "--tls-key", found["server key"], "--tls-ca", found["ca"],
        "--users", found["users"], "--token-keys", found["token keys"], "--token-ttl", str(TOKEN_SECONDS),
        "--advertise", "localhost",
    ]  # fmt: skip


def server_environment() -> dict[str, str]:
    """The same for `sarit store` and `sarit controller`, by variables."""
    found = files()
    return {
        "SARIT_TLS_CERT": found["server"],
        "SARIT_TLS_KEY": found["server key"],
        "SARIT_TLS_CA": found["ca"],
        "SARIT_USERS": found["users"],
        "SARIT_TOKEN_KEYS": found["token keys"],
        "SARIT_TOKEN_TTL": str(TOKEN_SECONDS),
        "SARIT_ADVERTISE": "localhost",
    }


def client_environment(ca: str, user: str = USER, password: str = PASSWORD) -> dict[str, str]:
    """Variables in which all clients find the user and the CA."""
    return {
        CA_VARIABLE: ca,
        "SARIT_USER": user,
        "SARIT_PASSWORD": password,
        "pravega_client_auth_method": "Basic",
        "pravega_client_auth_username": user,
        "pravega_client_auth_password": password,
        "pravega_client_auth_token": base64.b64encode(f"{user}:{password}".encode()).decode(),
        "pravega_client_tls_cert_path": ca,
    }


def set_environment() -> None:
    """For the clients of this process, and of those that it starts."""
    os.environ.update(client_environment(files()["ca"]))


def official_manager(endpoint: str) -> Any:
    """A manager of the official Python client."""
    import pravega_client as pravega

    secured = CA_VARIABLE in os.environ
    return pravega.StreamManager(f"{'tls' if secured else 'tcp'}://{endpoint}", secured, secured, False)
