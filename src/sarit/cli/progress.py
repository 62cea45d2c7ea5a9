"""A progress bar for commands that read or copy much."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from sarit.core.limits import MIB

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar


class Bar:
    """A progress bar for each part, on a terminal alone."""

    def __init__(self) -> None:
        self._bar: ProgressBar[int] | None = None
        # Label, bytes done and bytes shown of a part of unknown length.
        self._counted: tuple[str, int, int] | None = None

    def begin(self, label: str, length: int | None) -> None:
        """Begin a part of `length` bytes, and end the one before.  None: count bytes, without a bar."""
        self.end()
        if not sys.stderr.isatty():
            return
        if length is None:
            self._counted = label, 0, 0
        elif length:
            self._bar = click.progressbar(length=length, label=label, file=sys.stderr)
            self._bar.__enter__()

    def add(self, length: int) -> None:
        """Add bytes that are done."""
        if self._bar is not None:
            self._bar.update(length)
        elif self._counted is not None:
            label, done, shown = self._counted
            done += length
            if done - shown >= MIB:
                click.echo(f"\r{label}  {done:,} bytes", nl=False, err=True)
                shown = done
            self._counted = label, done, shown

    def end(self) -> None:
        """End the last part."""
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            self._bar = None
        elif self._counted is not None:
            label, done, _ = self._counted
            click.echo(f"\r{label}  {done:,} bytes", err=True)
            self._counted = None
