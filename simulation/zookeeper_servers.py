"""Simulated servers of ZooKeeper: one order of changes, followers that apply it late, sessions that end by silence.

A change is decided by the leader, at the version that it has then.  Followers apply all changes in that order, each
after a delay of its own, so what one of them answers may be old.  A client is connected to one follower: its requests
are carried out in order, a change is answered when this follower has applied it, and a `sync` when it has applied what
the leader knew.  A follower tells the leader only now and then which sessions it has heard.  A session that the leader
has not heard of for its length ends, and its ephemeral nodes with it.  While there is no quorum no session ends.

`simulation/zookeeper.py` has the client.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from kazoo.exceptions import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
)

from simulation.zookeeper_values import ANY_VERSION, Change, Stat, Tree

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from simulation.zookeeper_values import Request

ZOOKEEPER: Final = "zookeeper"
_SERVERS: Final = 3
_READS: Final = ("get", "exists", "children")


class Client(Protocol):
    """A client, as far as servers call it: see `SimulatedKazoo`."""

    @property
    def host(self) -> str:
        """The machine of its process."""

    @property
    def context(self) -> contextvars.Context:
        """Of its process."""

    def refused(self, attempt: int) -> None:
        """It cannot connect."""

    def expired(self, attempt: int) -> None:
        """Its session has ended."""

    def accepted(self, attempt: int, connection: Connection) -> None:
        """It is connected."""

    def lost(self, connection: Connection) -> None:
        """Its connection is lost."""

    def answered(self, connection: Connection, request: Request, value: Any, error: Exception | None) -> None:
        """A request is answered."""

    def fired(self, watch: Callable[[Any], None]) -> None:
        """A watch has fired."""


@dataclass(slots=True, eq=False)
class Session:
    """What the leader knows of a session.  `received_at`: when a follower last reported that the client lives."""

    number: int
    seconds: float
    client: Client
    received_at: float
    ended: bool = False


@dataclass(slots=True, eq=False)
class Connection:
    """A client at a follower.  `gone`: its server does not serve it any more; the client may not know."""

    client: Client
    server: Follower
    session: Session
    gone: bool = False
    arrives: float = 0.0
    returns: float = 0.0
    busy: bool = False
    requests: deque[Request] = field(default_factory=deque)


class Follower:
    """One server.  `behind`: seconds that it applies changes later.  `cut_off`: it does not reach the leader."""

    def __init__(self, service: ZooKeeperServers, number: int) -> None:
        self.number = number
        self.behind = 0.0
        self.cut_off = False
        self.connections: list[Connection] = []
        self._service = service
        self._tree = Tree()
        self._applied = 0
        self._coming: deque[tuple[float, Change]] = deque()
        self._last_at = 0.0
        self._waiting: list[tuple[int, Connection, Request, Any]] = []
        self._watches: dict[tuple[str, str], list[tuple[Connection, Callable[[Any], None]]]] = {}
        self._received: dict[int, Session] = {}

    def __repr__(self) -> str:
        return f"<Follower {self.number} at {self._applied}, {len(self.connections)} clients>"

    # -- following -------------------------------------------------------------------------------

    def coming(self, change: Change) -> None:
        """The leader has decided a change."""
        loop = asyncio.get_running_loop()
        self._last_at = max(self._last_at, loop.time() + self._service.delay() + self.behind)
        self._coming.append((self._last_at, change))
        loop.call_at(self._last_at, self.apply_due)

    def apply_due(self) -> None:
        """Apply what has come."""
        now = asyncio.get_running_loop().time()
        while self._coming and self._coming[0][0] <= now and not self.cut_off:
            _, change = self._coming.popleft()
            self._tree.apply(change)
            self._applied = change.number
            self._fire(change)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self._answer_when_applied(*each)

    def _fire(self, change: Change) -> None:
        fired = [("node", change.path)]
        if change.kind != "set":
            fired.append(("children", change.path.rpartition("/")[0] or "/"))
        if change.kind == "delete":
            fired.append(("children", change.path))
        for key in fired:
            for connection, watch in self._watches.pop(key, ()):
                self._service.send(connection, connection.client.fired, watch)

    def report_to_leader(self) -> None:
        """Which sessions were heard since the last time."""
        if not self.cut_off and not self._service.away:
            now = asyncio.get_running_loop().time()
            for session in self._received.values():
                session.received_at = now
            self._received.clear()

    # -- clients ---------------------------------------------------------------------------------

    def drop(self, connection: Connection) -> None:
        """Serve a client no more."""
        connection.gone = True
        if connection in self.connections:
            self.connections.remove(connection)

    def drop_clients(self) -> None:
        """Serve nobody, if it is still cut off."""
        for connection in list(self.connections) if self.cut_off else ():
            self.drop(connection)
            self._service.break_connection(connection)

    def receive(self, connection: Connection, request: Request) -> None:
        """A request has come."""
        if not connection.gone:
            self._received[connection.session.number] = connection.session
            connection.requests.append(request)
            self._serve(connection)

    def _serve(self, connection: Connection) -> None:
        while connection.requests and not connection.busy and not connection.gone:
            request = connection.requests.popleft()
            if request.kind in _READS:
                self._reply(connection, request, *self._read(connection, request))
                continue
            connection.busy = True
            asyncio.get_running_loop().call_later(self._service.delay(), self._service.decide, connection, request)

    def _reply(self, connection: Connection, request: Request, value: Any, error: Exception | None) -> None:
        self._service.send(connection, connection.client.answered, connection, request, value, error)

    def _read(self, connection: Connection, request: Request) -> tuple[Any, Exception | None]:
        node = self._tree.nodes.get(request.path)
        if request.watch is not None and (node is not None or request.kind == "exists"):
            key = "children" if request.kind == "children" else "node"
            self._watches.setdefault((key, request.path), []).append((connection, request.watch))
        if request.kind == "exists":
            return None if node is None else Stat(node.created, node.version), None
        if node is None:
            return None, NoNodeError()
        if request.kind == "children":
            return sorted(node.children), None
        return (node.value, Stat(node.created, node.version)), None

    def decided(self, connection: Connection, request: Request, number: int, result: Any) -> None:
        """The leader has decided a request; it is answered once it is applied here."""
        self._answer_when_applied(number, connection, request, result)

    def _answer_when_applied(self, number: int, connection: Connection, request: Request, result: Any) -> None:
        if self._applied < number:
            self._waiting.append((number, connection, request, result))
            return
        value, error = (None, result) if isinstance(result, Exception) else (result, None)
        self._reply(connection, request, value, error)
        connection.busy = False
        self._serve(connection)


class ZooKeeperServers:
    """The service.  `delay()`: the seconds of one way of a message.  `report_seconds`: how often followers tell the
    leader which sessions live.  `cut`: pairs of names, from and to, between which nothing passes; the service is
    ZOOKEEPER.  `deleted` is called with the path of each node that is deleted."""

    def __init__(
        self, rng: random.Random, delay: Callable[[], float], report_seconds: float = 0.5,
        deleted: Callable[[str], None] = lambda path: None,
    ) -> None:  # fmt: skip
        self.rng = rng
        self.delay = delay
        self.away = False
        self.stopped = False
        self.cut: set[tuple[str, str]] = set()
        self._deleted = deleted
        self.changed_by: dict[str, str] = {}
        self.context = contextvars.copy_context()
        self.followers = [Follower(self, number) for number in range(_SERVERS)]
        self._report_seconds = report_seconds
        self._tree = Tree()
        self._number = 0
        self._sessions: dict[int, Session] = {}
        self._parked: list[tuple[Connection, Request]] = []
        self._held: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._last_session = 0
        self._ticking = False

    def __repr__(self) -> str:
        return f"<ZooKeeperServers {len(self._tree.nodes)} nodes, {len(self._sessions)} sessions>"

    # -- for the simulation -----------------------------------------------------------------------

    def value(self, path: str) -> bytes | None:
        """The value that the leader has; None when there is no node."""
        node = self._tree.nodes.get(path)
        return None if node is None else node.value

    def store(self, path: str, value: bytes) -> None:
        """Change a node, as an operator's command does."""
        self.context.run(self._change, "set", path, value)

    def connections(self) -> list[Connection]:
        """All connections that servers have."""
        return [connection for follower in self.followers for connection in follower.connections]

    def break_connection(self, connection: Connection) -> None:
        """It is lost for both ends; what is under way may still arrive."""
        connection.client.context.run(connection.client.lost, connection)

    def leave(self) -> None:
        """There is no quorum: servers drop their clients, and nobody can connect."""
        self.away = True
        for connection in self.connections():
            connection.server.drop(connection)
            self.break_connection(connection)

    def come_back(self) -> None:
        """There is a quorum again.  The new leader gives every session its whole length."""
        if not self.away:
            return
        self.away = False
        now = asyncio.get_running_loop().time()
        for session in self._sessions.values():
            session.received_at = now
            self.context.run(self._watch_session, session)
        self.context.run(self._decide_parked)

    def stop(self) -> None:
        """All servers stand still; what comes waits."""
        self.stopped = True

    def resume(self) -> None:
        """They go on, and may first find that sessions were silent."""
        self.stopped = False
        held, self._held = self._held, []
        for call, arguments in held:
            self.context.run(call, *arguments)

    def _holds(self, call: Callable[..., None], *arguments: Any) -> bool:
        if self.stopped:
            self._held.append((call, arguments))
        return self.stopped

    def cut_off(self, follower: Follower) -> None:
        """A server does not reach the others.  It drops its clients a little later."""
        follower.cut_off = True
        asyncio.get_running_loop().call_later(1.0, follower.drop_clients, context=self.context)

    def heal(self, follower: Follower) -> None:
        """It reaches the others again, and is not behind any more."""
        follower.cut_off, follower.behind = False, 0.0
        self.context.run(follower.apply_due)
        self.context.run(self._decide_parked)

    # -- connections ------------------------------------------------------------------------------

    def accept(self, client: Client, attempt: int, number: int, seconds: float) -> None:
        """A client connects, with the number of its session (0: a new one)."""
        if self._holds(self.accept, client, attempt, number, seconds):
            return
        if not self._ticking:
            self._ticking = True
            self._tick()
        follower = self.rng.choice(self.followers)
        if self.away or follower.cut_off or not self.reaches(client.host, answers=True):
            self._call(client, self.delay(), client.refused, attempt)
            return
        session = self._sessions.get(number)
        if number and session is None:
            self._call(client, self.delay(), client.expired, attempt)
            return
        if session is None:
            self._last_session += 1
            session = Session(self._last_session, seconds, client, asyncio.get_running_loop().time())
            self._sessions[session.number] = session
            self._watch_session(session)
        session.received_at = asyncio.get_running_loop().time()
        for old in [each for each in self.connections() if each.session is session]:
            old.server.drop(old)
        connection = Connection(client, follower, session)
        follower.connections.append(connection)
        self._call(client, self.delay(), client.accepted, attempt, connection)

    def reaches(self, host: str, *, answers: bool = False) -> bool:
        """Whether messages of a host arrive, and with `answers` the other way, too."""
        return (host, ZOOKEEPER) not in self.cut and not (answers and (ZOOKEEPER, host) in self.cut)

    def arrive(self, connection: Connection, request: Request) -> None:
        """A message from a client."""
        if self._holds(self.arrive, connection, request):
            return
        if not self.reaches(connection.client.host):
            connection.server.drop(connection)  # a gap in its stream
        else:
            connection.server.receive(connection, request)

    def send(self, connection: Connection, call: Callable[..., None], *arguments: Any) -> None:
        """A message to a client, after those before it."""
        client, loop = connection.client, asyncio.get_running_loop()
        if connection.gone or (ZOOKEEPER, client.host) in self.cut:
            connection.server.drop(connection)
            return
        connection.returns = max(connection.returns, loop.time() + self.delay())
        loop.call_at(connection.returns, call, *arguments, context=client.context)

    def _call(self, client: Client, seconds: float, call: Callable[..., None], *arguments: Any) -> None:
        asyncio.get_running_loop().call_later(seconds, call, *arguments, context=client.context)

    # -- sessions ---------------------------------------------------------------------------------

    def _tick(self) -> None:
        for follower in self.followers:
            follower.report_to_leader()
        asyncio.get_running_loop().call_later(self._report_seconds, self._tick, context=self.context)

    def _watch_session(self, session: Session) -> None:
        loop = asyncio.get_running_loop()
        rest = session.received_at + session.seconds - loop.time()
        if session.ended or self.away or self._holds(self._watch_session, session):
            return
        if rest > 0:
            loop.call_later(rest, self._watch_session, session)
        else:
            self._end(session)

    def expire(self, session: Session) -> None:
        """End a session now."""
        self.context.run(self._end, session)

    def _end(self, session: Session) -> None:
        if session.ended:
            return
        session.ended = True
        del self._sessions[session.number]
        nodes = self._tree.nodes
        for path in sorted(path for path, node in nodes.items() if node.session == session.number):
            self._change("delete", path)
        for connection in [each for each in self.connections() if each.session is session]:
            self.send(connection, connection.client.lost, connection)
            connection.server.drop(connection)

    # -- the leader -------------------------------------------------------------------------------

    def decide(self, connection: Connection, request: Request) -> None:
        """A request has reached the leader."""
        if self._holds(self.decide, connection, request):
            return
        if self.away or connection.server.cut_off:
            self._parked.append((connection, request))
            return
        if connection.session.ended:
            result: Any = SessionExpiredError()
        elif request.kind == "close":
            self._end(connection.session)
            result = None
        else:
            result = self._carry_out(connection.session, request)
        connection.server.decided(connection, request, self._number, result)

    def _decide_parked(self) -> None:
        parked, self._parked = self._parked, []
        for connection, request in parked:
            if not connection.gone:
                self.decide(connection, request)

    def _carry_out(self, session: Session, request: Request) -> Any:
        """The result, or the error."""
        path, nodes = request.path, self._tree.nodes
        node = nodes.get(path)
        if request.kind == "sync":
            return path
        if request.kind == "create":
            return self._create(session, request)
        if node is None:
            return NoNodeError()
        if request.version not in (ANY_VERSION, node.version):
            return BadVersionError()
        if request.kind == "delete" and node.children:
            return NotEmptyError()
        self.changed_by[path] = session.client.host
        self._change(request.kind, path, request.value)
        return Stat(node.created, node.version) if request.kind == "set" else True

    def _create(self, session: Session, request: Request) -> Any:
        path, nodes = request.path, self._tree.nodes
        parent = path.rpartition("/")[0] or "/"
        if parent not in nodes:
            if "makepath" not in request.flags:
                return NoNodeError()
            parts = parent.split("/")
            for end in range(2, len(parts) + 1):
                above = "/".join(parts[:end])
                if above not in nodes:
                    self._change("create", above)
        if "sequence" in request.flags:
            path = f"{path}{nodes[parent].given:010d}"
            nodes[parent].given += 1
        if path in nodes:
            return NodeExistsError()
        self.changed_by[path] = session.client.host
        self._change("create", path, request.value, session.number if "ephemeral" in request.flags else 0)
        return (path, Stat(self._number, 0)) if "include_data" in request.flags else path

    def _change(self, kind: str, path: str, value: bytes = b"", session: int = 0) -> None:
        self._number += 1
        change = Change(self._number, kind, path, value, session)
        self._tree.apply(change)
        for follower in self.followers:
            follower.coming(change)
        if kind == "delete":
            self._deleted(path)


__all__ = ["ZOOKEEPER", "Client", "Connection", "Follower", "Session", "ZooKeeperServers"]
