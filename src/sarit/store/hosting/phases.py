"""The times of the phases of an opening or a close, for a line in the log of the store."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sarit.env.ports import Clock


class Phases:
    """The seconds of each phase, in order; `str` gives the whole time, then the phases."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._seconds: dict[str, float] = {}
        self._now = ""
        self._progress: Callable[[], str] = str

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {seconds:.3f}" for name, seconds in self._seconds.items())
        return f"{self.seconds:.3f} s ({parts})"

    @property
    def seconds(self) -> float:
        """How many seconds have passed since the first phase."""
        return self._clock.monotonic() - self._began

    def now(self) -> str:
        """Return the present phase and how far it is; empty between two phases."""
        progress = self._progress()
        return f"{self._now}, {progress}" if self._now and progress else self._now

    @contextmanager
    def phase(self, name: str, progress: Callable[[], str] = str) -> Iterator[None]:
        """Add the time of the `with` block to the phase `name`, also when the block raises.

        `progress`: returns how far the phase is, as a text."""
        began = self._clock.monotonic()
        self._now, self._progress = name, progress
        try:
            yield
        finally:
            self._now, self._progress = "", str
            self._seconds[name] = self._seconds.get(name, 0.0) + self._clock.monotonic() - began
