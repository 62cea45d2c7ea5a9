"""Simulated bookies: servers that store entries of ledgers, and fail as real ones do.

A bookie takes the real bytes of a request and stores the real bytes of an entry.  It answers an add when its journal is
synced.  A crash loses what was not synced, or keeps it without an answer.  Fences are in the journal, too.  Bookies
outlive the clients, which are processes: the calls of a process that died never return.

Requests of one client to one bookie arrive in order, and so do their answers.  A connection on which nothing comes for
BOOKIE_SILENT_SECONDS although a request waits is lost, as in `sarit.log.bookkeeper.connection`; what was sent on it may
still arrive.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from dataclasses import dataclass, field
from itertools import count
from math import inf
from typing import TYPE_CHECKING, TypeVar

from sarit.core.errors import Exists, NotFound
from sarit.log.bookkeeper import metadata as codec
from sarit.log.bookkeeper import wire
from sarit.log.bookkeeper.limits import BOOKIE_SILENT_SECONDS
from sarit.log.bookkeeper.port import AddPacket, Code, EntryReply

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.coordination.port import Registers
    from sarit.log.bookkeeper.metadata import LedgerMetadata

T = TypeVar("T")

# Before the entry in an ADD: length, header, master key.
_ADD_HEAD_BYTES = 28
_FLAGS_AT = slice(4, 8)


@dataclass(slots=True)
class _Ledger:
    """What a bookie has of a ledger.  What is in its memory can be read before it is synced."""

    fenced: bool = False
    entries: dict[int, bytes] = field(default_factory=dict)
    synced: set[int] = field(default_factory=set)
    fence_synced: bool = False

    def crash(self) -> None:
        """What was not synced is gone."""
        self.entries = {entry: body for entry, body in self.entries.items() if entry in self.synced}
        self.fenced = self.fence_synced

    def sync(self, entry: int) -> None:
        """It survives a crash from now on."""
        self.synced.add(entry)

    def sync_fence(self) -> None:
        """It survives a crash from now on."""
        self.fence_synced = True


@dataclass(slots=True, eq=False)
class SimulatedBookie:
    """One bookie.  `delay()`: the seconds of each way of a request; `sync()`: those of its journal.

    Set by a test: `read_only`; `busy`, so many adds that are refused; `stopped`, requests wait for `resume`;
    `damaged`, reads answer FAILED."""

    name: str
    rng: random.Random
    read_only: bool = False
    busy: int = 0
    stopped: bool = False
    damaged: bool = False
    up: bool = True
    delay: Callable[[], float] = lambda: 0.0002
    sync: Callable[[], float] = lambda: 0.0005
    ledgers: dict[int, _Ledger] = field(default_factory=dict)
    _on_synced: Callable[[str, int, int, bytes], None] = lambda name, ledger, entry, body: None
    _life: int = 0
    _waiting: list[Callable[[], None]] = field(default_factory=list)
    # Written to the journal and not synced: what to do when it is, and when the bookie crashes.
    _unsynced: list[tuple[Callable[[], None], Callable[[], None]]] = field(default_factory=list)
    _lost: list[Callable[[], None]] = field(default_factory=list)

    def call_when_synced(self, listener: Callable[[str, int, int, bytes], None]) -> None:
        """Call `listener` with name, ledger, entry and body of each entry that is on the disk from now on."""
        self._on_synced = listener

    def crash(self) -> None:
        """The process and its page cache are gone."""
        self.up = False
        self._life += 1
        self._waiting.clear()
        unsynced, self._unsynced = self._unsynced, []
        # The disk may have written the first of them without telling anybody.
        survivors = self.rng.randint(0, len(unsynced))
        for at, (stored, _) in enumerate(unsynced):
            if at < survivors:
                stored()
        for ledger in self.ledgers.values():
            ledger.crash()
        lost, self._lost = self._lost, []
        for call in lost:
            call()

    def start(self, *, with_disk: bool = True) -> None:
        """It runs again; without its disk it has nothing."""
        self.up, self.stopped = True, False
        if not with_disk:
            self.ledgers.clear()

    def resume(self) -> None:
        """End `stopped`."""
        self.stopped = False
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()

    # -- requests --------------------------------------------------------------------------------

    def arrive(self, serve: Callable[[], None], lost: Callable[[], None]) -> None:
        """A request comes; `lost` is called when the connection breaks before it was answered."""
        if not self.up:
            lost()
            return
        self._lost.append(lost)
        if self.stopped:
            self._waiting.append(serve)
        else:
            serve()

    def answered(self, lost: Callable[[], None]) -> None:
        """The request was answered."""
        if lost in self._lost:
            self._lost.remove(lost)

    def add(self, ledger: int, entry: int, body: bytes, answer: Callable[[Code], None], *, recovery: bool) -> None:
        """Store an entry."""
        found = self.ledgers.setdefault(ledger, _Ledger())
        if self.read_only and not recovery:
            answer(Code.READ_ONLY)
        elif self.busy > 0:
            self.busy -= 1
            answer(Code.TOO_MANY_REQUESTS)
        elif found.fenced and not recovery:
            answer(Code.FENCED)
        else:
            # An entry that is there is kept, whatever the bytes.
            found.entries.setdefault(entry, body)

            def stored() -> None:
                found.sync(entry)
                self._on_synced(self.name, ledger, entry, found.entries[entry])

            def acknowledge() -> None:
                assert entry in found.synced, f"{self.name} acknowledges an entry that it has not synced"
                answer(Code.OK)

            self._journal(stored, acknowledge)

    def forget(self, ledger: int) -> None:
        """Collect a ledger whose metadata is deleted: its entries, and its fence."""
        self.ledgers.pop(ledger, None)

    def read(self, ledger: int, entry: int, answer: Callable[[EntryReply], None], *, fence: bool) -> None:
        """Read an entry, or the last one; a fence is durable before it is answered."""
        if self.damaged:
            answer(EntryReply(Code.FAILED))
            return
        found = self.ledgers.get(ledger)
        if fence:
            found = self.ledgers.setdefault(ledger, _Ledger())
            found.fenced = True
            if not found.fence_synced:
                fenced = found
                self._journal(fenced.sync_fence, lambda: answer(self._found(fenced, ledger, entry)))
                return
        answer(self._found(found, ledger, entry))

    def _found(self, found: _Ledger | None, ledger: int, entry: int) -> EntryReply:
        if found is None:
            return EntryReply(Code.NO_LEDGER)
        at = max(found.entries, default=-1) if entry == -1 else entry
        body = found.entries.get(at)
        if body is None:
            return EntryReply(Code.NO_ENTRY)
        parsed = wire.parse_entry(body, ledger, entry)
        return EntryReply(Code.OK, parsed.payload, parsed.last_add_confirmed, parsed.entry, parsed.length)

    def _journal(self, stored: Callable[[], None], synced: Callable[[], None]) -> None:
        """One journal: syncs end in the order in which they began."""
        record = (stored, synced)
        self._unsynced.append(record)
        asyncio.get_running_loop().call_later(self.sync(), self._synced, self._life, record)

    def _synced(self, life: int, record: tuple[Callable[[], None], Callable[[], None]]) -> None:
        while life == self._life and record in self._unsynced:
            stored, answer = self._unsynced.pop(0)
            stored()
            answer()


class BookieCluster:
    """Some bookies, and the ids of their ledgers.

    `cut`: pairs of names, from and to, between which nothing passes.  `seen_writable`: what clients believe to be
    registered; None: what is so."""

    def __init__(self, number: int = 3, rng: random.Random | None = None) -> None:
        rng = rng if rng is not None else random.Random(0)
        names = [f"bookie-{at}:3181" for at in range(1, number + 1)]
        self.bookies = {name: SimulatedBookie(name, random.Random(f"{rng.random()}/{name}")) for name in names}
        self.next_ledger = 1
        self.cut: set[tuple[str, str]] = set()
        self.seen_writable: frozenset[str] | None = None
        # Of the bookies: they go on while a client stands still.
        self.context = contextvars.copy_context()
        self._watches: list[_Watch] = []

    def __repr__(self) -> str:
        return f"<BookieCluster {' '.join(name for name, bookie in self.bookies.items() if bookie.up)}>"

    def __getitem__(self, at: int) -> SimulatedBookie:
        return list(self.bookies.values())[at]

    def client(self, host: str = "") -> SimulatedBookies:
        """The connections of one process; `host`: its name in `cut`."""
        return SimulatedBookies(self, host)

    def writable(self) -> frozenset[str]:
        """The bookies that run and take adds."""
        return frozenset(name for name, bookie in self.bookies.items() if bookie.up and not bookie.read_only)

    def register(self) -> None:
        """What clients see of the bookies is what is so now."""
        self.seen_writable = self.writable()
        self.changed()

    def changed(self) -> None:
        """Registrations have changed: tell the watches."""
        for watch in list(self._watches):
            watch.call()

    def watch(self, changed: Callable[[], None]) -> _Watch:
        """See `Bookies.watch`."""
        watch = _Watch(self._watches, changed)
        self._watches.append(watch)
        return watch


class _Watch:
    def __init__(self, watches: list[_Watch], changed: Callable[[], None]) -> None:
        self._watches = watches
        self._changed = changed

    def close(self) -> None:
        """See `Watch`."""
        if self in self._watches:
            self._watches.remove(self)

    def call(self) -> None:
        self._changed()


class _Connection:
    """A client's connection to a bookie.  `waiting`: what to do with each request that is lost."""

    def __init__(self) -> None:
        self.waiting: dict[int, Callable[[], None]] = {}
        self.arrives = 0.0
        self.returns = 0.0
        self.received_at = 0.0
        self.checking = False


