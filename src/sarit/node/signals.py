"""SIGTERM and SIGINT stop a node; a second one stops it at once."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any, Final

from sarit.core.limits import REPEATED_SIGNAL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from sarit.env.ports import Clock

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


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
