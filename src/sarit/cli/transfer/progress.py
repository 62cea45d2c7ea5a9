"""The file of progress beside an export or an import, and the line on the terminal."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from sarit.cli.transfer.limits import TRANSFER_SHOW_SECONDS
from sarit.core.bounded_json import parse_json
from sarit.core.errors import Invalid
from sarit.core.limits import MIB

if TYPE_CHECKING:
    from pathlib import Path

    from sarit.env.ports import Clock

_VERSION: Final = 1
_SECONDS_PER_MINUTE: Final = 60


class Noted:
    """The file of progress.  It is replaced as a whole, and durable when `write` returns."""

    def __init__(self, path: Path | None, described: dict[str, Any]) -> None:
        """`described`: what must be the same when it is resumed; None for a path: nothing is noted."""
        self.path = path
        self._described = described
        self._created: str | None = None

    def read(self) -> dict[str, Any] | None:
        """Return the progress that was noted; None at the beginning.  Raises Invalid: it is of something else, or
        damaged."""
        if self.path is None or not self.path.exists():
            return None
        try:
            found = parse_json(self.path.read_text())
            version, described, noted = found["version"], found["of"], found["noted"]
            self._created = found.get("created")
        except (ValueError, KeyError, TypeError):
            raise Invalid(f"{self.path} is no file of progress: delete it to begin again") from None
        if version != _VERSION:
            raise Invalid(f"{self.path} is of version {version}, and this Sarit reads version {_VERSION}")
        for name, wanted in self._described.items():
            if described.get(name) != wanted:
                raise Invalid(
                    f"{self.path} is of another run: {name} was {described.get(name)}, and is {wanted}. Repeat it as "
                    "it was, or delete that file to begin again"
                )
        return dict(noted)

    def belongs_to(self, created: bytes | None) -> None:
        """Note the creation id of the stream.  Raises Invalid when what was read is of an earlier one of its name."""
        now = None if created is None else created.hex()
        if now is not None and self._created is not None and now != self._created:
            raise Invalid(
                f"{self._described['stream']} was deleted and made again since {self.path} was written: delete that "
                "file (and what was exported) to begin again"
            )
        self._created = now or self._created

    def write(self, noted: dict[str, Any]) -> None:
        """Raises OSError."""
        if self.path is None:
            return
        beside = self.path.with_name(self.path.name + ".tmp")
        with beside.open("w") as file:
            whole = {"version": _VERSION, "of": self._described, "created": self._created, "noted": noted}
            json.dump(whole, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.path)

    def remove(self) -> None:
        """Remove the file of progress: the transfer is complete."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


class Shown:
    """One line on a terminal: how much, how fast, how long still.  Elsewhere nothing."""

    def __init__(self, clock: Clock, total_bytes: int) -> None:
        self.events = 0
        self.bytes = 0
        self._total = total_bytes
        self._clock = clock
        self._began = self._last = clock.monotonic()
        self._visible = sys.stderr.isatty()

    def add(self, events: int, count: int) -> None:
        """So many more, and their bytes."""
        self.events += events
        self.bytes += count
        now = self._clock.monotonic()
        if self._visible and now - self._last >= TRANSFER_SHOW_SECONDS:
            self._last = now
            sys.stderr.write(f"\r\x1b[K{self.text(now - self._began)}")
            sys.stderr.flush()

    def text(self, seconds: float) -> str:
        """Return the line."""
        rate = self.bytes / max(seconds, 1e-3)
        text = f"{self.events:,} events, {self.bytes / MIB:.1f} MiB, {rate / MIB:.1f} MiB/s"
        if self._total > 0:
            left = max(self._total - self.bytes, 0) / max(rate, 1)
            minutes, rest = divmod(round(left), _SECONDS_PER_MINUTE)
            text += f", {min(100, 100 * self.bytes // self._total)} %, {minutes}:{rest:02d} left"
        return text

    def end(self) -> None:
        """Take the line away."""
        if self._visible:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