class SimulatedBookies:
    """See `Bookies`: what one process has of the cluster.  It is made in this process."""

    def __init__(self, cluster: BookieCluster, host: str = "") -> None:
        # When its machine lost its power, in seconds of virtual time: what had not left it by then is lost.
        self.lost_from = inf
        self._cluster = cluster
        self._host = host
        self._context = contextvars.copy_context()
        self._connections: dict[str, _Connection] = {}
        self._requests = count(1)
        self._dead = False

    def die(self) -> None:
        """The process is gone: what it sent may still arrive, and nothing returns."""
        self._dead = True

    def add(self, bookie: str, ledger: int, entry: int, packet: AddPacket, done: Callable[[Code], None]) -> None:
        """See `Bookies`."""
        data = b"".join(packet.parts)
        recovery = bool(int.from_bytes(data[_FLAGS_AT]) & wire.RECOVERY_ADD)
        body = data[_ADD_HEAD_BYTES:]
        assert wire.parse_entry(body, ledger, entry), "a bookie stores what was sent, so it must be right"

        def serve(server: SimulatedBookie, answer: Callable[[Code], None]) -> None:
            server.add(ledger, entry, body, answer, recovery=recovery)

        self._request(bookie, serve, done, Code.LOST)

    def read(self, bookie: str, ledger: int, entry: int, *, fence: bool, done: Callable[[EntryReply], None]) -> None:
        """See `Bookies`."""

        def serve(server: SimulatedBookie, answer: Callable[[EntryReply], None]) -> None:
            server.read(ledger, entry, answer, fence=fence)

        self._request(bookie, serve, done, EntryReply(Code.LOST))

    def queued_bytes(self, bookie: str) -> int:
        """See `Bookies`: the network takes everything."""
        return 0

    def writable(self) -> frozenset[str]:
        """See `Bookies`."""
        seen = self._cluster.seen_writable
        return self._cluster.writable() if seen is None else seen

    def watch(self, changed: Callable[[], None]) -> _Watch:
        """See `Bookies`."""
        return self._cluster.watch(changed)

    def _request(
        self, bookie: str, serve: Callable[[SimulatedBookie, Callable[[T], None]], None], done: Callable[[T], None],
        lost: T,
    ) -> None:  # fmt: skip
        if self._dead:
            return
        loop, cluster, context = asyncio.get_running_loop(), self._cluster, self._context
        server = cluster.bookies.get(bookie)
        if server is None:
            loop.call_soon(self._answer, done, lost)
            return
        connection = self._connections.setdefault(bookie, _Connection())
        number, waiting = next(self._requests), connection.waiting

        def end(result: T) -> None:
            if waiting.pop(number, None) is not None:
                connection.received_at = loop.time()
                self._answer(done, result)

        def break_off() -> None:
            loop.call_soon(end, lost, context=context)

        def answer(result: T) -> None:
            server.answered(break_off)
            if (bookie, self._host) not in cluster.cut:
                connection.returns = max(connection.returns, loop.time() + server.delay())
                loop.call_at(connection.returns, end, result, context=context)

        def arrive() -> None:
            if (self._host, bookie) not in cluster.cut and loop.time() < self.lost_from:
                server.arrive(lambda: serve(server, answer), break_off)

        if not waiting:
            connection.received_at = loop.time()
        waiting[number] = break_off
        connection.arrives = max(connection.arrives, loop.time() + server.delay())
        loop.call_at(connection.arrives, arrive, context=cluster.context)
        if not connection.checking:
            connection.checking = True
            self._check_at(connection, loop.time() + BOOKIE_SILENT_SECONDS)

    def _check_at(self, connection: _Connection, when: float) -> None:
        asyncio.get_running_loop().call_at(when, self._check, connection, context=self._context)

    def _check(self, connection: _Connection) -> None:
        """Lose a connection that is silent."""
        now = asyncio.get_running_loop().time()
        if connection.waiting and connection.received_at <= now - BOOKIE_SILENT_SECONDS and not self._dead:
            for break_off in list(connection.waiting.values()):
                break_off()
        connection.checking = bool(connection.waiting) and not self._dead
        if connection.checking:
            self._check_at(connection, max(connection.received_at, now - 1.0) + BOOKIE_SILENT_SECONDS)

    def _answer(self, done: Callable[[T], None], result: T) -> None:
        if not self._dead:
            done(result)


