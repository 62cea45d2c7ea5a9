"""What the values of options may be."""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from typing import TYPE_CHECKING

import click

from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.process.addresses import Advertised


class Memory(click.ParamType[int]):
    """A number of bytes, as 512M, 2G, 1536MiB or 2147483648."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the bytes; see `click.ParamType`."""
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"(\d+)(?:([KMGT])(?:i?B)?|B)?", str(value).strip(), re.IGNORECASE | re.ASCII)
        if found is None:
            self.fail(f"{value!r} is not a size: write it as 512M, 2G, or in bytes", param, ctx)
        number, unit = found.groups()
        return int(number) << (10 * (" KMGT".index(unit.upper()) if unit else 0))


class Processes(click.ParamType[int]):
    """A number of processes, or `auto`, which is 0 here."""

    name = "number"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number; see `click.ParamType`."""
        text = str(value).strip()
        if text == "auto":
            return 0
        if not (text.isascii() and text.isdecimal()) or int(text) < 1:
            self.fail(f"{text!r} is not a number of processes: give 1 or more, or auto", param, ctx)
        return int(text)


class Text(click.ParamType[str]):
    """Text that is checked by a function, which raises Invalid.

    `check` is given by a function that imports it: commands start without the modules of a node."""

    name = "text"

    def __init__(self, check: Callable[[], Callable[[str], object]]) -> None:
        self._check = check

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text as it is; see `click.ParamType`."""
        text = str(value)
        try:
            self._check()(text)
        except Invalid as error:
            self.fail(str(error), param, ctx)
        return text


class Host(click.ParamType[str]):
    """The name or the address of a machine, without a port."""

    name = "host"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text as it is; see `click.ParamType`."""
        text = str(value)
        # Empty: every address.
        if not re.fullmatch(r"[A-Za-z0-9._-]*", text) and not _is_ipv6(text):
            self.fail(f"{text!r} is no name or address of a machine: write it without a port, as 10.0.0.7", param, ctx)
        return text


class Advertise(click.ParamType["Advertised | None"]):
    """The address that clients connect to: a host, and the ports that are mapped to those of the process.

    `ports`: how many may follow the host."""

    name = "address"

    def __init__(self, ports: int) -> None:
        self._ports = ports

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Advertised | None:
        """Host and ports; None for an empty text; see `click.ParamType`."""
        from sarit.process.addresses import Advertised

        if isinstance(value, Advertised):
            return value
        text = str(value)
        if not text:
            return None
        if _is_ipv6(text):
            return Advertised(text)
        found = re.fullmatch(r"(?:\[([^]]*)\]|([A-Za-z0-9._-]+))((?::[0-9]{1,5})*)", text, re.ASCII)
        ports = [int(port) for port in found[3].split(":")[1:]] if found is not None else []
        wrong = found is None or (found[1] is not None and not _is_ipv6(found[1]))
        if found is None or wrong or len(ports) > self._ports or not all(0 < port < 65536 for port in ports):
            form = "HOST:PORT" if self._ports == 1 else "HOST:CONTROLLER or HOST:CONTROLLER:STORE"
            self.fail(
                f"{text!r} is no address: write HOST, or {form} where the ports are mapped to others (1 to 65535; an "
                "IPv6 address in brackets)", param, ctx,
            )  # fmt: skip
        return Advertised(found[1] or found[2], *ports)


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


class Line(click.ParamType[str]):
    """One line of text that is not empty; what it means is checked where it is used."""

    name = "text"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text as it is; see `click.ParamType`."""
        text = str(value)
        if not text or not text.isprintable():
            self.fail(f"{text!r} is not one line of text", param, ctx)
        return text


class Name(click.ParamType[str]):
    """A name for a store or a machine."""

    name = "name"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text as it is; see `click.ParamType`."""
        text = str(value)
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", text):
            self.fail(f"{text!r} is no name: write letters, digits, '.', '_' and '-'", param, ctx)
        return text


def _cluster_check() -> Callable[[str], object]:
    from sarit.cluster.settings import parse_cluster

    return parse_cluster


def _log_check() -> Callable[[str], object]:
    from sarit.process.places.bookkeeper_logs import parse_log_url

    return parse_log_url


def _storage_check() -> Callable[[str], object]:
    from sarit.storage.open import check_storage_url

    return check_storage_url


def _s3_check() -> Callable[[str], object]:
    from sarit.storage.open import parse_s3

    return parse_s3


def _cluster_log_check() -> Callable[[str], object]:
    from sarit.cluster.settings import check_log_url

    return check_log_url


def _cluster_index_check() -> Callable[[str], object]:
    from sarit.cluster.settings import check_index_url

    return check_index_url


def _cluster_storage_check() -> Callable[[str], object]:
    from sarit.cluster.settings import check_cluster_storage

    return check_cluster_storage


CLUSTER_URL = Text(_cluster_check)
BOOKKEEPER_URL = Text(_log_check)
STORAGE_URL = Text(_storage_check)
S3_URL = Text(_s3_check)
# Of a cluster, whose stores may share directories.
CLUSTER_LOG_URL = Text(_cluster_log_check)
CLUSTER_INDEX_URL = Text(_cluster_index_check)
CLUSTER_STORAGE_URL = Text(_cluster_storage_check)


class HttpPort(click.ParamType[int]):
    """A port, or `off`, which is -1 here: click takes None for an option that was not given."""

    name = "port"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the port; see `click.ParamType`."""
        text = str(value).strip()
        if text in ("off", "-1"):
            return -1
        if not (text.isascii() and text.isdecimal()) or int(text) > 65535:
            self.fail(f"{text!r} is not a port: give 0 to 65535 (0 picks a free one), or off", param, ctx)
        return int(text)
