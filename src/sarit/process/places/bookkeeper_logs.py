"""Where a node's durable log is: its own directory, or BookKeeper.  The place as text, and its opening."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlsplit

from sarit.core.errors import Invalid, Unavailable
from sarit.log.bookkeeper.log import BookKeeperLogs
from sarit.log.bookkeeper.port import LedgerSettings
from sarit.process.limits import BOOKIES_WAIT_SECONDS, LOG_SESSION_SECONDS
from sarit.process.ownership.directory_content import LOG_FOLDER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sarit.env.ports import Env
    from sarit.log.bookkeeper.port import Bookies
    from sarit.log.port import ConfirmableLogs
    from sarit.log.statistics import LogStatistics

_log = logging.getLogger("sarit.process")

_EXAMPLE: Final = "bookkeeper://zk1:2181,zk2:2181/ledgers?e=3&w=3&a=2"
_SIZES: Final = {"e": "ensemble_size", "w": "write_quorum", "a": "ack_quorum"}


@dataclass(frozen=True, slots=True)
class BookKeeperPlace:
    """`hosts`: of ZooKeeper.  `root`: the path of the ledgers' metadata there."""

    hosts: str
    root: str = "/ledgers"
    settings: LedgerSettings = field(default_factory=LedgerSettings)

    @property
    def name(self) -> str:
        """The part of the place that a data directory records: servers of ZooKeeper may change."""
        return f"bookkeeper:{self.root}"


def log_name(url: str | None) -> str:
    """Return what the description of a data directory says of its log."""
    return LOG_FOLDER if url is None else parse_log_url(url).name


def parse_log_url(url: str) -> BookKeeperPlace:
    """Return the place that `--log` names.  Raises Invalid, which says what is wrong."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise Invalid(f"--log {url}: {error}; write it as {_EXAMPLE}") from None
    if parts.scheme != "bookkeeper" or not parts.netloc or parts.fragment or "@" in parts.netloc:
        raise Invalid(f"--log {url} is no place for a log: write it as {_EXAMPLE}")
    for host in parts.netloc.split(","):
        name, _, port = host.rpartition(":") if ":" in host else (host, "", "2181")
        if not name or not port.isdigit() or not 0 < int(port) < 1 << 16:
            raise Invalid(f"--log {url}: {host!r} is no server of ZooKeeper; write it as {_EXAMPLE}")
    root = parts.path.rstrip("/") or "/ledgers"
    if "//" in root:
        raise Invalid(f"--log {url}: {root!r} is no path in ZooKeeper; write it as {_EXAMPLE}")
    sizes: dict[str, int] = {}
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        if key not in _SIZES or not value.isdigit():
            raise Invalid(f"--log {url}: {key}={value} is unknown; known are e, w and a, with a number; see {_EXAMPLE}")
        sizes[_SIZES[key]] = int(value)
    try:
        settings = LedgerSettings(**sizes)
    except Invalid as error:
        raise Invalid(f"--log {url}: {error}") from None
    return BookKeeperPlace(parts.netloc, root, settings)


@asynccontextmanager
async def open_bookkeeper_logs(
    url: str, env: Env, node: str, statistics: LogStatistics | None = None
) -> AsyncIterator[ConfirmableLogs]:
    """Open the durable logs of the node with this id in a place, for the length of the block.

    Raises Invalid when there is no BookKeeper or sarit[cluster] is not installed; Unavailable when nothing answers, or
    when there are still too few bookies after BOOKIES_WAIT_SECONDS."""
    from sarit.coordination.zookeeper import ZooKeeper
    from sarit.coordination.zookeeper_ports import ZooKeeperRegisters
    from sarit.log.bookkeeper.bookies import NetworkBookies
    from sarit.log.bookkeeper.ledger_store import ZooKeeperLedgers

    place = parse_log_url(url)
    zookeeper = await ZooKeeper.connect(place.hosts, LOG_SESSION_SECONDS, env)
    try:
        ledgers = ZooKeeperLedgers(zookeeper, place.root)
        await ledgers.check_layout()
        bookies = NetworkBookies(env, zookeeper, place.root)
        await bookies.start()
        try:
            await _wait_for_bookies(place, bookies)
            # The node's id is in the path: no two nodes share a chain, but copies of one data directory.
            registers = ZooKeeperRegisters(zookeeper, f"/sarit/{node}")
            yield BookKeeperLogs(env, bookies, ledgers, registers, place.settings, statistics)
        finally:
            await bookies.close()
    finally:
        await zookeeper.close()


async def _wait_for_bookies(place: BookKeeperPlace, bookies: Bookies) -> None:
    """Return when there are enough for an acknowledgement: after a power cut everything starts at once.

    Raises Unavailable after BOOKIES_WAIT_SECONDS."""
    needed = place.settings.ack_quorum
    if len(bookies.writable()) < needed:
        _log.warning(
            "%d bookies are registered as writable at %s%s, and an entry needs %d: waiting for more, %.0f s at most",
            len(bookies.writable()), place.hosts, place.root, needed, BOOKIES_WAIT_SECONDS,
        )  # fmt: skip
        changed = asyncio.Event()
        watch = bookies.watch(changed.set)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(BOOKIES_WAIT_SECONDS):
                    while len(bookies.writable()) < needed:
                        changed.clear()
                        await changed.wait()
        finally:
            watch.close()
    _require_bookies(place, len(bookies.writable()))


def _require_bookies(place: BookKeeperPlace, writable: int) -> None:
    settings = place.settings
    if writable < settings.ack_quorum:
        raise Unavailable(
            f"{writable} bookies are registered as writable at {place.hosts}{place.root}, and an entry needs "
            f"{settings.ack_quorum}: start more of them, or check the path"
        )
    if writable < settings.ensemble_size:
        _log.warning(
            "%d bookies are registered as writable, and a ledger has %d: entries have fewer copies",
            writable, settings.ensemble_size,
        )  # fmt: skip


__all__ = ["BookKeeperPlace", "open_bookkeeper_logs", "parse_log_url"]
