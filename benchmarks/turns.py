"""Counts the turns of an event loop: how long each one held the processor, and what ran in the worst.

While a turn lasts, nothing else of the node is served.  Its length is the processor time of the loop's thread: waiting
for the disk, for the interpreter lock or for a busy machine does not count.  `TurnLoop` is asyncio's own loop: it runs
Python code where uvloop runs C, so its turns are rather longer.
"""

from __future__ import annotations

import asyncio
import gc
import time
from dataclasses import dataclass, field
from types import CoroutineType
from typing import Any, Final

LONG_TURN_SECONDS: Final = 0.02
NAMED_SECONDS: Final = 0.002  # what ran is noted from this length on
WORST_TURNS: Final = 5


@dataclass(order=True)
class Turn:
    """One turn: its processor time in seconds, and its longest parts."""

    seconds: float
    parts: list[tuple[float, str]] = field(compare=False)


@dataclass
class Turns:
    """What a loop did since `begin`."""

    count: int = 0
    long: int = 0
    longest: float = 0.0
    spent: float = 0.0
    worst: list[Turn] = field(default_factory=list)

    def add(self, seconds: float, parts: list[tuple[float, str]]) -> None:
        """Count one turn."""
        self.count += 1
        self.spent += seconds
        self.long += seconds > LONG_TURN_SECONDS
        self.longest = max(self.longest, seconds)
        if len(self.worst) < WORST_TURNS or seconds > self.worst[-1].seconds:
            self.worst = sorted([*self.worst, Turn(seconds, sorted(parts, reverse=True)[:4])], reverse=True)
            del self.worst[WORST_TURNS:]

    def report(self) -> dict[str, Any]:
        """As JSON: lengths in ms, the worst turns with what ran."""
        return {
            "turns": self.count, "long_turns": self.long, "longest_turn_ms": round(self.longest * 1000, 1),
            "busy_s": round(self.spent, 2),
            "worst": [
                {"ms": round(turn.seconds * 1000, 1),
                 "ran": [f"{seconds * 1000:.1f} ms {what}" for seconds, what in turn.parts]}
                for turn in self.worst
            ],
        }  # fmt: skip


class TurnLoop(asyncio.SelectorEventLoop):
    """asyncio's loop, which counts its turns in `turns` from `begin` on."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: Turns | None = None
        self._parts: list[tuple[float, str]] = []
        self._collecting = 0.0
        gc.callbacks.append(self._collected)

    def begin(self) -> None:
        """Count from the next turn on."""
        self.turns = Turns()

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.thread_time()
        else:
            took = time.thread_time() - self._collecting
            if took >= NAMED_SECONDS:
                self._parts.append((took, f"garbage collection of generation {info['generation']}"))

    def _run_once(self) -> None:
        begun = time.thread_time()
        super()._run_once()  # type: ignore[misc]  # of BaseEventLoop
        if self.turns is not None:
            self.turns.add(time.thread_time() - begun, self._parts)
        self._parts = []

    def note(self, seconds: float, callback: Any) -> None:
        """A callback took `seconds`."""
        self._parts.append((seconds, _described(callback)))


def _described(callback: Any) -> str:
    owner = getattr(callback, "__self__", None)
    if not isinstance(owner, asyncio.Task):
        return str(getattr(callback, "__qualname__", callback))
    # Where the task waits now: the step that ended there is what took so long.
    coroutine: Any = owner.get_coro()
    name, places = coroutine.__qualname__, []
    while isinstance(coroutine, CoroutineType):
        if coroutine.cr_frame is not None:
            places.append(f"{coroutine.__name__}:{coroutine.cr_frame.f_lineno}")
        coroutine = coroutine.cr_await
    return f"task {name}, then at {' > '.join(places) or 'its end'}"


# Its private parts: asyncio has no public way to see what runs.
_Handle: Any = asyncio.Handle
_plain_run = _Handle._run


def _run(self: Any) -> None:
    begun = time.thread_time()
    _plain_run(self)
    took = time.thread_time() - begun
    if took >= NAMED_SECONDS and isinstance(self._loop, TurnLoop):
        self._loop.note(took, self._callback)


def run(main: Any) -> Any:
    """Run a coroutine on a `TurnLoop`."""
    _Handle._run = _run
    with asyncio.Runner(loop_factory=TurnLoop) as runner:
        return runner.run(main)
