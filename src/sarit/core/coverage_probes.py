"""Coverage probes: named places in the code that tests should reach.

Code calls `coverage_probe("log_rolled")` where something rare happens.  There is no listener in production.  The
simulation counts the probes that its seeds reach, and may end the process there: docs/testing.md.

Modelled on FoundationDB's `CODE_PROBE` and TigerBeetle's coverage marks.  Not for hot paths: at most once per event of
the node, never once per append.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_listeners: list[Callable[[str], None]] = []


def coverage_probe(name: str) -> None:
    """Report that this place was reached."""
    for listener in _listeners:
        listener(name)


@contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """Call `listener` with every name that is reached within the block.  Not thread-safe."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
