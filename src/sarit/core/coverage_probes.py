"""Places worth reaching, by name: a test that never came there has shown nothing about them.

Code calls `coverage_probe("log_rolled")` where something rare happens.  Nobody listens in production.  The simulation
counts what its seeds reach (and may end the process there): docs/testing.md.  After FoundationDB's `CODE_PROBE` and
TigerBeetle's coverage marks.  Not for hot paths: once for an event of the node, never once for an append.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_listeners: list[Callable[[str], None]] = []


def coverage_probe(name: str) -> None:
    """This place was reached."""
    for listener in _listeners:
        listener(name)


@contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """Have `listener` called with every name that is reached meanwhile.  Not for several threads."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
