"""Ends a long run between two seeds, at Ctrl-C or SIGTERM.

A signal raises nothing: an exception in the middle of a seed could be caught by the code under test.  The second signal
ends the process at once."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Whether somebody asked the run to end."""

    def __init__(self) -> None:
        self.asked = False

    def __repr__(self) -> str:
        return f"<StopRequest asked={self.asked}>"


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Note the first SIGINT or SIGTERM.  Only in the main thread."""
    request, before = StopRequest(), {one: signal.getsignal(one) for one in _SIGNALS}

    def note(*_: object) -> None:
        request.asked = True
        for one in _SIGNALS:
            signal.signal(one, signal.SIG_DFL)

    for one in _SIGNALS:
        signal.signal(one, note)
    try:
        yield request
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def leave_signals_to_parent() -> None:
    """Leave the process group, as the first thing in a worker of a pool: Ctrl-C ends the pool by its parent alone."""
    os.setsid()
