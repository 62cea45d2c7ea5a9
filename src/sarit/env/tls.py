"""TLS contexts made from files, and errors that say what is wrong with the files."""

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
    """PEM files: our certificate (with those between it and its CA), its key, and the CAs that must have signed the
    certificates of peers.

    `ca`: None: a client uses the CAs of the system, a server asks clients for no certificate."""

    certificate: str | None = None
    key: str | None = None
    ca: str | None = None


class ServerTls:
    """The TLS contexts of all listeners of a process; a new connection uses the newest ones.

    `signed_by`: a file with the CA that must have signed our certificate.  Raises Invalid when a file is missing or
    damaged, or does not belong to the others."""

    def __init__(self, files: TlsFiles, signed_by: str | None = None) -> None:
        self._files = files
        self._signed_by = signed_by
        self._seen = self._times()
        self.context, self.http_context = self._contexts()

    def __repr__(self) -> str:
        return f"<ServerTls of {self._files.certificate}>"

    def reload(self) -> bool:
        """Read the files again if they have changed; open connections keep their certificates.

        Returns whether they were read.  Raises Invalid; the old contexts stay in force then."""
        seen = self._times()
        if seen == self._seen:
            return False
        self.context, self.http_context = self._contexts()
        self._seen = seen
        return True

    def _contexts(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        made = _server_context(self._files)
        # Does not offer HTTP/2 on the port of REST, console and metrics: clients would choose it.
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
    # Allows only ciphers with forward secrecy and authenticated encryption; TLS 1.3 has no others.
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")
    context.set_alpn_protocols(protocols)
    _load(context, files)
    return context


def _load(context: ssl.SSLContext, files: TlsFiles) -> None:
    if files.certificate is None:
        raise Invalid("TLS needs a certificate and its key: make some for trials with `sarit tls dev-ca`")
    try:
        # Without this function OpenSSL would ask for the password of an encrypted key on the terminal.
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
    """Check that peers will accept our certificate: valid now, and signed by the CA.  Raises Invalid.

    Python's `ssl` does not show our own certificate, so this makes handshakes with ourselves, in memory."""
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
    """Make a handshake of a client and a server in memory.  Raises SSLCertVerificationError."""
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
