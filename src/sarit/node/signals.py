"""What SIGTERM and SIGINT ask of a node: to stop, and when they come again, to stop at once."""

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
    """`first`: the node is to stop.  `again`: it is not to wait for anything.

    A terminal sends Ctrl-C to a wrapper and to the node, and the wrapper sends it on, too: signals in quick succession
    are one."""

    def __init__(self, clock: Clock) -> None:
        self.first = asyncio.Event()
        self.again = asyncio.Event()
        self._clock = clock
        self._last = 0.0

    def listen(self) -> None:
        """From now on, on the running loop."""
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self.on_signal)

    def on_signal(self) -> None:
        """A signal came."""
        now = self._clock.monotonic()
        if not self.first.is_set():
            self.first.set()
        elif now - self._last >= REPEATED_SIGNAL_SECONDS:
            self.again.set()
        self._last = now


async def run_unless(event: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Do `work`, or give it up once `event` is set.  Whether it was done; raises what it raises."""
    task = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
            return True
        return False
    finally:
        for each in (waiting, task):
            each.cancel()
        await asyncio.gather(waiting, task, return_exceptions=True)
