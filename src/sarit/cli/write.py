"""`sarit write`: a line of standard input or of a file is an event."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, BinaryIO

import click

import sarit
from sarit.cli.options import STREAM, controller_option, format_option, show
from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from sarit.core.names import StreamName

_LINES_PER_UPDATE = 1000


@click.command()
@click.argument("name", type=STREAM)
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--key", help="The routing key of all events.")
@click.option("--key-separator", metavar="TEXT", help="What stands before it in each line is the line's routing key.")
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

    Ends when all events are durable.  Ctrl-C stops reading, and writes what was read.
    """
    if key is not None and key_separator is not None:
        raise click.UsageError("--key or --key-separator, not both")
    separator = key_separator.encode() if key_separator else None
    events = 0
    stopped: BaseException | None = None
    with sarit.connect(controller) as client:
        if create:
            client.create_scope(name.scope)
            client.create_stream(name)
        with client.writer(name) as writer, _progress(file) as bar:
            read = 0
            try:
                for line in file:
                    writer.write(*_event(line, key, separator, events))
                    events += 1
                    read += len(line)
                    if events % _LINES_PER_UPDATE == 0:
                        bar.update(read)
                        read = 0
            except (KeyboardInterrupt, Invalid) as error:
                stopped = error
            writer.flush()
            bar.update(read)
    show(output, {"stream": str(name), "events": events}, f"{events} events written to {name}")
    if isinstance(stopped, KeyboardInterrupt):
        sys.exit(130)
    if stopped is not None:
        raise stopped


def _event(line: bytes, key: str | None, separator: bytes | None, before: int) -> tuple[bytes, str | None]:
    event = line.removesuffix(b"\n").removesuffix(b"\r")
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
