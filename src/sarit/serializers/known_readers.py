"""Readers of events by the number that headers name: each schema is asked for once, and an unknown one once in a while.

The machine asks nobody: whoever uses it asks the registry in its own way, on a thread, on an event loop or at once, and
tells what was found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from sarit.serializers.limits import MAX_CACHED_SCHEMAS, UNKNOWN_SCHEMA_SECONDS
from sarit.serializers.recent_values import RecentValues

if TYPE_CHECKING:
    from sarit.env.ports import Clock

R = TypeVar("R")


class NoReader(NamedTuple):
    """The answer for a number whose events cannot be read.  `until`: when it is asked for again; None: never."""

    why: str
    until: float | None = None


class KnownReaders(Generic[R]):
    """The readers that were used last, by number, and why other numbers have none.  May be shared by threads."""

    def __init__(self, clock: Clock | None = None, most: int = MAX_CACHED_SCHEMAS) -> None:
        """`clock`: None: a number without a reader is not asked for again."""
        self._clock = clock
        self._found = RecentValues[int, R](most)
        # Apart from those with readers: numbers that anybody may write into events drive no schema out.
        self._missing = RecentValues[int, NoReader](most)

    def __repr__(self) -> str:
        return f"<KnownReaders, {len(self._found)} schemas, {len(self._missing)} unknown>"

    def get(self, number: int) -> R | NoReader | None:
        """Return the reader of a number, or why it has none; None: the registry is to be asked."""
        found = self._found.get(number)
        if found is not None:
            return found
        missing = self._missing.get(number)
        if missing is None:
            return None
        if missing.until is not None and self._clock is not None and self._clock.monotonic() >= missing.until:
            self._missing.drop(number)
            return None
        return missing

    def add(self, number: int, reader: R) -> R:
        """Keep a reader, and return it."""
        self._found.put(number, reader)
        return reader

    def add_missing(self, number: int, why: str) -> NoReader:
        """Keep why a number has no reader, for a while, and return it."""
        until = None if self._clock is None else self._clock.monotonic() + UNKNOWN_SCHEMA_SECONDS
        missing = NoReader(why, until)
        self._missing.put(number, missing)
        return missing


__all__ = ["KnownReaders", "NoReader"]
