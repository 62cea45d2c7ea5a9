"""What all parts of one client share: the environment, the controller, connections, background tasks, retries."""

from __future__ import annotations

import asyncio
import atexit
import logging
import math
import os
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Self, TypeVar

from sarit.client.core.connection import ConnectionPool, first_request_id
from sarit.client.core.retry import Attempts, NotAnswered, NotSent, RetryPolicy, Silent, gave_up
from sarit.client.limits import (
    ASK_OWNER_AFTER_SECONDS,
    ASK_OWNER_AGAIN_SECONDS,
    CONTROLLER_PING_SECONDS,
    MAX_CACHED_ENDPOINTS,
    OUTAGE_LOG_AFTER_SECONDS,
)
from sarit.client.session.parts import ClientPart, Hooks, Parts, warn_user, weakly
from sarit.core.errors import Invalid, NotFound, SaritError, Unavailable
from sarit.core.repeated_log import RepeatedLog
from sarit.env.background import Background

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sarit.client.core.connection import Connection
    from sarit.client.core.controller import ControllerClient
    from sarit.core.names import SegmentId, StreamName
    from sarit.env.ports import Env


log = logging.getLogger(__name__)


T = TypeVar("T")

_CLOSED = "the client is closed: connect again"
_FORKED = "this process was forked after its parent had connected, and cannot use the parent's client: connect again"
_OTHER_LOOP = (
    "a client belongs to the event loop on which it was connected, and another one runs here: connect here too, or use "
    "the blocking client `sarit.connect`"
)
_LOOP_ENDED = "the event loop of this client has ended: connect again on the loop that runs now"


def background() -> Background:
    """Return the tasks of a client: a failure is logged."""
    return Background(lambda task, error: log.error("%s failed", task.get_name(), exc_info=error))


