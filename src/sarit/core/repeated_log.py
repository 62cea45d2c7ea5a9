"""Logs a condition that lasts: at once, and then once a minute, with how often it occurred if it is counted."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sarit.core.limits import MAX_REPEATED_LOG_KEYS, REPEATED_LOG_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable


class RepeatedLog:
    """Writes log lines by key: a key stands for a condition, whose text may change.

    `now` returns seconds.  `counted`: lines say how often the condition occurred; False for what is only polled."""

    def __init__(self, logger: logging.Logger, now: Callable[[], float], *, counted: bool = True) -> None:
        self._logger = logger
        self._now = now
        self._counted = counted
        self._last: dict[Hashable, tuple[float, int]] = {}  # -> when it was logged, how often it occurred since

    def info(self, key: Hashable, text: str) -> None:
        """Log a line at level INFO, unless this key was logged within REPEATED_LOG_SECONDS."""
        self._report(logging.INFO, key, text)

    def warning(self, key: Hashable, text: str) -> None:
        """Log as `info` does, at level WARNING."""
        self._report(logging.WARNING, key, text)

    def error(self, key: Hashable, text: str) -> None:
        """Log as `info` does, at level ERROR."""
        self._report(logging.ERROR, key, text)

    def critical(self, key: Hashable, text: str) -> None:
        """Log as `info` does, at level CRITICAL, with the traceback of the error that is handled."""
        self._report(logging.CRITICAL, key, text)

    def ended(self, key: Hashable) -> None:
        """Forget a condition that has ended, so that its next occurrence is logged at once."""
        self._last.pop(key, None)

    def _report(self, level: int, key: Hashable, text: str) -> None:
        now = self._now()
        at, count = self._last.pop(key, (None, 0))
        if at is not None and now - at < REPEATED_LOG_SECONDS:
            self._last[key] = (at, count + 1)
            return
        if at is not None and count and self._counted:
            text = f"{text} ({count} times more in the last {now - at:.0f} s)"
        self._logger.log(level, "%s", text, exc_info=level >= logging.CRITICAL)
        self._last[key] = (now, 0)
        if len(self._last) > MAX_REPEATED_LOG_KEYS:
            del self._last[next(iter(self._last))]
