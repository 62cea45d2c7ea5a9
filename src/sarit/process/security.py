"""Security of one process: its files are read at the start, and again when they change.

The files are the settings `SecurityConfig`: certificates, users, token keys.  What cannot be used refuses the start.
What cannot be used later leaves the old in force, with an error in the log.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid
from sarit.core.extras import require
from sarit.core.repeated_log import RepeatedLog
from sarit.env.rotating_file import RotatingFile
from sarit.env.small_files import read_secret, read_small_file, read_unwritten
from sarit.process.limits import (
    AUDIT_FILE_BYTES,
    AUDIT_FILES_KEPT,
    DEFAULT_TOKEN_SECONDS,
    MIN_TOKEN_SECONDS,
    SECURITY_FILES_INTERVAL_SECONDS,
)
from sarit.security.audit import Audit, AuditLog, NoAudit
from sarit.security.oidc import OidcConfig, OidcTokens
from sarit.security.tokens import TokenKeys, parse_keys
from sarit.security.users import User, parse_users

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from sarit.client.core.login import Tls
    from sarit.controller.access import Access
    from sarit.env.ports import Env
    from sarit.env.tls import ServerTls
    from sarit.security.login import Logins
    from sarit.store.server.access import TokenChecks

_log = logging.getLogger("sarit.security")

_OF_OTHERS: Final = 0o007


@dataclass(frozen=True, slots=True)
class SecurityConfig:
    """The settings of security; paths of files.

    `certificate`, `key`: TLS on every port.  `ca`: who signed the certificates of this installation; None is what the
    system trusts.  `client_certificates`: clients need a certificate from `ca`, too.  `check_names`: other processes of
    this installation must show a certificate for the host at which they are reached, too.
    `users`, `oidc`: who may log in; with either, and `token_keys`, every request is checked.
    `token_seconds`: how long a token is valid.
    `audit`: the file of decisions.  `console`: on, read-only or off.  `open_metrics`: metrics and health for
    who does not log in, too.  `http_names`: more names under which the HTTP port may be asked.
    `plain_passwords`: log-ins without TLS are taken from other machines, too."""

    certificate: str | None = None
    key: str | None = None
    ca: str | None = None
    client_certificates: bool = False
    check_names: bool = False
    users: str | None = None
    oidc: OidcConfig | None = None
    token_keys: str | None = None
    token_seconds: int = DEFAULT_TOKEN_SECONDS
    audit: str | None = None
    console: str = "on"
    open_metrics: bool = False
    http_names: tuple[str, ...] = ()
    plain_passwords: bool = False

    def check(self) -> None:
        """Raises Invalid for settings that contradict each other."""
        if (self.certificate is None) != (self.key is None):
            raise Invalid("--tls-cert and --tls-key belong together: give both, or neither")
        if self.ca is not None and self.certificate is None:
            raise Invalid("--tls-ca needs TLS: give --tls-cert and --tls-key, too")
        if self.check_names and self.certificate is None:
            raise Invalid("--tls-check-names needs TLS: give --tls-cert and --tls-key, too")
        if self.client_certificates and self.ca is None:
            raise Invalid("--tls-client-certs needs --tls-ca: the CA that the certificates of clients must be from")
        if self.oidc is not None:
            self.oidc.check()
            if self.token_keys is None:
                raise Invalid("--oidc-issuer needs --token-keys: stores serve clients by tokens that these sign")
        elif (self.users is None) != (self.token_keys is None):
            raise Invalid("--users (or --oidc-issuer) and --token-keys belong together: give both, or neither")
        if self.audit is not None and self.token_keys is None:
            raise Invalid("--audit-log needs --users and --token-keys: without them nobody is asked who they are")
        if self.token_seconds < MIN_TOKEN_SECONDS:
            raise Invalid(f"--token-ttl {self.token_seconds}: the least is {MIN_TOKEN_SECONDS} s")


class Security:
    """The parts of security that a process needs.  Raises Invalid, OSError: a file cannot be used."""

    def __init__(self, config: SecurityConfig) -> None:
        config.check()
        self.config = config
        self.server_tls = _server_tls(config)
        self._users = _read_users(config.users) if config.users is not None else {}
        self._keys = _read_keys(config.token_keys) if config.token_keys is not None else None
        if config.oidc is not None:
            _check_provider(config.oidc)
        self._seen = _stamp(config.users), _stamp(config.token_keys)
        self._access: Access | None = None
        self._logins: Logins | None = None
        self._provider: OidcTokens | None = None
        self._task: asyncio.Task[None] | None = None
        self._repeated: RepeatedLog | None = None  # once it follows the files
        self._audit: AuditLog | None = None
        self._client_context: ssl.SSLContext | None = None  # towards processes of this installation
        self._own_context: ssl.SSLContext | None = None  # towards this process

    def __repr__(self) -> str:
        return f"<Security, {'TLS' if self.server_tls else 'no TLS'}, {len(self._users)} users>"

    def client_tls(self) -> Callable[[], ssl.SSLContext] | None:
        """For connections to other processes of this installation: gives the context of now."""
        if self.server_tls is None:
            return None
        if self._client_context is None:
            self._client_context = _context_for_others(self.config)

        def now() -> ssl.SSLContext:
            assert self._client_context is not None
            return self._client_context

        return now

    def start(self, env: Env) -> None:
        """Follow changes of the files."""
        self._repeated = RepeatedLog(_log, env.clock.monotonic)
        self._task = asyncio.ensure_future(self._follow())
        if self._provider is not None:
            self._provider.start()

    async def stop(self) -> None:
        """Stop the file watcher and the log-in cache."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._logins is not None:
            await self._logins.close()
        if self._provider is not None:
            await self._provider.close()
        if self._audit is not None:
            await self._audit.close()

    def logins(self, env: Env) -> Logins | None:
        """Return the log-ins of the process, for gRPC and HTTP; None where nobody logs in."""
        if self._keys is None:
            return None
        if self._logins is None:
            from sarit.security.login import Logins

            if self.config.oidc is not None:
                self._provider = OidcTokens(env, self.config.oidc)
            self._logins = Logins(env, self._users, self._provider)
        return self._logins

    def own_tls(self) -> Tls | None:
        """For a client of this process that talks to its own controller; None without TLS."""
        if self.server_tls is None:
            return None
        from sarit.client.core.login import Tls

        if self._own_context is None:
            self._own_context = _context_for_processes(self.config)
            self._trust_own_certificate()
        return Tls(ssl_context=self._own_context)

    def _trust_own_certificate(self) -> None:
        """Trust the process's own certificate, whoever signed it."""
        import ssl

        context, certificate = self._own_context, self.config.certificate
        assert context is not None
        assert certificate is not None
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(certificate)
        context.load_cert_chain(certificate, self.config.key, password=lambda: b"")

    def access(self, env: Env) -> Access | None:
        """For a controller; None where everybody may do everything."""
        if self._keys is None:
            return None
        from sarit.controller.access import Access

        logins = self.logins(env)
        assert logins is not None
        self._access = Access(env, logins, self._current_keys, self.config.token_seconds, self.audit(env))
        return self._access

    def checks(self, env: Env) -> Callable[[str], TokenChecks] | None:
        """For a store; None where no token is asked for."""
        if self._keys is None:
            return None
        from sarit.store.server.access import TokenChecks

        audit = self.audit(env)
        return lambda peer: TokenChecks(self._current_keys, env.clock, audit, peer)

    def audit(self, env: Env) -> Audit:
        """Return the audit log of the process, or one that notes nothing."""
        if self.config.audit is None:
            return NoAudit()
        if self._audit is None:
            self._audit = AuditLog(env, _audit_file(self.config.audit))
        return self._audit

    def _current_keys(self) -> TokenKeys:
        assert self._keys is not None
        return self._keys

    def reload(self) -> list[str]:
        """Read what has changed; what it was.  Raises Invalid, OSError: that file stays as it was."""
        changed = []
        if self.server_tls is not None and self.server_tls.reload():
            if self._client_context is not None:
                self._client_context = _context_for_others(self.config)
            if self._own_context is not None:
                self._trust_own_certificate()  # in place: clients that exist have it
            changed.append("certificates")
        users, keys = _stamp(self.config.users), _stamp(self.config.token_keys)
        if self.config.users is not None and users != self._seen[0]:
            self._users = _read_users(self.config.users)
            if self._logins is not None:
                self._logins.replace_users(self._users)
            self._seen = users, self._seen[1]
            changed.append("users")
        if self.config.token_keys is not None and keys != self._seen[1]:
            self._keys = _read_keys(self.config.token_keys)
            self._seen = self._seen[0], keys
            changed.append("token keys")
        return changed

    def follow(self) -> None:
        """Take over what has changed in the files, once they are followed; one that cannot be used is logged."""
        if self._repeated is None:
            return
        try:
            changed = self.reload()
        except (Invalid, OSError) as error:
            self._repeated.error("files", f"a changed file cannot be used, the old one stays in force: {error}")
        else:
            self._repeated.ended("files")
            if changed:
                _log.info("security files have changed and were loaded again: %s", ", ".join(changed))

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(SECURITY_FILES_INTERVAL_SECONDS)
            self.follow()
            if self._audit is not None:
                self._audit.tick()


