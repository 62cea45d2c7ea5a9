"""Standard input and output of `read` and `write`: whatever ends them, the commands know how far they got.

Ctrl-C raises KeyboardInterrupt between any two instructions, for example between writing an event and counting it.  So
here the handler only sets a flag, and the exception is raised where the command waits and nothing can be lost.  Pipes
may be non-blocking.  That must not be changed: other processes share them.
"""

from __future__ import annotations

import os
import select
import signal
import stat
import sys
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

import click

from sarit.cli.limits import (
    FILE_WRITE_BYTES,
    INTERRUPT_POLL_SECONDS,
    MAX_LINE_BYTES,
    PIPE_WRITE_BYTES,
    STDIN_READ_BYTES,
)
from sarit.client.limits import MAX_EVENT_BYTES
from sarit.core.errors import Invalid
from sarit.core.limits import MIB
from sarit.env.real import RealClock
from sarit.process.limits import REPEATED_SIGNAL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

T = TypeVar("T")
TOO_LONG: Final = f"longer than {MAX_LINE_BYTES // MIB} MiB, which no event is: is the file of another format?"


class Interrupts:
    """Handles Ctrl-C within a `with` block: raised in `wait` alone; with `again`, a second one is raised anywhere.

    After a block that received one, the process is about to end: a second one is raised anywhere.  A signal within
    REPEATED_SIGNAL_SECONDS counts as the same one."""

    def __init__(self, *, again: bool = False) -> None:
        self._again = again
        self.asked = 0
        self._clock = RealClock()
        self._last = 0.0
        self._raised = 0
        self._waiting = False
        self._before: object = None

    def __enter__(self) -> Interrupts:
        self._before = signal.getsignal(signal.SIGINT)
        if self._before is not signal.SIG_IGN:  # ignored in the background of a shell: leave it so
            signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        self._again = True
        if not self.asked:  # otherwise the command is ending, and a wrapper may still forward the signal
            signal.signal(signal.SIGINT, self._before or signal.SIG_DFL)  # type: ignore[arg-type]

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        now = self._clock.monotonic()
        again, self._last = self.asked > 0 and now - self._last < REPEATED_SIGNAL_SECONDS, now
        if again:  # a wrapper forwarded the same signal
            return
        self.asked += 1
        if self._waiting or (self._again and self.asked > 1):
            self._raised = self.asked
            raise KeyboardInterrupt

    def wait(self, call: Callable[[], T]) -> T:
        """Return the result of `call`, which must lose nothing when Ctrl-C ends it.  Raises KeyboardInterrupt."""
        self._waiting = True
        try:
            if self.asked > self._raised:  # before this began
                self._raised = self.asked
                raise KeyboardInterrupt
            return call()
        finally:
            self._waiting = False


def end_interrupted(advice: str = "") -> NoReturn:
    """Exit with the code of Ctrl-C, whatever a wrapper forwards meanwhile.  `advice`: what to say before.

    SIGINT is ignored: the interpreter restores its default at exit, and a late signal could kill the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if advice:
        click.echo(f"sarit: {advice}", err=True)
    sys.exit(130)


def lines(descriptor: int, interrupts: Interrupts) -> Iterator[list[bytes]]:
    """Yield whole lines as they come, without their ends.  The last one may have had none.

    Raises KeyboardInterrupt, and Invalid for a line that is longer than any event."""
    half: list[bytes] = []
    size = 0
    while data := interrupts.wait(partial(_read, descriptor)):
        first, *others = data.split(b"\n")
        half.append(first)
        size += len(first)
        if size > MAX_LINE_BYTES:
            raise Invalid(f"a line is {TOO_LONG}")
        if others:
            *whole, rest = [b"".join(half), *others]
            half, size = [rest], len(rest)
            yield whole
    if last := b"".join(half):
        yield [last]


def whole_input(descriptor: int, interrupts: Interrupts) -> Iterator[list[bytes]]:
    """Yield all of the input at once.  Raises KeyboardInterrupt, and Invalid when it is longer than any event."""
    parts: list[bytes] = []
    size = 0
    while data := interrupts.wait(partial(_read, descriptor)):
        parts.append(data)
        size += len(data)
        if size > MAX_EVENT_BYTES:
            raise Invalid(f"the input is longer than {MAX_EVENT_BYTES // MIB} MiB, the most that an event may have")
    yield [b"".join(parts)]


def _read(descriptor: int) -> bytes:
    while True:
        try:
            return os.read(descriptor, STDIN_READ_BYTES)
        except BlockingIOError:
            select.select([descriptor], [], [])


class Output:
    """Writes lines to a descriptor.  `whole_lines`: how many of the latest `write` reached it, whatever ended that."""

    def __init__(self, descriptor: int, interrupts: Interrupts) -> None:
        self.whole_lines = 0
        self._descriptor = descriptor
        self._interrupts = interrupts
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._piece_bytes = FILE_WRITE_BYTES if regular else PIPE_WRITE_BYTES

    def write(self, texts: list[bytes]) -> None:
        """Write each as a line.  Ctrl-C ends it without raising, after a whole line if the descriptor is ready.

        Raises OSError: the pipe is closed, the disk is full."""
        self.whole_lines = 0
        data = memoryview(b"\n".join(texts) + b"\n")
        written = begun = 0  # bytes; the start of the current line
        while written < len(data):
            asked = self._interrupts.asked
            if asked and written == begun:
                return
            if not self._ready(0 if asked else INTERRUPT_POLL_SECONDS):
                if asked:
                    return
                continue
            end = begun + len(texts[self.whole_lines]) + 1 if asked else len(data)
            try:
                written += os.write(self._descriptor, data[written : min(end, written + self._piece_bytes)])
            except BlockingIOError:
                continue  # another writer of the same pipe filled it
            while self.whole_lines < len(texts) and begun + len(texts[self.whole_lines]) < written:
                begun += len(texts[self.whole_lines]) + 1
                self.whole_lines += 1

    def _ready(self, seconds: float) -> bool:
        return bool(select.select([], [self._descriptor], [], seconds)[1])
