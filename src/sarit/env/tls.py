"""TLS: contexts from files, servers that survive clients who never finish a handshake, certificates that are replaced.

A server knows a client only when its handshake is done: until then the connection is a `_Handshake`, of which there are
at most MAX_TLS_HANDSHAKES, each for TLS_HANDSHAKE_SECONDS.  Only then the listener behind it is asked for a connection.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Invalid
from sarit.env.limits import MAX_TLS_HANDSHAKES, TLS_HANDSHAKE_SECONDS, TLS_SHUTDOWN_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_log = logging.getLogger("sarit.security")

_HTTP2: Final = "h2"
_HTTP1: Final = "http/1.1"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: our certificate (with what leads to its CA) and its key, and the CAs that peers must have theirs from.

    `ca`: None is what the system trusts, for a client; for a server that it asks for no certificate."""

    certificate: str | None = None
    key: str | None = None
    ca: str | None = None


class ServerTls:
    """The context of all listeners of a process.  Raises Invalid: a file is missing, damaged, or does not fit."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._seen = _times(files)
        self.context = _server_context(files)
        # No HTTP/2 on the port of REST, console and metrics: clients would choose it.
        self.http_context = _server_context(files, [_HTTP1])
        _check_valid_now(files)

    def __repr__(self) -> str:
        return f"<ServerTls of {self._files.certificate}>"

    def reload(self) -> bool:
        """Use the files again if they have changed; connections that are open keep what they have.

        Whether they were read.  Raises Invalid, and then the old ones stay in force."""
        seen = _times(self._files)
        if seen == self._seen:
            return False
        _server_context(self._files)  # in full first: a pair that does not fit must change nothing
        _check_valid_now(self._files)
        _load(self.context, self._files)
        _load(self.http_context, self._files)
        self._seen = seen
        return True


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """What a client uses.  Raises Invalid."""
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=files.ca)
    except (OSError, ssl.SSLError) as error:
        raise Invalid(f"the certificates in {files.ca} cannot be read: {error}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols([_HTTP2])
    if files.certificate is not None:
        _load(context, TlsFiles(files.certificate, files.key))
    return context


def _server_context(files: TlsFiles, protocols: Sequence[str] = (_HTTP2, _HTTP1)) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    # Forward secrecy and authenticated encryption only; TLS 1.3 has nothing else.
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")
    context.set_alpn_protocols(protocols)
    _load(context, files)
    return context


def _load(context: ssl.SSLContext, files: TlsFiles) -> None:
    if files.certificate is None:
        raise Invalid("TLS needs a certificate and its key: make some for trials with `sarit tls dev-ca`")
    try:
        # An encrypted key would ask for its password on the terminal.
        context.load_cert_chain(files.certificate, files.key, password=lambda: b"")
    except FileNotFoundError as error:
        raise Invalid(f"{error.filename or files.certificate} does not exist (certificate or key of TLS)") from None
    except (OSError, ssl.SSLError) as error:
        raise Invalid(f"certificate {files.certificate} and key {files.key} cannot be used: {error}") from None
    if files.ca is not None:
        try:
            context.load_verify_locations(files.ca)
        except (OSError, ssl.SSLError) as error:
            raise Invalid(f"the certificates in {files.ca} cannot be read: {error}") from None
        context.verify_mode = ssl.CERT_REQUIRED


def _check_valid_now(files: TlsFiles) -> None:
    """Raises Invalid for a certificate that clients would refuse: expired, or not valid yet.

    Python's `ssl` does not show a certificate of our own: a handshake with ourselves, in memory, does."""
    assert files.certificate is not None
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_cert_chain(files.certificate, files.key, password=lambda: b"")
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    theirs.check_hostname = False
    theirs.load_verify_locations(files.certificate)
    theirs.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # whoever signed it
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client, server = theirs.wrap_bio(down, up), ours.wrap_bio(up, down, server_side=True)
    for side in (client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            raise Invalid(f"certificate {files.certificate} cannot be used: {error.verify_message}") from None


def _times(files: TlsFiles) -> tuple[tuple[int, int] | None, ...]:
    def time(path: str | None) -> tuple[int, int] | None:
        try:
            found = os.stat(path) if path is not None else None
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_ino) if found is not None else None

    return tuple(map(time, (files.certificate, files.key, files.ca)))


class Handshakes:
    """The connections of a process whose handshakes are under way; `seconds`: how long one may take."""

    def __init__(self, most: int = MAX_TLS_HANDSHAKES, seconds: float = TLS_HANDSHAKE_SECONDS) -> None:
        self._most = most
        self._seconds = seconds
        # In order of their begin.  Weakly: no protocol hears that its handshake failed.  The transport lets go of it
        # then, but perhaps in a cycle, which is found late: so age counts, too.
        self._begun: weakref.WeakKeyDictionary[_Handshake, float] = weakref.WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"<Handshakes, {len(self._begun)} under way>"

    def under_way(self, now: float) -> int:
        """How many, at `now` of the clock of the event loop."""
        while (oldest := next(iter(self._begun.items()), None)) is not None and now - oldest[1] >= self._seconds:
            del self._begun[oldest[0]]
        return len(self._begun)

    def before(self, factory: Callable[[], asyncio.BaseProtocol]) -> Callable[[], asyncio.BaseProtocol]:
        """A factory for a server with TLS: `factory` makes the protocol of each connection that is established."""

        def make() -> asyncio.BaseProtocol:
            now = asyncio.get_running_loop().time()
            if self.under_way(now) >= self._most:
                return _Refused()
            made = _Handshake(self, factory)
            self._begun[made] = now
            return made

        return make

    def done(self, handshake: _Handshake) -> None:
        """One was completed."""
        self._begun.pop(handshake, None)


class _Handshake(asyncio.Protocol):
    """A connection whose client has not proved that it speaks TLS."""

    __slots__ = ("__weakref__", "_all", "_factory")

    def __init__(self, handshakes: Handshakes, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self._all = handshakes
        self._factory = factory

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._all.done(self)
        protocol = self._factory()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)


class _Refused(asyncio.Protocol):
    """One too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def listening(tls: ServerTls | None, *, http: bool = False) -> dict[str, Any]:
    """Arguments of `loop.create_server` for TLS; none without.  `http`: for the port of HTTP."""
    if tls is None:
        return {}
    return {
        "ssl": tls.http_context if http else tls.context,
        "ssl_handshake_timeout": TLS_HANDSHAKE_SECONDS,
        "ssl_shutdown_timeout": TLS_SHUTDOWN_SECONDS,
    }
