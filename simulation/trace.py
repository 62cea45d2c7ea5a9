"""The trace of a run: its last lines, to show on failure, and a hash over all of it, to compare runs.

The hash covers every step of the loop (which task or callback queue ran), every message of the network, every
log record, fault and operation, with virtual times.  Two runs of one seed must agree in it, in different processes
and hash seeds; `--trace FILE` writes all lines, so that `diff` finds the first that differs.
"""

from __future__ import annotations

import logging
from array import array
from collections import deque
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

LAST_LINES = 200
_STEPS_PER_HASH = 4096


class Trace:
    """Lines and steps of one run; also the tracer that detangle's loop and network call."""

    def __init__(self, now: Callable[[], float] = lambda: 0.0, sink: TextIO | None = None) -> None:
        self.now = now
        self.last: deque[str] = deque(maxlen=LAST_LINES)
        self.lines = 0
        self._sink = sink
        self._hash = blake2b(digest_size=16)
        self._unhashed: list[str] = []
        self._said_at, self._time = -1.0, ""
        # Steps that ran: the loop appends them, and calls `hash_steps` when there are `most_steps`.
        self.ran = array("q")
        self.most_steps = _STEPS_PER_HASH
        self.probes: dict[str, int] = {}

    def note(self, kind: str, *fields: object) -> None:
        """Something happened.  Fields must be the same in every process: no addresses, no ids, no sets."""
        self.say(kind, " ".join(map(str, fields)))

    def say(self, kind: str, text: str) -> None:
        """As `note`, with the text ready."""
        now = self.now()
        if now != self._said_at:
            self._said_at, self._time = now, f"{now:.6f}"
        line = f"{self._time} {kind} {text}"
        self.lines += 1
        self.last.append(line)
        self._unhashed.append(line)
        if self._sink is not None:
            self._sink.write(line + "\n")

    def probe(self, name: str) -> None:
        """Count a coverage probe: a place in the code was reached, or a fault was injected."""
        self.probes[name] = self.probes.get(name, 0) + 1

    def digest(self) -> str:
        """The hash of everything so far."""
        self._hash_all()
        return self._hash.hexdigest()

    def hash_steps(self) -> None:
        """Add the collected steps to the hash."""
        self._hash_all()
        if self._sink is not None:
            self._sink.write(f"{self.now():.6f} steps {self._hash.hexdigest()}\n")

    def _hash_all(self) -> None:
        self._hash.update("".join(self._unhashed).encode())
        self._unhashed.clear()
        self._hash.update(self.ran.tobytes())
        del self.ran[:]

    # -- called by detangle ---------------------------------------------------------------------

    def on_spawn(self, task: object, info: Any) -> None:
        """A task was made."""
        self.ran.append(-info.id)

    def on_net(self, kind: str, text: str) -> None:
        """The network did something."""
        self.say(kind, text)

    def on_deviation(self, lanes: object) -> None:
        """The scheduler left asyncio's order; the steps show it."""

    def on_fault(self, text: str) -> None:
        """detangle injected a fault."""
        self.note("fault", text)

    def on_unhandled(self, context: dict[str, Any]) -> None:
        """A callback raised."""
        self.note("unhandled", context.get("message"), repr(context.get("exception")))


class TraceLog(logging.Handler):
    """Log records of the system under test, as lines of the trace."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(logging.INFO)
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        """One record."""
        error = f" [{record.exc_info[1]!r}]" if record.exc_info and record.exc_info[1] is not None else ""
        self._trace.note("log", record.levelname, record.name, record.getMessage() + error)
