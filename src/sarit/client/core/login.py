"""How a client proves who it is, and checks who the server is: given to `connect`, or by environment variables.

SARIT_USER, SARIT_PASSWORD     a user of the server's file (or SARIT_PASSWORD_FILE: the first line of that file)
SARIT_TOKEN                    a token of an identity provider (or SARIT_TOKEN_FILE, read again for every call)
SARIT_CA_FILE                  TLS: the CA of the server's certificate, in PEM; the system's CAs without it
SARIT_CERT_FILE, SARIT_KEY_FILE  TLS: our own certificate, for a server that asks for one
SARIT_PLAIN_PASSWORDS          1: send passwords and tokens without TLS to other machines, too
"""

from __future__ import annotations

import base64
import ipaddress
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from sarit.core.errors import Invalid
from sarit.core.public import public
from sarit.env.small_files import read_small_file

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Mapping

# For users whose connection without TLS ended before anything came.
MAYBE_TLS: Final = "if it asks for TLS, put tls:// before the controller's address, and name its CA with SARIT_CA_FILE"
TLS_SCHEMES: Final = ("tls", "pravegas")
PLAIN_VARIABLE: Final = "SARIT_PLAIN_PASSWORDS"
_YES: Final = frozenset(("1", "true", "yes", "on"))


@public
@dataclass(frozen=True, slots=True)
class UserPassword:
    """A user of the server's user file.

    `plain`: the password may also be sent without TLS to another machine, where everybody on the way reads it."""

    user: str
    password: str = field(repr=False)
    plain: bool = False

    def authorization(self) -> str:
        """Return the header of each call."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


@public
@dataclass(frozen=True, slots=True)
class BearerToken:
    """A token of an identity provider; a function is asked for it before every call, and should cache it.

    `plain`: as of `UserPassword`."""

    token: str | Callable[[], str] = field(repr=False)
    plain: bool = False

    def authorization(self) -> str:
        """Return the header of each call."""
        return f"Bearer {self.token if isinstance(self.token, str) else self.token()}"


Credentials: TypeAlias = UserPassword | BearerToken
"""How a client proves who it is."""


@public
@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files; `ca_file`: None is what the system trusts.  The others: for a server that asks for a certificate.

    `ssl_context`: a context of your own, instead of files; the protocol of gRPC (ALPN h2) is your concern, too."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    ssl_context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """For the connections of a client.  Raises Invalid: a file cannot be used."""
        if self.ssl_context is not None:
            if (self.ca_file, self.cert_file, self.key_file) != (None, None, None):
                raise Invalid("Tls takes files, or an ssl_context that has them: give one of both")
            return self.ssl_context
        from sarit.env.tls import TlsFiles, client_context

        return client_context(TlsFiles(self.cert_file, self.key_file, self.ca_file))


@dataclass(frozen=True, slots=True)
class TokenFile:
    """For `BearerToken`: the first line of a file, read for each call, so that another program may renew it."""

    path: str
    named_by: str = "SARIT_TOKEN_FILE"

    def __call__(self) -> str:
        """Return the token.  Raises Invalid: the file cannot be read."""
        return first_line(self.path, self.named_by)


def default_credentials(environ: Mapping[str, str] = os.environ, prefix: str = "SARIT_") -> Credentials | None:
    """Return the credentials that the environment gives, by variables with a prefix.  Raises Invalid: it contradicts
    itself, or a file cannot be read."""
    user, token, token_file = (environ.get(f"{prefix}{name}") for name in ("USER", "TOKEN", "TOKEN_FILE"))
    if user and (token or token_file):
        raise Invalid(f"{prefix}USER and {prefix}TOKEN are both set: unset one of them")
    plain = allows_plain(environ)
    if token:
        return BearerToken(token, plain)
    if token_file:
        return BearerToken(TokenFile(token_file, f"{prefix}TOKEN_FILE"), plain)
    if not user:
        return None
    password = environ.get(f"{prefix}PASSWORD")
    if password is None and (path := environ.get(f"{prefix}PASSWORD_FILE")):
        password = first_line(path, f"{prefix}PASSWORD_FILE")
    if password is None:
        raise Invalid(f"{prefix}USER is set without {prefix}PASSWORD or {prefix}PASSWORD_FILE")
    return UserPassword(user, password, plain)


def allows_plain(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether the environment allows log-ins in clear text."""
    return environ.get(PLAIN_VARIABLE, "").lower() in _YES


def refuse_plain(
    credentials: Credentials | None, hosts: Iterable[str], environ: Mapping[str, str] = os.environ
) -> None:
    """Refuse a log-in without TLS at one of `hosts` that is another machine.  Raises Invalid."""
    if credentials is None or credentials.plain or allows_plain(environ):
        return
    for host in hosts:
        if not is_loopback_name(host):
            what = "password" if isinstance(credentials, UserPassword) else "token"
            raise Invalid(
                f"the {what} would be sent to {host} in clear text: use TLS (tls:// before the address, and "
                f"SARIT_CA_FILE), or allow it with {PLAIN_VARIABLE}=1 or plain=True where the way there is encrypted"
            )


def is_loopback_name(host: str) -> bool:
    """Return whether a host means this machine whatever a name server says."""
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def default_tls(address: str, environ: Mapping[str, str] = os.environ) -> Tls | None:
    """TLS, if the address asks for it (`tls://`) or the environment names a CA."""
    ca = environ.get("SARIT_CA_FILE") or None
    if ca is None and address.partition("://")[0] not in TLS_SCHEMES:
        return None
    return Tls(ca, environ.get("SARIT_CERT_FILE") or None, environ.get("SARIT_KEY_FILE") or None)


def first_line(path: str, variable: str) -> str:
    """Of a file with a secret, which `variable` names.  Raises Invalid: it cannot be read."""
    try:
        return read_small_file(path, variable).partition(b"\n")[0].decode().rstrip("\r")
    except UnicodeDecodeError:
        raise Invalid(f"{variable}: the first line of {path} is not text in UTF-8") from None


def untrusted(name: str, error: ssl.SSLCertVerificationError) -> str:
    """Return the message for a user whose TLS does not accept a server."""
    return (
        f"the certificate of {name} is not accepted ({error.verify_message}): name its CA with SARIT_CA_FILE or "
        "tls=Tls(ca_file=...), and connect to a host that it is for"
    )


def no_tls(name: str, error: ssl.SSLError) -> str:
    """Return the message for a user whose TLS met something else, or was refused."""
    return (
        f"TLS with {name} failed ({error.reason or error}): if it has none, leave tls:// and SARIT_CA_FILE away; if it "
        "asks for a certificate of yours, name one with SARIT_CERT_FILE and SARIT_KEY_FILE"
    )
