"""A session of a process with ZooKeeper.  `zookeeper_ports.py` implements registers and members on it.

kazoo runs in threads of its own.  Each call is sent from the event loop, and its reply is delivered to the loop.

*Outcomes.*  A call waits for the connection, and raises Unavailable after ZOOKEEPER_WAIT_SECONDS without one.  A call
that was sent and not answered raises Unavailable, too; its outcome is unknown.  Calls are not repeated here.

*The session.*  A lost connection suspends the session.  Only ZooKeeper ends a session: kazoo reports the end after it
could connect again, and begins a new session.  While no server can be reached, no session ends.

*Heartbeats* are calls of `sync`, which the leader of the servers answers.  A server reports the heartbeats of its
sessions to the leader only now and then.  So a reply proves that the server was connected to the leader, and that the
heartbeat *before* it has counted.  A new connection counts at once: the leader confirms its session.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from sarit.coordination.limits import (
    STORE_HEARTBEATS_PER_LEASE,
    STORE_LEASE_MARGIN_SECONDS,
    ZOOKEEPER_CALL_SECONDS,
    ZOOKEEPER_CONNECT_SECONDS,
    ZOOKEEPER_RETRY_SECONDS,
    ZOOKEEPER_WAIT_SECONDS,
)
from sarit.coordination.port import MemberState, Versioned
from sarit.coordination.zookeeper_client import (
    ZooKeeperWatch,
    deliver,
    drop_connection,
    errors,
    get_after_sync,
    make_client,
    open_acl,
    report_sessions,
    stop_client,
    translate,
)
from sarit.core.errors import NotFound, SaritError, Unavailable
from sarit.env.background import Background

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.env.ports import Env

    class SessionStates(Protocol):
        """A listener to the states of a session."""

        def on_session_state(self, state: MemberState) -> None:
            """Receive each state of the session, until LOST."""


_log = logging.getLogger("sarit.coordination")

_NO_TIME: Final = float("-inf")


class ZooKeeper:
    """One session with ZooKeeper.  Paths are absolute; a version is the version of the node's value.

    Calls raise Unavailable; the outcome of a change is unknown then."""

    def __init__(self, hosts: str, session_seconds: float, env: Env, client: Any = None) -> None:
        """`hosts`: HOST:PORT of the servers, with commas.  `session_seconds`: the requested length; servers bound it.

        `client`: a client of kazoo, not started; None: make one.  Raises Invalid: kazoo is not installed."""
        self.hosts = hosts
        self.session_seconds = session_seconds
        self._env = env
        self._clock = env.clock
        self._client = make_client(hosts, session_seconds) if client is None else client
        self._client.add_listener(self._on_kazoo_state)
        report_sessions(self._client, env.clock, partial(self._post, self._on_session))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = False
        self.connected = asyncio.Event()
        self._proven = asyncio.Event()
        self._sessions = 0
        self._heartbeat_at = _NO_TIME
        self._certain_at = _NO_TIME
        self._beat_now = asyncio.Event()
        self._background = Background.critical(_log, "the session with ZooKeeper")
        # These dictionaries are ordered sets.
        self._watches: dict[ZooKeeperWatch, None] = {}
        self._memberships: dict[SessionStates, None] = {}

    def __repr__(self) -> str:
        state = "connected" if self.connected.is_set() else "not connected"
        return f"<ZooKeeper {self.hosts} {state}>"

    @classmethod
    async def connect(
        cls, hosts: str, session_seconds: float, env: Env, client: Any = None, *,
        wait_seconds: float = ZOOKEEPER_CONNECT_SECONDS,
    ) -> ZooKeeper:  # fmt: skip
        """Return a connected session.  Raises Unavailable (no connection within `wait_seconds`), Invalid."""
        found = cls(hosts, session_seconds, env, client)
        found.start()
        try:
            async with asyncio.timeout(wait_seconds):
                await found._proven.wait()
        except BaseException as error:
            await found.close()
            if isinstance(error, TimeoutError):
                raise Unavailable(
                    f"no ZooKeeper answers at {hosts} within {wait_seconds:g} s: is the address right, and does it run?"
                ) from None
            raise
        return found

    def start(self) -> None:
        """Connect in the background."""
        self._loop = asyncio.get_running_loop()
        self._client.start_async()
        self._background.spawn(self._send_heartbeats())

    async def close(self) -> None:
        """End the session, and the memberships in it."""
        if self._closing:
            return
        self._closing = True
        for membership in list(self._memberships):
            membership.on_session_state(MemberState.LOST)
        for watch in list(self._watches):
            watch.close()
        await self._background.close()
        await _run_blocking(self._env, partial(stop_client, self._client))

    @property
    def certain_until(self) -> float:
        """Until when ZooKeeper cannot have ended the session, minus a margin, in monotonic seconds."""
        return self._certain_at + self.session_seconds - STORE_LEASE_MARGIN_SECONDS

    # -- calls -----------------------------------------------------------------------------------

    async def get(self, path: str) -> Versioned | None:
        """Return the value of a node; None: it does not exist."""
        try:
            value, stat = await self.call(path, self._client.get_async, path)
        except NotFound:
            return None
        return Versioned(value, stat.version)

    async def newest(self, path: str) -> Versioned | None:
        """Return a node's value, not older than this call: a server may be seconds behind the others."""
        try:
            value, stat = await self.call(path, get_after_sync, self._client, path)
        except NotFound:
            return None
        return Versioned(value, stat.version)

    async def create(
        self, path: str, value: bytes, ephemeral: bool = False, sequence: bool = False, parents: bool = False,
        shared: bool = False,
    ) -> str:  # fmt: skip
        """Create a node.  Returns its path.  Raises Exists, NotFound (the parent).

        `ephemeral`: the node ends with the session.  `sequence`: a number is added to its name.  `parents`: create
        missing parents, too.  `shared`: other programs, as bookies, may change the node."""
        acl = open_acl(self._client) if shared else {}
        make = partial(
            self._client.create_async, path, bytes(value), ephemeral=ephemeral, sequence=sequence, makepath=parents,
            **acl,
        )  # fmt: skip
        return str(await self.call(path, make))

    async def create_ephemeral(self, path: str, value: bytes) -> int:
        """Create a node that ends with the session.  Returns the id of its creation (czxid).  Raises Exists."""
        make = partial(self._client.create_async, path, bytes(value), ephemeral=True, makepath=True, include_data=True)
        session = self._sessions
        _, stat = await self.call(path, make)
        if session != self._sessions:
            # The end of the session was reported before the caller could know that the node belonged to it.
            raise Unavailable(f"the session with ZooKeeper has ended while it created {path}")
        return int(stat.czxid)

    async def set(self, path: str, value: bytes, expected: int | None) -> int:
        """Replace the value of a node that has the version `expected` (None: any).  Returns its new version.  Raises
        Conflict, NotFound."""
        version = -1 if expected is None else expected
        stat = await self.call(path, self._client.set_async, path, bytes(value), version)
        return int(stat.version)

    async def delete(self, path: str, expected: int | None = None) -> None:
        """Delete a node that has the version `expected` (None: any).  Raises Conflict, NotFound, Exists (it has
        children)."""
        await self.call(path, self._client.delete_async, path, -1 if expected is None else expected)

    async def children(self, path: str) -> list[str]:
        """Return the names of a node's children, sorted; none if the node does not exist."""
        try:
            return sorted(await self.call(path, self._client.get_children_async, path))
        except NotFound:
            return []

    async def creation(self, path: str) -> tuple[int, int] | None:
        """Return the id of a node's creation (czxid), and its version; None: the node does not exist."""
        stat = await self.call(path, self._client.exists_async, path)
        return None if stat is None else (int(stat.czxid), int(stat.version))

    def watch(self, path: str, changed: Callable[[], None]) -> ZooKeeperWatch:
        """Call `changed` after a node was created, set or deleted, and after each new connection."""
        return self._add_watch(path, changed, children=False)

    def watch_children(self, path: str, changed: Callable[[], None]) -> ZooKeeperWatch:
        """Call `changed` after a child of a node was created or deleted, and after each new connection."""
        return self._add_watch(path, changed, children=True)

    async def call(self, path: str, begin: Callable[..., Any], *arguments: Any) -> Any:
        """Call kazoo, and return the reply.  Raises errors of `core.errors`."""
        await self._wait_until_connected()
        answer = asyncio.get_running_loop().create_future()
        begin(*arguments).rawlink(lambda result: self._post(deliver, answer, result))
        try:
            async with asyncio.timeout(ZOOKEEPER_CALL_SECONDS):
                return await answer
        except TimeoutError:
            raise Unavailable(f"ZooKeeper did not answer within {ZOOKEEPER_CALL_SECONDS:g} s") from None
        except errors() as error:
            raise translate(error, path) from None

    async def _wait_until_connected(self) -> None:
        if self._closing:
            raise Unavailable("the session with ZooKeeper is closed")
        try:
            async with asyncio.timeout(ZOOKEEPER_WAIT_SECONDS):
                await self.connected.wait()
        except TimeoutError:
            raise Unavailable(f"ZooKeeper cannot be reached at {self.hosts}") from None

    # -- the session: on the event loop -----------------------------------------------------------

    def add_membership(self, membership: SessionStates) -> None:
        """Report the session's states to a membership, until LOST."""
        self._memberships[membership] = None

    def _on_state(self, state: str, ended: bool) -> None:
        if state == "CONNECTED":
            self.connected.set()
            self._beat_now.set()
            for watch in list(self._watches):
                watch.on_connected()
            return
        self.connected.clear()
        if state == "SUSPENDED":
            self._report(MemberState.SUSPENDED)
            return
        self._sessions += 1
        self._certain_at = self._heartbeat_at = _NO_TIME
        self._report(MemberState.LOST)
        if ended and not self._closing:
            self._background.spawn(self._start_again())

    def _on_session(self, seconds: float, asked_at: float) -> None:
        # The leader of the servers has made or confirmed the session for this connection.
        self._certain_at = max(self._certain_at, asked_at)
        if seconds != self.session_seconds:
            _log.info("ZooKeeper gives a session of %g s, not %g s", seconds, self.session_seconds)
        self.session_seconds = seconds

    def _report(self, state: MemberState) -> None:
        for membership in list(self._memberships):
            membership.on_session_state(state)
            if state is MemberState.LOST:
                self._memberships.pop(membership, None)

    async def _send_heartbeats(self) -> None:
        while True:
            await self.connected.wait()
            self._beat_now.clear()
            session, sent = self._sessions, self._clock.monotonic()
            try:
                async with asyncio.timeout(self.session_seconds / 3):
                    await self.call("/", self._client.sync_async, "/")
                if session == self._sessions:
                    self._certain_at = max(self._certain_at, self._heartbeat_at)
                    self._heartbeat_at = sent
                    self._proven.set()
                    self._report(MemberState.CONNECTED)
            except TimeoutError:
                # Drop the connection: kazoo does not detect this, since it skips its own heartbeats while there are
                # calls.
                _log.warning("ZooKeeper does not answer: connecting again")
                drop_connection(self._client)
            except SaritError as error:
                _log.debug("no heartbeat: %s", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(self.session_seconds / STORE_HEARTBEATS_PER_LEASE):
                    await self._beat_now.wait()

    async def _start_again(self) -> None:
        """Start kazoo again, which gives up after an unexpected error, as from a server that is no ZooKeeper."""
        await asyncio.sleep(ZOOKEEPER_RETRY_SECONDS)
        await _run_blocking(self._env, self._client.start_async)

    def _add_watch(self, path: str, changed: Callable[[], None], *, children: bool) -> ZooKeeperWatch:
        watch = ZooKeeperWatch(self._client, self._watches, partial(self._post), path, changed, children=children)
        self._watches[watch] = None
        if self.connected.is_set():
            watch.arm()
        return watch

    # -- on the threads of kazoo -----------------------------------------------------------------

    def _on_kazoo_state(self, state: str) -> None:
        self._post(self._on_state, str(state), self._client.client_state == "CLOSED")

    def _post(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function on the event loop."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(function, *arguments)


async def server_ms(zookeeper: ZooKeeper, path: str) -> int:
    """Return the wall clock of ZooKeeper in ms.  `path`: a node that is created and deleted for it.  Raises
    Unavailable."""
    make = partial(zookeeper._client.create_async, path, b"", ephemeral=True, makepath=True, include_data=True)
    _, stat = await zookeeper.call(path, make)
    await zookeeper.delete(path)
    return int(stat.ctime)


async def _run_blocking(env: Env, function: Callable[[], object]) -> None:
    worker = env.threads.worker("zookeeper")
    try:
        await worker.run(function)
    finally:
        await worker.close()