def _server_tls(config: SecurityConfig) -> ServerTls | None:
    if config.certificate is None:
        return None
    from sarit.env.tls import ServerTls, TlsFiles

    with suppress(OSError):
        if config.key is not None and os.stat(config.key).st_mode & _OF_OTHERS:
            _log.warning("%s can be read by every user of this machine: chmod 640 %s", config.key, config.key)
    files = TlsFiles(config.certificate, config.key, config.ca if config.client_certificates else None)
    return ServerTls(files, signed_by=config.ca)


def _context_for_processes(config: SecurityConfig) -> ssl.SSLContext:
    from sarit.env.tls import TlsFiles, client_context

    context = client_context(TlsFiles(config.certificate, config.key, config.ca))
    # Processes of an installation are reached at addresses that their certificates need not name; the CA and the
    # installation's secret prove who they are.
    context.check_hostname = False
    return context


def _context_for_others(config: SecurityConfig) -> ssl.SSLContext:
    context = _context_for_processes(config)
    context.check_hostname = config.check_names
    return context


def _check_provider(config: OidcConfig) -> None:
    """Check of an identity provider what can be known before its server is asked.  Raises Invalid."""
    require("tls", "--oidc-issuer")
    from sarit.security.jwks import parse_keys as parse_public_keys

    if config.ca is not None:
        read_small_file(config.ca, "--oidc-ca")
    if config.keys_file is not None:
        data = read_unwritten(config.keys_file, "--oidc-keys", "who could make tokens")
        parse_public_keys(data, config.keys_file)


def _read_users(path: str) -> dict[str, User]:
    text = read_unwritten(path, "--users", "who could log in as anybody").decode(errors="replace")
    users = parse_users(text, path)
    if not users:
        _log.warning("%s has no users: nobody may log in with a password; add one with `sarit user add`", path)
    return users


def _read_keys(path: str) -> TokenKeys:
    data = read_secret(path, "--token-keys", "who could make tokens")
    try:
        return TokenKeys(parse_keys(data))
    except Invalid as error:
        raise Invalid(f"{path}: {error}") from None


def _stamp(path: str | None) -> tuple[int, int] | None:
    if path is None:
        return None
    with suppress(OSError):
        found = os.stat(path)
        return found.st_mtime_ns, found.st_ino
    return None


def _audit_file(path: str) -> RotatingFile:
    try:
        return RotatingFile(path, AUDIT_FILE_BYTES, AUDIT_FILES_KEPT)
    except OSError as error:
        raise Invalid(f"the audit log cannot be written: {error.strerror}: {path}") from None
