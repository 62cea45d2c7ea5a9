"""A coordination service in memory: for several stores in one process, for tests and for the simulation.

`MemoryCoordination` is the service; it outlives its clients.  `CoordinationFaults` injects the faults of real services:
calls that take time, are refused, or take effect and report a failure; clients that are cut off; watches that fire late
or never.  A lease ends when the service has received no heartbeat for its length, whatever the member believes.
"""

from __future__ import annotations

import asyncio
import contextvars
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from sarit.coordination.limits import STORE_HEARTBEATS_PER_LEASE, STORE_LEASE_MARGIN_SECONDS, STORE_LEASE_SECONDS
from sarit.coordination.port import MemberState, Versioned
from sarit.core.errors import Conflict, Exists, NotFound, SaritError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sarit.env.ports import Clock

T = TypeVar("T")


def _never() -> float:
    return 0.0


def _no_fault() -> str:
    return ""


@dataclass(slots=True)
class CoordinationFaults:
    """Faults, set by a test or drawn by the simulation; none by default.

    `delay()`: the seconds that a request or a reply takes.  `fault()`: "" (none), "refused" (no effect) or "applied"
    (the call takes effect and reports a failure).  `watch_delay()`: the seconds until a watch is called; None: it is
    not called.  `cut_off`: names of clients whose calls do not arrive.  `unavailable`: no calls arrive."""

    delay: Callable[[], float] = _never
    fault: Callable[[], str] = _no_fault
    watch_delay: Callable[[], float | None] = _never
    cut_off: set[str] = field(default_factory=set)
    unavailable: bool = False


@dataclass(slots=True, eq=False)
class _Session:
    """One membership as the service knows it."""

    folder: str
    member: str
    value: bytes
    expiry: asyncio.TimerHandle | None = None
    ended: bool = False


class MemoryCoordination:
    """A coordination service in memory."""

    def __init__(self, faults: CoordinationFaults | None = None, lease_seconds: float = STORE_LEASE_SECONDS) -> None:
        self.faults = faults if faults is not None else CoordinationFaults()
        self.lease_seconds = lease_seconds
        self._registers: dict[str, Versioned] = {}
        self._members: dict[str, dict[str, _Session]] = {}
        self._watches: dict[str, list[MemoryWatch]] = {}
        self._versions = 0
        # Timers run in the service's own context, so that a lease ends although its member's process is suspended.
        self._context = contextvars.copy_context()

    def __repr__(self) -> str:
        members = sum(map(len, self._members.values()))
        return f"<MemoryCoordination {len(self._registers)} registers, {members} members>"

    def client(self, name: str, clock: Clock) -> MemoryClient:
        """Return the connection of one process to the service."""
        return MemoryClient(self, name, clock)

    def expire(self, folder: str, member: str) -> None:
        """End a member's lease now."""
        session = self._members.get(folder, {}).get(member)
        if session is not None:
            self.end(session)

    def run(self, effect: Callable[[MemoryCoordination], T]) -> T:
        """Run a call of a client in the service."""
        return self._context.run(effect, self)

    # -- registers: called by the clients --------------------------------------------------------

    def get(self, name: str) -> Versioned | None:
        return self._registers.get(name)

    def create(self, name: str, value: bytes) -> int:
        if name in self._registers:
            raise Exists(f"the register {name} exists")
        return self._store(name, value)

    def set(self, name: str, value: bytes, expected: int) -> int:
        self._require(name, expected)
        return self._store(name, value)

    def delete(self, name: str, expected: int) -> None:
        self._require(name, expected)
        del self._registers[name]
        self._notify(name)

    def children(self, name: str) -> list[str]:
        under = f"{name}/"
        return sorted({key.removeprefix(under).partition("/")[0] for key in self._registers if key.startswith(under)})

    def _require(self, name: str, expected: int) -> None:
        found = self._registers.get(name)
        if found is None:
            raise NotFound(f"there is no register {name}")
        if found.version != expected:
            raise Conflict(f"the register {name} was changed", expected=expected, actual=found.version)

    def _store(self, name: str, value: bytes) -> int:
        # All registers share one counter of versions, so that a recreated register never has an old version.
        self._versions += 1
        self._registers[name] = Versioned(bytes(value), self._versions)
        self._notify(name)
        return self._versions

    # -- members: called by the clients ----------------------------------------------------------

    def join(self, folder: str, member: str, value: bytes) -> _Session:
        before = self._members.setdefault(folder, {}).get(member)
        if before is not None:
            self.end(before)
        session = self._members[folder][member] = _Session(folder, member, value)
        self.renew(session)
        self._notify(folder)
        return session

    def members(self, folder: str) -> dict[str, bytes]:
        return {member: session.value for member, session in sorted(self._members.get(folder, {}).items())}

    def update(self, session: _Session, value: bytes) -> None:
        if session.ended:
            raise NotFound(f"the lease of {session.member} has ended")
        session.value = value
        self._notify(session.folder)

    def renew(self, session: _Session) -> bool:
        """Receive a heartbeat.  Returns False if the lease has ended."""
        if session.ended:
            return False
        if session.expiry is not None:
            session.expiry.cancel()
        session.expiry = asyncio.get_running_loop().call_later(self.lease_seconds, self.end, session)
        return True

    def end(self, session: _Session) -> None:
        """End a member's session."""
        if session.ended:
            return
        session.ended = True
        if session.expiry is not None:
            session.expiry.cancel()
        del self._members[session.folder][session.member]
        self._notify(session.folder)

    # -- watches ---------------------------------------------------------------------------------

    def watch(self, name: str, watch: MemoryWatch) -> None:
        """Add a watch."""
        self._watches.setdefault(name, []).append(watch)

    def _notify(self, name: str) -> None:
        watches = self._watches[name] = [watch for watch in self._watches.get(name, ()) if not watch.closed]
        for watch in watches:
            delay = self.faults.watch_delay()
            if delay is not None and watch.client not in self.faults.cut_off:
                asyncio.get_running_loop().call_later(delay, watch.call)


