"""What all parts of one client share: the environment, the controller, connections, background tasks, retries."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sarit.client.core.connection import ConnectionPool
from sarit.core.errors import SaritError, Unavailable
from sarit.core.limits import (
    DEFAULT_RETRY_TIMEOUT_SECONDS,
    FIRST_RETRY_DELAY_SECONDS,
    MAX_CACHED_ENDPOINTS,
    MAX_RETRY_DELAY_SECONDS,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from sarit.client.core.controller import ControllerClient
    from sarit.core.names import SegmentId, StreamName
    from sarit.env.ports import Env


log = logging.getLogger(__name__)


T = TypeVar("T")


class ClientPart(Protocol):
    """A writer or reader, as its client sees it."""

    def client_closed(self) -> None:
        """The client was closed: fail whatever is pending."""


class Background:
    """The tasks of one owner: referenced until they end, failures logged, cancelled together."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in order of their start, as the simulation needs it

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start `work`."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        # Referenced: asyncio itself holds tasks only weakly.
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed", task.get_name(), exc_info=error)

    async def close(self) -> None:
        """Cancel the running tasks and wait for their ends."""
        # Not the task that closes: it would wait for itself.
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Backoff:
    """Exponential backoff with jitter; gives up after `retry_timeout` seconds of waiting."""

    __slots__ = ("_delay", "_left", "_random", "retry_timeout", "waited")

    def __init__(self, random: Callable[[], float], retry_timeout: float = DEFAULT_RETRY_TIMEOUT_SECONDS) -> None:
        self._random = random
        self.retry_timeout = retry_timeout
        self.reset()

    def reset(self) -> None:
        """A call succeeded: the next failure starts a new series of attempts."""
        self._delay = 0.0
        self._left = self.retry_timeout
        # Whether there was a pause since the last reset: who is called for each reply need not reset without one.
        self.waited = False

    async def wait(self, error: SaritError) -> None:
        """Pause before the next attempt.  Raises Unavailable because of `error` when the retry timeout has passed.

        The first attempt after a reset follows at once.
        """
        if self._left <= 0:
            raise Unavailable(f"gave up after {self.retry_timeout:.0f} s of trying: {error}") from error
        self.waited = True
        # 0.5 to 1.5 times the delay: clients that failed together do not return together.
        delay = self._delay * (0.5 + self._random())
        # Only pauses count, not the attempts between them.
        self._left -= delay
        self._delay = min(max(self._delay * 2, FIRST_RETRY_DELAY_SECONDS), MAX_RETRY_DELAY_SECONDS)
        await asyncio.sleep(delay)


class Session:
    """Shared by the writers and readers of one client, on the event loop on which it is made.

    `loop` is that loop: asking asyncio for it is a system call (up to CPython 3.11), too much for each event or reply.
    """

    def __init__(
        self, env: Env, controller: ControllerClient, retry_timeout: float = DEFAULT_RETRY_TIMEOUT_SECONDS
    ) -> None:
        self.env = env
        self.loop = asyncio.get_running_loop()
        self.controller = controller
        self.retry_timeout = retry_timeout
        self.connections = ConnectionPool(env.network)
        self.background = Background()
        self._endpoints: dict[tuple[StreamName, SegmentId], tuple[str, int]] = {}
        self._parts: dict[ClientPart, None] = {}

    def register(self, part: ClientPart) -> None:
        """Notify `part` when the client is closed."""
        self._parts[part] = None

    def unregister(self, part: ClientPart) -> None:
        """`part` was closed by itself."""
        self._parts.pop(part, None)

    def backoff(self, retry_timeout: float | None = None) -> Backoff:
        """A fresh backoff."""
        return Backoff(self.env.random.random, self.retry_timeout if retry_timeout is None else retry_timeout)

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

    def forget_endpoint(self, stream: StreamName, segment: SegmentId) -> None:
        """The segment has moved, or its store does not answer: request its endpoint again next time."""
        self._endpoints.pop((stream, segment), None)

    def assume_endpoint(self, stream: StreamName, segment: SegmentId, before: SegmentId) -> None:
        """Assume that `segment` is where its predecessor `before` was, until that store answers WrongHost.

        Such an answer costs less than a call to the controller for each of many segments while a writer waits."""
        known = self._endpoints.get((stream, before))
        if known is not None and len(self._endpoints) < MAX_CACHED_ENDPOINTS:
            # `setdefault`: what the controller answered is better than an assumption.
            self._endpoints.setdefault((stream, segment), known)

    async def with_retry(self, call: Callable[[], Awaitable[T]], retry_timeout: float | None = None) -> T:
        """Repeat `call` while it raises Unavailable, for `retry_timeout` seconds (None: the session's) of pauses."""
        backoff = self.backoff(retry_timeout)
        while True:
            try:
                return await call()
            except Unavailable as error:
                await backoff.wait(error)

    async def close(self) -> None:
        """End writers, readers, tasks and connections."""
        # In this order: parts fail what is pending, tasks end, then nobody uses the connections.
        for part in list(self._parts):
            part.client_closed()
        self._parts.clear()
        await self.background.close()
        await self.connections.close()
        await self.controller.close()
