"""How a node runs until it is asked to stop.  SIGTERM and SIGINT ask; a second one does not wait for the flush."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import TYPE_CHECKING, Any, Final, Protocol

from sarit.process.limits import REPEATED_SIGNAL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from sarit.env.ports import Clock

_log = logging.getLogger("sarit.process")

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Stops(Protocol):
    """Who asks a node to stop."""

    first: asyncio.Event
    again: asyncio.Event

    def noticed(self, *, ready: bool) -> None:
        """Say that the node stops because of `first`; `ready`: whether it had served."""


class Stoppable(Protocol):
    """A process or part that runs until it is asked to stop."""

    async def stop(self) -> None:
        """Stop serving, flush to long-term storage, close everything."""

    def skip_flush(self) -> None:
        """Let `stop` end its flush: what was acknowledged is in the durable log, and the next start flushes it."""


class StopSignals:
    """`first`: stop the node.  `again`: do not wait for anything.

    A terminal sends Ctrl-C to a wrapper and to the node, and the wrapper forwards it: signals within
    REPEATED_SIGNAL_SECONDS count as one."""

    def __init__(self, clock: Clock) -> None:
        self.first = asyncio.Event()
        self.again = asyncio.Event()
        self._clock = clock
        self._last = 0.0

    def listen(self) -> None:
        """Install the handlers on the running loop."""
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self.on_signal)

    def on_signal(self) -> None:
        """Handle one signal."""
        now = self._clock.monotonic()
        if not self.first.is_set():
            self.first.set()
        elif now - self._last >= REPEATED_SIGNAL_SECONDS:
            self.again.set()
        # Of every signal, also an ignored one: a burst counts as one, however long it is.
        self._last = now

    def noticed(self, *, ready: bool) -> None:
        if ready:
            _log.info("stopping: flushing to long-term storage (a second signal skips that)")
        else:
            _log.info("stopping before it was ready")


async def serve_until_stopped(
    node: Stoppable, start: Coroutine[Any, Any, None], stops: Stops, on_stop: Callable[[], None] = lambda: None
) -> None:
    """Start a node, and stop it after `stops.first`; `stops.again`: without the flush.

    `on_stop`: called before it stops.  Raises what `start` raises, after the node has stopped."""

    async def hurry() -> None:
        await stops.again.wait()
        node.skip_flush()

    hurrying = asyncio.ensure_future(hurry())
    ready = False
    try:
        # A recovery may take long.  It may be cancelled at any moment, since nothing was acknowledged yet.
        ready = await run_unless(stops.first, start)
        await stops.first.wait()
        stops.noticed(ready=ready)
    finally:
        on_stop()
        if not ready:
            # Nothing was acknowledged, so there is nothing to flush.
            node.skip_flush()
        try:
            await node.stop()
        finally:
            hurrying.cancel()


async def run_unless(event: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Run `work`; cancel it once `event` is set.  Whether it completed; raises what it raises."""
    task = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
        # Completed work counts even if the event was set in the same turn.
        if task.done():
            task.result()
            return True
        return False
    finally:
        for each in (waiting, task):
            each.cancel()
        # Until the cancellation has taken effect: the caller stops what `work` has started.
        await asyncio.gather(waiting, task, return_exceptions=True)