class RegisterLedgerStore:
    """See `LedgerStore`: metadata in registers, with their faults."""

    def __init__(self, registers: Registers, cluster: BookieCluster) -> None:
        self._registers = registers
        self._cluster = cluster

    async def new_id(self) -> int:
        """See `LedgerStore`."""
        ledger = self._cluster.next_ledger
        self._cluster.next_ledger += 1
        return ledger

    async def create(self, metadata: LedgerMetadata, ledger: int | None = None) -> tuple[int, int]:
        """See `LedgerStore`."""
        if ledger is None:
            ledger = await self.new_id()
        try:
            return ledger, await self._registers.create(_name(ledger), codec.encode(metadata))
        except Exists:
            # The answer to an earlier attempt was lost; nobody else has this id.
            found, version = await self.get(ledger)
            assert found.ctoken == metadata.ctoken, ledger
            return ledger, version

    async def get(self, ledger: int) -> tuple[LedgerMetadata, int]:
        """See `LedgerStore`."""
        found = await self._registers.get(_name(ledger))
        if found is None:
            raise NotFound(f"there is no ledger {ledger}")
        return codec.decode(found.value), found.version

    async def set(self, ledger: int, metadata: LedgerMetadata, expected: int) -> int:
        """See `LedgerStore`."""
        return await self._registers.set(_name(ledger), codec.encode(metadata), expected)

    async def delete(self, ledger: int, expected: int | None = None) -> None:
        """See `LedgerStore`."""
        if expected is None:
            _, expected = await self.get(ledger)
        await self._registers.delete(_name(ledger), expected)


def _name(ledger: int) -> str:
    return f"ledgers/{ledger}"


__all__ = ["BookieCluster", "RegisterLedgerStore", "SimulatedBookie", "SimulatedBookies"]
