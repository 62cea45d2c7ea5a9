"""`sarit write`: a line of standard input or of a file is an event."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

import click

import sarit
from sarit.cli.options import STREAM, controller_option, format_option, show
from sarit.cli.pipes import Interrupts, end_interrupted, lines
from sarit.core.errors import Invalid, SaritError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.client.blocking.streams import EventWriter
    from sarit.core.names import StreamName


@click.command()
@click.argument("name", type=STREAM)
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--key", help="The routing key of all events.")
@click.option(
    "--key-separator", metavar="TEXT", help="The text before it in each line is the routing key of that line."
)
@click.option("--create", is_flag=True, help="Create scope and stream when they are missing.")
@controller_option
@format_option
def write(
    name: StreamName,
    file: BinaryIO,
    key: str | None,
    key_separator: str | None,
    create: bool,
    controller: str,
    output: str,
) -> None:
    """Write each line of FILE (default: standard input) to SCOPE/STREAM as one event.

    Ends when all events are durable, and prints their number.  Ctrl-C stops reading and writes the lines that were
    read; a second one does not wait for them.
    """
    if key is not None and key_separator is not None:
        raise click.UsageError("--key or --key-separator, not both")
    separator = key_separator.encode() if key_separator else None
    count = _Count()
    with sarit.connect(controller) as client, Interrupts(again=True) as interrupts:
        if create:
            client.create_scope(name.scope)
            client.create_stream(name)
        stopped: BaseException | None = None
        try:
            with client.writer(name) as writer:
                stopped = _copy(file, writer, interrupts, count, lambda line: _event(line, key, separator, count.read))
                interrupts.wait(writer.flush)
                count.durable = count.read
        except (KeyboardInterrupt, SaritError, OSError) as error:
            stopped = error
        report: dict[str, object] = {"stream": str(name), "events": count.durable}
        text = f"{count.durable} events written to {name}"
        if unknown := count.read - count.durable:
            report["unknown"] = unknown
            text += f"; the outcome of {unknown} more is unknown"
        try:
            show(output, report, text)
        except OSError:  # the pipe is closed or the disk is full: report first what ended the writing
            if stopped is None:
                raise
            sys.stdout = None  # otherwise flushing it at exit fails the process
    if isinstance(stopped, KeyboardInterrupt):
        end_interrupted()
    if stopped is not None:
        raise stopped


@dataclass(slots=True)
class _Count:
    """Events: passed to the writer, and known to be acknowledged."""

    read: int = 0
    durable: int = 0

    def reached(self, events: int) -> None:
        self.durable = max(self.durable, events)


def _copy(
    file: BinaryIO,
    writer: EventWriter,
    interrupts: Interrupts,
    count: _Count,
    event_of: Callable[[bytes], tuple[bytes, str | None]],
) -> BaseException | None:
    """Write the lines of `file`; the error that ended it early, if any.  Raises the writer's failure."""
    with _progress(file) as bar:
        try:
            for batch in lines(file.fileno(), interrupts):
                for line in batch:
                    event, key = event_of(line)
                    writer.write(event, key)
                    count.read += 1
                writer.when_durable(partial(count.reached, count.read))
                bar.update(sum(map(len, batch)) + len(batch))
        except Invalid as error:
            return error
        except KeyboardInterrupt as error:
            if interrupts.asked > 1:
                raise
            return error
    return None


def _event(line: bytes, key: str | None, separator: bytes | None, before: int) -> tuple[bytes, str | None]:
    event = line.removesuffix(b"\r")
    if separator is not None:
        head, found, tail = event.partition(separator)
        if found:
            return tail, _key(head, before)
    return event, key


def _key(text: bytes, events: int) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise Invalid(f"line {events + 1}: its key is not UTF-8; the lines before it are written") from None


def _progress(file: BinaryIO) -> click._termui_impl.ProgressBar[int]:
    """A bar over the bytes of a file, shown on a terminal alone."""
    try:
        size = os.fstat(file.fileno()).st_size
    except OSError:
        size = 0
    hidden = not sys.stderr.isatty() or size == 0
    return click.progressbar(length=size, label="writing", file=sys.stderr, hidden=hidden)
