"""TLS: contexts from files, and what is wrong with these."""

from __future__ import annotations

import os
import ssl
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    """The contexts of all listeners of a process: each new connection uses those of now.

    `signed_by`: a file with the CA that must have signed the certificate.  Raises Invalid: a file is missing, damaged,
    or does not fit."""

    def __init__(self, files: TlsFiles, signed_by: str | None = None) -> None:
        self._files = files
        self._signed_by = signed_by
        self._seen = self._times()
        self.context, self.http_context = self._contexts()

    def __repr__(self) -> str:
        return f"<ServerTls of {self._files.certificate}>"

    def reload(self) -> bool:
        """Use the files again if they have changed; connections that are open keep what they have.

        Whether they were read.  Raises Invalid, and then the old ones stay in force."""
        seen = self._times()
        if seen == self._seen:
            return False
        self.context, self.http_context = self._contexts()
        self._seen = seen
        return True

    def _contexts(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        made = _server_context(self._files)
        # No HTTP/2 on the port of REST, console and metrics: clients would choose it.
        http = _server_context(self._files, [_HTTP1])
        _check_certificate(self._files, self._signed_by)
        return made, http

    def _times(self) -> tuple[tuple[int, int] | None, ...]:
        files = self._files
        return tuple(map(_time, (files.certificate, files.key, files.ca, self._signed_by)))


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the TLS context of a client.  Raises Invalid."""
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


def _check_certificate(files: TlsFiles, signed_by: str | None) -> None:
    """Raises Invalid for a certificate that others would refuse: expired, not valid yet, signed by another.

    Python's `ssl` does not show a certificate of our own: handshakes with ourselves, in memory, do."""
    assert files.certificate is not None
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_cert_chain(files.certificate, files.key, password=lambda: b"")
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    theirs.check_hostname = False
    theirs.load_verify_locations(files.certificate)
    theirs.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # whoever signed it
    try:
        _meet(theirs, ours)
    except ssl.SSLCertVerificationError as error:
        raise Invalid(f"certificate {files.certificate} cannot be used: {error.verify_message}") from None
    if signed_by is None:
        return
    others = client_context(TlsFiles(files.certificate, files.key, signed_by))
    others.check_hostname = False
    try:
        _meet(others, ours)
    except ssl.SSLCertVerificationError as error:
        raise Invalid(
            f"--tls-ca {signed_by} did not sign the certificate {files.certificate} of --tls-cert "
            f"({error.verify_message}): name the CA that did, and put the certificates between them into --tls-cert"
        ) from None
    if files.ca is not None:
        try:
            _meet(others, _server_context(files))
        except ssl.SSLCertVerificationError as error:
            raise Invalid(
                f"certificate {files.certificate} is not one for clients, too ({error.verify_message}), and with "
                "--tls-client-certs processes of an installation show it to each other: make one for both"
            ) from None


def _meet(theirs: ssl.SSLContext, ours: ssl.SSLContext) -> None:
    """A handshake of a client and a server in memory.  Raises SSLCertVerificationError."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client, server = theirs.wrap_bio(down, up), ours.wrap_bio(up, down, server_side=True)
    for side in (client, server, client, server):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()


def _time(path: str | None) -> tuple[int, int] | None:
    with suppress(OSError):
        if path is not None:
            found = os.stat(path)
            return found.st_mtime_ns, found.st_ino
    return None
