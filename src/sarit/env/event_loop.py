"""The event loop: uvloop where it is installed, else asyncio's own (docs/decisions/0801)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a loop that does not run yet."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on an event loop of its own, and return its result."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)
