"""The bookies of a cluster over the network (`Bookies`), as registered in ZooKeeper; each is connected when used."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from sarit.core.errors import Corrupt, SaritError
from sarit.log.bookkeeper.connection import BookieLink
from sarit.log.bookkeeper.digest import OUR_DIGEST, OUR_MASTER_KEY, EntryDigest
from sarit.log.bookkeeper.limits import BOOKIE_POLL_SECONDS
from sarit.log.bookkeeper.metadata import LEDGERS_ROOT
from sarit.log.bookkeeper.port import Code, EntryReply
from sarit.log.bookkeeper.wire import ADD, READ, Response, parse_entry, read_request
from sarit.wire.frames import Window

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.coordination.port import Watch
    from sarit.env.ports import Env
    from sarit.log.bookkeeper.port import AddPacket

log = logging.getLogger(__name__)

_SHOWN_ID: Final = 200
_READ_ONLY: Final = "readonly"
_NONE: Final[frozenset[str]] = frozenset()


class Registrations(Protocol):
    """The calls that this module needs of `coordination.zookeeper.ZooKeeper`."""

    async def children(self, path: str) -> list[str]:
        """Return the names directly below a node.  Raises Unavailable."""

    def watch_children(self, path: str, changed: Callable[[], None]) -> Watch:
        """Call `changed` after a child was created or deleted; a call may be lost with a connection."""


class _Watch:
    """A caller of `NetworkBookies.watch`."""

    def __init__(self, watches: set[_Watch], changed: Callable[[], None]) -> None:
        self._watches = watches
        self.changed = changed
        watches.add(self)

    def close(self) -> None:
        """End the calls of `changed`."""
        self._watches.discard(self)


def address_of(bookie: str) -> tuple[str, int] | None:
    """Return host and port of a bookie id; None for an id of another form."""
    host, _, port = bookie.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        return None
    return host.removeprefix("[").removesuffix("]"), int(port)


class NetworkBookies:
    """Bookies over the network.  All calls come from the event loop's thread."""

    def __init__(
        self, env: Env, registrations: Registrations, root: str = LEDGERS_ROOT, *,
        digest: EntryDigest = OUR_DIGEST, key: bytes = OUR_MASTER_KEY,
    ) -> None:  # fmt: skip
        """`digest`, `key`: the digest and master key of the ledgers to read, if other clients than Sarit wrote them."""
        self._env = env
        self._registrations = registrations
        self._available = f"{root}/available"
        self._digest = digest
        self._key = key
        self._window = Window()
        self._links: dict[str, BookieLink | None] = {}
        self._writable = _NONE
        self._read_only = _NONE
        self._watches: set[_Watch] = set()
        self._changed = asyncio.Event()
        self._zookeeper_watches: list[Watch] = []
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<NetworkBookies {len(self._writable)} writable, {len(self._read_only)} read-only>"

    async def start(self) -> None:
        """Read which bookies are registered, and follow the changes.  Raises Unavailable."""
        for path in (self._available, f"{self._available}/{_READ_ONLY}"):
            self._zookeeper_watches.append(self._registrations.watch_children(path, self._changed.set))
        try:
            await self._refresh()
        except BaseException:
            self._close_watches()
            raise
        self._task = asyncio.get_running_loop().create_task(self._follow(), name="bookies")

    async def close(self) -> None:
        """End all connections; every request is answered when this returns."""
        self._close_watches()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        for link in self._links.values():
            if link is not None:
                await link.close()

    # -- the port ---------------------------------------------------------------------------------

    def add(self, bookie: str, ledger: int, entry: int, packet: AddPacket, done: Callable[[Code], None]) -> None:
        """Store an entry on a bookie."""
        link = self._link(bookie)
        if link is None:
            asyncio.get_running_loop().call_soon(done, Code.LOST)
            return
        link.request(
            ADD, ledger, entry, packet.parts, packet.size,
            lambda response: done(Code.LOST if response is None else response.code),
        )  # fmt: skip

    def read(self, bookie: str, ledger: int, entry: int, *, fence: bool, done: Callable[[EntryReply], None]) -> None:
        """Read an entry of a bookie; entry -1: the last one that this bookie has."""
        link = self._link(bookie)
        if link is None:
            asyncio.get_running_loop().call_soon(done, EntryReply(Code.LOST))
            return
        frame = read_request(ledger, entry, fence=fence, key=self._key)
        link.request(
            READ, ledger, entry, (frame,), len(frame),
            lambda response: done(self._reply(bookie, ledger, entry, response)),
        )  # fmt: skip

    def queued_bytes(self, bookie: str) -> int:
        """Return the bytes of requests that the socket of a bookie has not taken yet."""
        link = self._links.get(bookie)
        return 0 if link is None else link.queued_bytes

    def writable(self) -> frozenset[str]:
        """Return the bookies that are registered read-write, by the last snapshot."""
        return self._writable

    def read_only(self) -> frozenset[str]:
        """Return the bookies that are registered read-only, by the last snapshot."""
        return self._read_only

    def watch(self, changed: Callable[[], None]) -> Watch:
        """Call `changed` on the event loop after `writable` has changed."""
        return _Watch(self._watches, changed)

    # -- requests ---------------------------------------------------------------------------------

    def _link(self, bookie: str) -> BookieLink | None:
        if bookie in self._links:
            return self._links[bookie]
        address = address_of(bookie)
        link = None
        if address is None:
            log.warning("the bookie id %s is not HOST:PORT: this bookie cannot be reached", ascii(bookie)[:_SHOWN_ID])
        else:
            env = self._env
            network = env.plain_network or env.network  # bookies have no certificate of ours
            link = BookieLink(f"bookie {bookie}", address, network, env.clock, env.random, self._window)
        self._links[bookie] = link
        return link

    def _reply(self, bookie: str, ledger: int, entry: int, response: Response | None) -> EntryReply:
        if response is None:
            return EntryReply(Code.LOST)
        if response.code is not Code.OK:
            return EntryReply(response.code)
        try:
            found = parse_entry(response.body, ledger, entry, self._digest)
        except Corrupt as error:
            log.error("bookie %s: %s", bookie, error)
            return EntryReply(Code.FAILED)
        return EntryReply(Code.OK, found.payload, found.last_add_confirmed, found.entry, found.length)

    # -- who is registered -------------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(BOOKIE_POLL_SECONDS):
                    await self._changed.wait()
            try:
                await self._refresh()
            except SaritError as error:
                # Keep the last snapshot: connections show which bookies live.
                log.info("the list of bookies could not be read from ZooKeeper; the last one stays in use: %s", error)

    async def _refresh(self) -> None:
        self._changed.clear()
        writable = frozenset(await self._registrations.children(self._available)) - {_READ_ONLY}
        self._read_only = frozenset(await self._registrations.children(f"{self._available}/{_READ_ONLY}"))
        before, self._writable = self._writable, writable
        if before == writable:
            return
        log.info("bookies registered read-write: %s", ", ".join(sorted(writable)) or "none")
        for watch in list(self._watches):
            try:
                watch.changed()
            except Exception:  # go on with the other watches
                log.exception("a watch of the bookies failed")

    def _close_watches(self) -> None:
        for watch in self._zookeeper_watches:
            watch.close()
        self._zookeeper_watches.clear()