class MemoryWatch:
    """A watch of a register in memory."""

    def __init__(self, client: str, changed: Callable[[], None]) -> None:
        self.client = client
        self.closed = False
        self._changed = changed

    def close(self) -> None:
        self.closed = True

    def call(self) -> None:
        """Call the watch, unless it is closed."""
        if not self.closed:
            self._changed()


class MemoryClient:
    """One process's connection to the service, and its `Registers`."""

    def __init__(self, service: MemoryCoordination, name: str, clock: Clock) -> None:
        self.name = name
        self.clock = clock
        self.lease_seconds = service.lease_seconds
        self._service = service
        self._dead = False
        self._watches: list[MemoryWatch] = []

    def __repr__(self) -> str:
        return f"<MemoryClient {self.name} of {self._service!r}>"

    def members(self, folder: str) -> MemoryMembers:
        """Return the members of one kind."""
        return MemoryMembers(self, folder)

    async def get(self, name: str) -> Versioned | None:
        return await self.call(lambda service: service.get(name))

    async def create(self, name: str, value: bytes) -> int:
        return await self.call(lambda service: service.create(name, value))

    async def set(self, name: str, value: bytes, expected: int) -> int:
        return await self.call(lambda service: service.set(name, value, expected))

    async def delete(self, name: str, expected: int) -> None:
        await self.call(lambda service: service.delete(name, expected))

    async def children(self, name: str) -> list[str]:
        return await self.call(lambda service: service.children(name))

    def watch(self, name: str, changed: Callable[[], None]) -> MemoryWatch:
        watch = MemoryWatch(self.name, changed)
        self._watches = [known for known in self._watches if not known.closed]
        self._watches.append(watch)
        self._service.watch(name, watch)
        return watch

    def die(self) -> None:
        """Behave as if the process died: its calls do not arrive any more, and its watches are not called."""
        self._dead = True
        for watch in self._watches:
            watch.close()

    async def call(self, effect: Callable[[MemoryCoordination], T]) -> T:
        """Run `effect` at the service, with its faults.  Raises Unavailable."""
        faults = self._service.faults
        self._check()
        await _pause(faults.delay())
        self._check()
        fault = faults.fault()
        if fault == "refused":
            raise Unavailable("coordination refused the call")
        try:
            result = self._service.run(effect)
        except SaritError:
            await self._answer(fault)
            raise
        await self._answer(fault)
        return result

    async def _answer(self, fault: str) -> None:
        await _pause(self._service.faults.delay())
        # If the client is cut off now, the call took effect, but its reply is lost.
        self._check()
        if fault == "applied":
            raise Unavailable("coordination reported a failure")

    def _check(self) -> None:
        if self._dead:
            raise Unavailable("the process is dead")
        if self._service.faults.unavailable or self.name in self._service.faults.cut_off:
            raise Unavailable("coordination cannot be reached")


async def _pause(seconds: float) -> None:
    if seconds > 0:
        await asyncio.sleep(seconds)


class MemoryMembers:
    """The members of the service in memory."""

    def __init__(self, client: MemoryClient, folder: str) -> None:
        self._client = client
        self._folder = folder

    async def join(self, member: str, value: bytes, on_state: Callable[[MemberState], None]) -> MemoryMembership:
        sent = self._client.clock.monotonic()
        session = await self._client.call(lambda service: service.join(self._folder, member, value))
        return MemoryMembership(self._client, session, sent, on_state)

    async def list(self) -> Mapping[str, bytes]:
        return await self._client.call(lambda service: service.members(self._folder))

    def watch(self, changed: Callable[[], None]) -> MemoryWatch:
        return self._client.watch(self._folder, changed)


class MemoryMembership:
    """A membership in the service in memory.  A task sends its heartbeats."""

    def __init__(
        self, client: MemoryClient, session: _Session, sent: float, on_state: Callable[[MemberState], None]
    ) -> None:
        self._client = client
        self._session = session
        self._sent = sent  # when the last answered heartbeat was sent
        self._state = MemberState.CONNECTED
        self._on_state = on_state
        self._heartbeats = asyncio.ensure_future(self._run())

    def __repr__(self) -> str:
        return f"<MemoryMembership {self._session.member} {self._state.value}>"

    @property
    def state(self) -> MemberState:
        return self._state

    @property
    def valid_until(self) -> float:
        return self._sent + self._client.lease_seconds - STORE_LEASE_MARGIN_SECONDS

    async def update(self, value: bytes) -> None:
        await self._client.call(lambda service: service.update(self._session, value))

    async def leave(self) -> None:
        self._heartbeats.cancel()
        await asyncio.gather(self._heartbeats, return_exceptions=True)
        self._become(MemberState.LOST)
        await self._client.call(lambda service: service.end(self._session))

    async def _run(self) -> None:
        interval = self._client.lease_seconds / STORE_HEARTBEATS_PER_LEASE
        while self._state is not MemberState.LOST:
            await asyncio.sleep(interval)
            sent = self._client.clock.monotonic()
            try:
                async with asyncio.timeout(2 * interval):
                    renewed = await self._client.call(lambda service: service.renew(self._session))
            except (Unavailable, TimeoutError):
                self._become(MemberState.SUSPENDED)
                continue
            if renewed:
                self._sent = sent
            self._become(MemberState.CONNECTED if renewed else MemberState.LOST)

    def _become(self, state: MemberState) -> None:
        if state is not self._state and self._state is not MemberState.LOST:
            self._state = state
            self._on_state(state)
