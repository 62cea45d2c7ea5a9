"""A progress bar for commands that read or copy much."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar


class Bar:
    """A progress bar for each part, on a terminal alone."""

    def __init__(self) -> None:
        self._bar: ProgressBar[int] | None = None

    def begin(self, label: str, length: int) -> None:
        """A part begins, of `length` bytes; the one before has ended."""
        self.end()
        if sys.stderr.isatty() and length:
            self._bar = click.progressbar(length=length, label=label, file=sys.stderr)
            self._bar.__enter__()

    def add(self, length: int) -> None:
        """So many bytes of it are done."""
        if self._bar is not None:
            self._bar.update(length)

    def end(self) -> None:
        """The last part has ended."""
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            self._bar = None
