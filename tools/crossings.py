"""Which functions of a package run while something is done, recorded by the interpreter's profile hook.

A function is a `def` or a `lambda` of a counted file (see `levels.is_counted`); a comprehension belongs to the function
it stands in, as it does for Python itself from 3.12 on.

- A function, and with it its module, is *entered* when it is called, or when a coroutine or generator of it goes on.
- A *call* is the beginning of a function; that of a coroutine or generator is its first step, and who takes that step
  is the caller.  A coroutine that goes on after an `await` is no new call.
- A *crossing* is a call of a function by another module: the nearest caller that lies in the package counts, whatever
  lies between (`map`, `asyncio`).
- A *hand-over* is a call that no function of the package waits for: by the event loop, by a thread as its first, or by
  who does the thing that is recorded.  It is no crossing.

All threads that start after `Recorder.install` are heard, and the one that calls it.
"""

from __future__ import annotations

import dis
import sys
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tools.levels import is_counted, module_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType

_IN_THEIR_FUNCTION: Final = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}


@dataclass(frozen=True, slots=True, order=True)
class Function:
    """A function by module and qualified name."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"


@dataclass(frozen=True, slots=True)
class Step:
    """One entry into a function; `caller` is the nearest function of the package that waits for it."""

    function: Function
    caller: Function | None
    is_call: bool

    @property
    def is_crossing(self) -> bool:
        """Whether another module calls."""
        return self.is_call and self.caller is not None and self.caller.module != self.function.module


class Way:
    """The steps of one recording, in the order in which they came."""

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps

    def modules(self) -> Counter[str]:
        """How often each module was entered."""
        return Counter(step.function.module for step in self.steps)

    def crossings(self) -> list[Step]:
        """The crossings, in order."""
        return [step for step in self.steps if step.is_crossing]

    def figures(self) -> dict[str, int]:
        """Numbers of modules and functions entered, of calls, of crossings and of hand-overs."""
        calls = [step for step in self.steps if step.is_call]
        return {
            "modules": len(self.modules()),
            "functions": len({step.function for step in self.steps}),
            "calls": len(calls),
            "crossings": len(self.crossings()),
            "hand-overs": sum(step.caller is None for step in calls),
        }


def quietest(ways: list[Way]) -> Way:
    """The one with the fewest modules, then crossings, then calls: timers and other work only add."""

    def noise(way: Way) -> tuple[int, ...]:
        figures = way.figures()
        return figures["modules"], figures["crossings"], figures["calls"]

    return min(ways, key=noise)


class Recorder:
    """Hears all calls in the package whose folder is `root`, and keeps those of its recordings."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._functions: dict[CodeType, Function | None] = {}
        self._first: dict[CodeType, int] = {}
        self._steps: list[Step] | None = None

    @contextmanager
    def install(self) -> Iterator[None]:
        """Listen; must come before the threads of interest start."""
        threading.setprofile(self._hear)
        sys.setprofile(self._hear)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    @contextmanager
    def record(self) -> Iterator[Way]:
        """Keep what is heard on all threads until the block ends."""
        way = Way([])
        self._steps = way.steps
        try:
            yield way
        finally:
            self._steps = None

    def _hear(self, frame: FrameType, event: str, _: object) -> None:
        steps = self._steps
        if steps is None or event != "call" or (function := self._function(frame.f_code)) is None:
            return
        caller, above = None, frame.f_back
        while above is not None and (caller := self._function(above.f_code)) is None:
            above = above.f_back
        steps.append(Step(function, caller, frame.f_lasti <= self._first[frame.f_code]))

    def _function(self, code: CodeType) -> Function | None:
        """What a frame runs; None when it is none of ours."""
        if code not in self._functions:
            path = Path(code.co_filename)
            ours = path.is_relative_to(self._root) and is_counted(self._root, path)
            if ours and code.co_name not in _IN_THEIR_FUNCTION:
                self._functions[code] = Function(module_name(self._root, path), code.co_qualname)
                # A coroutine's first run is the one that stands at its first RESUME.
                self._first[code] = next((at.offset for at in dis.get_instructions(code) if at.opname == "RESUME"), 0)
            else:
                self._functions[code] = None
        return self._functions[code]
