"""The credentials and the TLS of a query: by its options, else by the environment of the driver.

The driver decides, since executors may run with another environment; Spark pickles the result for the tasks.  Options
contain no secrets, because Spark shows them in plans: they name files with secrets.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.client.core.login import (
    PLAIN_VARIABLE,
    BearerToken,
    Credentials,
    Tls,
    TokenFile,
    UserPassword,
    allows_plain,
    default_credentials,
    default_tls,
    first_line,
)
from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class LoginNames:
    """The names of the options of a log-in, and the prefix of its environment variables."""

    user: str
    password_file: str
    token_file: str
    variables: str


NODE_LOGIN: Final = LoginNames("user", "passwordFile", "tokenFile", "SARIT_")
REGISTRY_LOGIN: Final = LoginNames(
    "schemaRegistryUser", "schemaRegistryPasswordFile", "schemaRegistryTokenFile", "SARIT_REGISTRY_"
)

# Refused options: the options and the environment variables to use instead.
SECRETS: Final = {
    "password": (NODE_LOGIN.password_file, "SARIT_PASSWORD"),
    "token": (NODE_LOGIN.token_file, "SARIT_TOKEN"),
    "schemaRegistryPassword": (REGISTRY_LOGIN.password_file, "SARIT_REGISTRY_PASSWORD"),
    "schemaRegistryToken": (REGISTRY_LOGIN.token_file, "SARIT_REGISTRY_TOKEN"),
}
_TLS: Final = {"SARIT_CA_FILE": "caFile", "SARIT_CERT_FILE": "certFile", "SARIT_KEY_FILE": "keyFile"}


def credentials_of(
    option: Callable[[str], str | None], environ: Mapping[str, str] = os.environ, names: LoginNames = NODE_LOGIN
) -> Credentials | None:
    """Return the credentials of a query.  Raises Invalid: options contradict each other, or a file cannot be read."""
    user, password, token = (option(name) for name in (names.user, names.password_file, names.token_file))
    plain = allows_plain(environ)
    if token:
        if user or password:
            raise Invalid(
                f"options {names.token_file} and {names.user} (or {names.password_file}) contradict each other: "
                "give one"
            )
        return BearerToken(TokenFile(token, f"option {names.token_file}"), plain)
    if not user:
        if password:
            raise Invalid(f"option {names.password_file} needs option {names.user}: whose password is it?")
        return default_credentials(environ, names.variables)
    if password:
        return UserPassword(user, first_line(password, f"option {names.password_file}"), plain)
    variables = [f"{names.variables}{name}" for name in ("PASSWORD", "PASSWORD_FILE")]
    named = {name: environ[name] for name in variables if environ.get(name)}
    if not named:
        raise Invalid(
            f"option {names.user} needs option {names.password_file}, or {variables[0]} where the driver runs"
        )
    user_named = {f"{names.variables}USER": user, PLAIN_VARIABLE: environ.get(PLAIN_VARIABLE, "")}
    return default_credentials({**named, **user_named}, names.variables)


def tls_of(option: Callable[[str], str | None], controller: str, environ: Mapping[str, str] = os.environ) -> Tls | None:
    """Return the settings of TLS if an option, the address or the environment asks for TLS."""
    named = {variable: value for variable, name in _TLS.items() if (value := option(name))}
    return default_tls(controller, {**environ, **named})


def ca_file_of(option: Callable[[str], str | None], environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the CA of the registry's certificate; None: the CAs of the system."""
    return option("schemaRegistryCaFile") or environ.get("SARIT_REGISTRY_CA_FILE") or None
