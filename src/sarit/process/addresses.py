"""Addresses of a process: where it listens, what clients get, and what is refused or warned of.

Errors and warnings name the options of the command line."""

from __future__ import annotations

import errno
import ipaddress
import logging
import socket
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from sarit.core.errors import Invalid, Unavailable
from sarit.env.passed_sockets import passed_socket

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sarit.process.security import SecurityConfig

_log = logging.getLogger("sarit.process")

EVERY_ADDRESS: Final = ("", "0.0.0.0", "::")  # nosec B104


@dataclass(frozen=True, slots=True)
class Advertised:
    """The address that clients connect to instead of the one and the ports that a process listens on; None: the same
    port.

    `port`: of the controller, or the one of a process of a cluster.  `store_port`: with `processes` of the first one;
    store k has the one k above it."""

    host: str
    port: int | None = None
    store_port: int | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host and self.port is not None else self.host
        return ":".join([host, *(str(port) for port in (self.port, self.store_port) if port is not None)])


class Addressed(Protocol):
    """The settings of a process that clients reach: a node's, or those of a process of a cluster."""

    @property
    def host(self) -> str:
        """Return what it listens on."""

    @property
    def advertised(self) -> Advertised | None:
        """Return what clients get instead."""

    @property
    def security(self) -> SecurityConfig:
        """Return who may do what."""


def advertised_address(config: Addressed) -> str:
    """Return the host that clients get: an address, not a name, except for TLS.

    Certificates are for names, and official clients accept no others."""
    host = config.advertised.host if config.advertised is not None else config.host
    if host in EVERY_ADDRESS:
        host = "127.0.0.1"
    address = bound_address(host)  # called in either case, since the host must resolve
    return host if config.security.certificate is not None else address


def advertised_port(config: Addressed, port: int) -> int:
    """Return the port of a controller, or of a process of a cluster, that clients get; `port`: where it listens."""
    return (config.advertised.port if config.advertised is not None else None) or port


def internal_address(config: Addressed) -> str:
    """Return the address at which a controller reaches stores of its own machine."""
    return bound_address("127.0.0.1" if config.host in EVERY_ADDRESS else config.host)


def bound_address(host: str) -> str:
    """Return the one address of a host that the API listens on: the same as the store's, IPv4 where both exist."""
    try:
        found = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise Invalid(f"the host name {host!r} cannot be resolved: {error}") from None
    return str(min(found, key=lambda entry: entry[0] != socket.AF_INET)[4][0])


def shown_host(config: Addressed) -> str:
    """Return the host by which people and programs of this machine, or others where they may, reach a process."""
    host = config.advertised.host if config.advertised is not None else internal_address(config)
    return f"[{host}]" if ":" in host else host


def http_url(config: Addressed, port: int) -> str:
    """Return the URL of a port that speaks HTTP: that of the console, or of the schema registry."""
    scheme = "http" if config.security.certificate is None else "https"
    return f"{scheme}://{shown_host(config)}:{port}/"


def require_free_ports(config: Addressed, ports: Iterable[tuple[str, int]]) -> None:
    """Try to listen on the ports that options choose, before anything is made.  Raises Unavailable, OSError.

    `ports`: pairs of option and port; 0 is free always, and so is one that the service manager passes."""
    address = bound_address(config.host)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for option, port in ports:
        passed = passed_socket(address, port)
        if passed is not None:
            passed.close()
        elif port:
            with naming_port(option, config.host, port):
                socket.create_server((address, port), family=family).close()


def is_loopback(host: str) -> bool:
    """Tell whether only programs of this machine reach a host that is listened on."""
    if host in EVERY_ADDRESS:
        return False
    return ipaddress.ip_address(bound_address(host).partition("%")[0]).is_loopback


def refuse_plain_passwords(config: Addressed) -> None:
    """Refuse a start where passwords and tokens would cross a network in clear text.  Raises Invalid."""
    security, host = config.security, config.host
    encrypted = security.certificate is not None or security.plain_passwords
    if security.token_keys is not None and not encrypted and not is_loopback(host):
        raise Invalid(
            f"--host {host or repr(host)} with users and without TLS: passwords and tokens would cross the network in "
            "clear text; give --tls-cert and --tls-key, or --plain-passwords where something in front or below encrypts"
        )


def warn_of_addresses(config: Addressed) -> None:
    """Log that clients of other machines will not reach the node, or that all of them may do everything, if so."""
    if config.security.token_keys is None and not is_loopback(config.host):
        _log.warning(
            "--host %s without --users: whoever reaches the ports may read, change and delete everything "
            "(docs/operations/security.md)",
            config.host or "''",
        )
    if config.host in EVERY_ADDRESS and config.advertised is None:
        _log.warning(
            "--host %s without --advertise: clients get the address 127.0.0.1, so only those on this machine can write "
            "and read; name the address that others use with --advertise, as HOST:PORT where its ports are mapped",
            config.host,
        )


@contextmanager
def naming_port(option: str, host: str, port: int) -> Iterator[None]:
    """Have errors of a listener say which option chose its port.  Raises Unavailable, OSError."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Unavailable(
                f"port {port} of {host} is taken ({option}): stop the process that has it, or choose another port; "
                f"0 picks a free one"
            ) from None
        if error.errno == errno.EACCES:
            raise Unavailable(
                f"port {port} of {host} may not be used by this user ({option}): choose another"
            ) from None
        raise