class Pauses:
    """How many pauses between attempts run now, of all that one client retries."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def __repr__(self) -> str:
        return f"Pauses({self.count})"

    async def pause(self, seconds: float) -> None:
        """Wait, and be counted."""
        self.count += 1
        try:
            await asyncio.sleep(seconds)
        finally:
            self.count -= 1


class Backoff:
    """The pauses between attempts, as the policy has them (`retry.py`)."""

    __slots__ = ("_attempts", "_env", "_outages", "_pauses", "running")

    def __init__(
        self, env: Env, policy: RetryPolicy, outages: tuple[RepeatedLog, str] | None = None,
        pauses: Pauses | None = None,
    ) -> None:  # fmt: skip
        self._env = env
        self._outages = outages  # the log, and the address that it names
        self._pauses = Pauses() if pauses is None else pauses
        self._attempts = Attempts(policy)
        # Whether there is something to reset: who is called for each reply asks first.
        self.running = False

    def reset(self) -> None:
        """Success: the next failure starts a new series of attempts."""
        self.running = False
        self._attempts.reset()

    def begin(self, since: float | None = None) -> Self:
        """Record that an attempt begins (or began, at `since` of the monotonic clock): its time counts, too."""
        self.running = True
        self._attempts.begin(self._env.clock.monotonic() if since is None else since)
        return self

    def answered(self) -> None:
        """Record that the node has answered: the time until the next failure does not count."""
        self._attempts.answered(self._env.clock.monotonic())

    async def wait(self, error: SaritError, *, of_call: bool = False) -> None:
        """Pause before the next attempt.  Raises Unavailable because of `error` when the retry timeout has passed.

        The first attempt after a reset follows at once.  `of_call`: see `gave_up`.
        """
        if isinstance(error, Unavailable) and error.final:
            raise error
        self.running = True
        silent = error.seconds if isinstance(error, Silent) else 0.0
        now, seconds = self._env.clock.monotonic(), self._attempts.policy.timeout
        pause = self._attempts.failed(now, self._env.random.random(), silent, self._pauses.count)
        if pause is None:
            raise gave_up(error, seconds, of_call=of_call) from error
        left = self._attempts.left(now)
        # Before the pause that would make it late.
        if self._outages is not None and seconds - left + pause >= OUTAGE_LOG_AFTER_SECONDS:
            repeated, address = self._outages
            repeated.warning(address, f"waiting for a node at {address}; gives up in {left:.0f} s ({error})")
        await self._pauses.pause(pause)

    async def attempt(self, call: Callable[[], Awaitable[T]]) -> T:
        """Return one call, within the time that is left.  Raises Unavailable, and what it raises."""
        policy = self._attempts.policy
        seconds = max(self._attempts.left(self._env.clock.monotonic()), policy.min_attempt)
        try:
            async with asyncio.timeout(None if math.isinf(seconds) else seconds):
                return await call()
        except SaritError:  # also one that is a TimeoutError
            raise
        except TimeoutError:
            raise NotAnswered(f"the node did not answer within {seconds:.3g} s") from None


class Session:
    """Shared by the writers and readers of one client, on the event loop on which it is made.

    `loop` is that loop: asking asyncio for it is a system call (up to CPython 3.11), too much for each event or reply.
    """

    def __init__(
        self, env: Env, controller: ControllerClient, policy: RetryPolicy | None = None,
        token_refused: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """`token_refused`: called when a store has refused a delegation token."""
        self.env = env
        self.loop = asyncio.get_running_loop()
        self.controller = controller
        self.policy = policy or RetryPolicy()
        self.connections = ConnectionPool(
            env.network, self.policy,
            # Lines of logs are joined by these ids, and reads differ by them (`env/traces.py`).
            first_request_id=lambda: first_request_id(env.random),
            token_refused=token_refused,
            on_unanswered=weakly(self._store_is_silent),  # open connections keep the pool alone
        )  # fmt: skip
        self.background = background()
        # One for all calls that wait at once: the user needs one line.
        self.outages = RepeatedLog(log, env.clock.monotonic, counted=False), controller.address
        self.pauses = Pauses()
        self._endpoints: dict[tuple[StreamName, SegmentId], tuple[str, int]] = {}
        self._questioned: set[Connection] = set()  # the controller is asked whether their segments have moved
        self.parts = Parts()
        self.ended = ""  # why it can be used no more
        # Set by the blocking client: its plain methods run on any thread, those that await on the loop's alone.
        self.shared_by_threads = False
        _sessions.add(self)

    def state(self, *, closed: bool = False, failed: bool = False) -> str:
        """Return the state of a part of the client, as its `repr` shows it: open, closed or failed."""
        return "failed" if failed else "closed" if closed or self.ended else "open"

    def check(self) -> None:
        """Raises Invalid when the client is closed, is another process's, or another event loop's."""
        if self.ended:
            raise Invalid(self.ended)
        if asyncio.get_running_loop() is not self.loop:
            raise Invalid(_OTHER_LOOP)

    def check_caller(self) -> None:
        """Check the caller as `check` does, for a method that does not await; it may be called while no loop runs."""
        if self.ended:
            raise Invalid(self.ended)
        if self.shared_by_threads:
            return
        running = asyncio._get_running_loop()
        if running is not self.loop and running is not None:
            raise Invalid(_OTHER_LOOP)
        if running is None and self.loop.is_closed():
            raise Invalid(_LOOP_ENDED)

    def forked(self) -> None:
        """In a child process: nothing that the loop does arrives here; the connections are the parent's."""
        self.ended = self.ended or _FORKED
        self.parts.forked(Invalid(self.ended))

    def register(self, part: ClientPart, hooks: Hooks | None = None, *, weakly: bool = False) -> None:
        """Notify `part` when the client is closed; `weakly`: as long as somebody refers to it.  Raises Invalid."""
        if self.ended:
            raise Invalid(self.ended)
        if weakly:
            self.parts.hold_weakly(part)
        else:
            self.parts.hold(part, hooks)

    def unregister(self, part: ClientPart) -> None:
        """`part` was closed by itself."""
        self.parts.remove(part)

    def backoff(self) -> Backoff:
        """Return a fresh backoff."""
        return Backoff(self.env, self.policy, self.outages, self.pauses)

    async def endpoint(self, stream: StreamName, segment: SegmentId) -> tuple[str, int]:
        """Host and port of the store that owns a segment (cached).  Raises Unavailable, NotFound."""
        key = (stream, segment)
        known = self._endpoints.get(key)
        if known is None:
            if len(self._endpoints) >= MAX_CACHED_ENDPOINTS:
                self._endpoints.clear()
            # The await lets others in: two may ask for one segment, which is harmless.
            known = self._endpoints[key] = await self.controller.endpoint(stream, segment)
        return known

    async def connect(self, stream: StreamName, segment: SegmentId, purpose: str) -> tuple[Connection, str]:
        """Return the connection to the store that owns a segment, and the token that the store requires.

        Raises Unavailable, NotFound."""
        endpoint = await self.endpoint(stream, segment)
        token = await self.controller.token(stream)
        connection = self.connections.connected(endpoint, purpose)
        if connection is None:
            connection = await self._connect_unless_moved(stream, segment, endpoint, purpose)
        return connection, token

    async def _connect_unless_moved(
        self, stream: StreamName, segment: SegmentId, endpoint: tuple[str, int], purpose: str
    ) -> Connection:
        """Connect to a store; give up as soon as the controller says that another one owns the segment.

        The kernel of a process that stands still accepts connections."""
        connecting = self.loop.create_task(self.connections.to(endpoint, purpose))
        pause = ASK_OWNER_AFTER_SECONDS
        try:
            while not (await asyncio.wait((connecting,), timeout=pause))[0]:
                if await self._moved(stream, segment, endpoint):
                    raise Unavailable(f"{stream.segment(segment)}: another store serves it now")
                pause = ASK_OWNER_AGAIN_SECONDS
            return connecting.result()
        finally:
            connecting.cancel()

    def _store_is_silent(self, connection: Connection, endpoint: tuple[str, int]) -> None:
        """Ask the controller whether a segment that a connection waits for has moved; once at a time."""
        if connection not in self._questioned and not self.ended:
            self._questioned.add(connection)
            self.background.spawn(self._leave_if_moved(connection, endpoint), f"owner of {connection.name}")

    async def _leave_if_moved(self, connection: Connection, endpoint: tuple[str, int]) -> None:
        try:
            places = connection.replies.places()
            # Any of them: all containers of a store that stands still move at the same time.
            if places and await self._moved(*places[int(self.env.random.random() * len(places))], endpoint):
                # Before the sinks learn of the end: they ask the controller then.
                self._endpoints = {place: at for place, at in self._endpoints.items() if at != endpoint}
                connection.abort(f"{connection.name}: does not answer, and another store serves its segments now")
        finally:
            self._questioned.discard(connection)

    async def _moved(self, stream: StreamName, segment: SegmentId, endpoint: tuple[str, int]) -> bool:
        """Return whether the controller says that a segment is not at `endpoint`; False when it does not answer
        soon."""
        try:
            async with asyncio.timeout(CONTROLLER_PING_SECONDS):
                return await self.controller.endpoint(stream, segment) != endpoint
        except (TimeoutError, SaritError):
            return False

    def current_token(self, stream: StreamName) -> str:
        """Return the token of a stream at once: see `DelegationTokens.current`."""
        tokens = self.controller.tokens
        return "" if tokens is None else tokens.current(stream)

    def forget_endpoint(self, stream: StreamName, segment: SegmentId) -> None:
        """Drop the cached endpoint of a segment that has moved, or whose store does not answer."""
        self._endpoints.pop((stream, segment), None)

    def assume_endpoint(self, stream: StreamName, segment: SegmentId, before: SegmentId) -> None:
        """Assume that `segment` is where its predecessor `before` was, until that store answers WrongHost.

        Such an answer costs less than a call to the controller for each of many segments while a writer waits."""
        known = self._endpoints.get((stream, before))
        if known is not None and len(self._endpoints) < MAX_CACHED_ENDPOINTS:
            # `setdefault`: what the controller answered is better than an assumption.
            self._endpoints.setdefault((stream, segment), known)

    async def with_retry(
        self, call: Callable[[], Awaitable[T]], policy: RetryPolicy | None = None, since: float | None = None
    ) -> T:
        """Repeat `call` while it raises Unavailable, and end each attempt in time.  Raises Unavailable at the end.

        The outcome of an attempt whose answer was lost is unknown: `call` must be one that may be made twice.
        `since`: when its caller began to wait, if not now."""
        backoff = Backoff(self.env, policy or self.policy, self.outages, self.pauses).begin(since)
        while True:
            try:
                return await backoff.attempt(call)
            except Unavailable as error:
                await backoff.wait(error, of_call=True)

    async def with_retry_of_wait(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat, as `with_retry` does, a call that waits at the store for something to happen: it ends with its
        connection."""
        backoff = self.backoff().begin()
        while True:
            try:
                return await call()
            except Unavailable as error:
                await backoff.wait(error)

    async def with_retry_of_deletion(self, call: Callable[[], Awaitable[None]]) -> None:
        """Repeat a deletion as `with_retry` does.  NotFound is a success after an attempt whose answer was lost: that
        one has deleted it."""
        unknown = False

        async def delete() -> None:
            nonlocal unknown
            try:
                await call()
            except NotFound:
                if not unknown:
                    raise
            except NotSent:
                raise
            except BaseException:  # the end of the time for an attempt is a cancellation here
                unknown = True
                raise

        await self.with_retry(delete)

    async def close(self) -> None:
        """End writers, readers, tasks and connections."""
        self.ended = self.ended or _CLOSED
        # In this order: parts fail what is pending, tasks end, then nobody uses the connections.
        self._report_unacknowledged()
        for part in self.parts.clear():
            part.client_closed()
        await self.background.close()
        await self.connections.close()
        await self.controller.close()

    async def flush(self, seconds: float) -> None:
        """Wait until everything that its writers were given is durable, or failed, or for `seconds`."""
        flushes = [asyncio.ensure_future(one.flush()) for one in self.parts.unacknowledged()]
        if flushes:
            await asyncio.wait(flushes, timeout=seconds)
        for one in flushes:
            one.cancel()
        await asyncio.gather(*flushes, return_exceptions=True)  # whoever closes the writer gets its failure

    def _report_unacknowledged(self) -> None:
        for one in self.parts.unacknowledged():
            log.warning(
                "a client ends with %d %s not acknowledged: they may be lost; flush or close the writer before",
                one.amount,
                one.what,
            )

    def __del__(self) -> None:
        # Not in a simulated world, where the moment of a collection must decide nothing.
        if getattr(self, "ended", "never made") or self.parts.holds_readers:
            return
        warn_user(f"a client of {self.controller.address} was dropped and not closed")
        self._report_unacknowledged()
        with suppress(RuntimeError):  # its loop has ended, and its sockets with it
            self.loop.call_soon_threadsafe(_release, self.loop, self.connections, self.controller)


def _release(loop: asyncio.AbstractEventLoop, connections: ConnectionPool, controller: ControllerClient) -> None:
    async def close() -> None:
        await connections.close()
        await controller.close()

    task = loop.create_task(close())
    _releasing.add(task)
    task.add_done_callback(_releasing.discard)


_releasing: set[asyncio.Task[None]] = set()
_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _after_fork() -> None:
    for session in list(_sessions):
        session.forked()


def _at_exit() -> None:
    """Say what is lost; the blocking client has flushed before (`client/blocking/loop_thread.py`)."""
    for session in list(_sessions):
        if not session.ended:
            session._report_unacknowledged()
            session.ended = _CLOSED


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
