"""Marks (pure): "everything written up to here is acknowledged" over many segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class FlushBarrier:
    """Counts the lanes that still hold events written before it; calls `done` when none does."""

    __slots__ = ("_done", "_left")

    def __init__(self, done: Callable[[], object]) -> None:
        self._done = done
        self._left = 1  # the one who places the mark

    def add_appender(self) -> None:
        """Another lane must pass the mark."""
        self._left += 1

    def appender_passed(self) -> None:
        """A lane passed (or the mark is placed everywhere)."""
        self._left -= 1
        if not self._left:
            self._done()
