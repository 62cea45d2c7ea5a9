"""The credentials and the TLS of a query: by its options, else by the environment of the driver.

The driver decides, since executors may run with another environment; Spark pickles the result for the tasks.  Options
contain no secrets, because Spark shows them in plans: they name files with secrets.
"""

from __future__ import annotations

import os
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

# Refused options, and the options to use instead.
SECRETS: Final = {"password": "passwordFile", "token": "tokenFile"}
_TLS: Final = {"SARIT_CA_FILE": "caFile", "SARIT_CERT_FILE": "certFile", "SARIT_KEY_FILE": "keyFile"}


def credentials_of(option: Callable[[str], str | None], environ: Mapping[str, str] = os.environ) -> Credentials | None:
    """Return the credentials of a query.  Raises Invalid: options contradict each other, or a file cannot be read."""
    user, password, token = (option(name) for name in ("user", "passwordFile", "tokenFile"))
    plain = allows_plain(environ)
    if token:
        if user or password:
            raise Invalid("options tokenFile and user (or passwordFile) contradict each other: give one")
        return BearerToken(TokenFile(token, "option tokenFile"), plain)
    if not user:
        if password:
            raise Invalid("option passwordFile needs option user: whose password is it?")
        return default_credentials(environ)
    if password:
        return UserPassword(user, first_line(password, "option passwordFile"), plain)
    named = {name: environ[name] for name in ("SARIT_PASSWORD", "SARIT_PASSWORD_FILE") if environ.get(name)}
    if not named:
        raise Invalid("option user needs option passwordFile, or SARIT_PASSWORD where the driver runs")
    return default_credentials({**named, "SARIT_USER": user, PLAIN_VARIABLE: environ.get(PLAIN_VARIABLE, "")})


def tls_of(option: Callable[[str], str | None], controller: str, environ: Mapping[str, str] = os.environ) -> Tls | None:
    """Return the settings of TLS if an option, the address or the environment asks for TLS."""
    named = {variable: value for variable, name in _TLS.items() if (value := option(name))}
    return default_tls(controller, {**environ, **named})
