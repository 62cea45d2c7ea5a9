"""A progress bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field

BAR_WIDTH = 28
TERMINAL_SECONDS = 0.1
PLAIN_SECONDS = 3.0


@dataclass
class Progress:
    """Shows `done` of `total` things with the rate since the beginning, when it was at `first`."""

    label: str
    total: int
    unit: str
    first: int = 0
    started: float = field(default_factory=time.monotonic)
    _shown: float = 0.0

    def show(self, done: int, *, last: bool = False) -> None:
        """Show it, unless that was done a moment ago."""
        now = time.monotonic()
        terminal = sys.stdout.isatty()
        if not last and now - self._shown < (TERMINAL_SECONDS if terminal else PLAIN_SECONDS):
            return
        self._shown = now
        rate = max(done - self.first, 0) / max(now - self.started, 1e-9)
        filled = BAR_WIDTH * done // max(self.total, 1)
        bar = "#" * filled + "." * (BAR_WIDTH - filled)
        text = f"{self.label:<22} [{bar}] {done:>9,} of {self.total:,} {self.unit}, {rate:,.0f}/s"
        if terminal:
            sys.stdout.write(f"\r{text}\x1b[K" + ("\n" if last else ""))
        else:
            sys.stdout.write(text + "\n")
        sys.stdout.flush()
