"""`sarit write`: a line of standard input or of a file is an event."""

from __future__ import annotations

import base64
import json
import os
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

import click

import sarit
from sarit.cli.envelopes import envelope_parts
from sarit.cli.names import STREAM
from sarit.cli.options import controller_option, count_of, format_option, show
from sarit.cli.pipes import Interrupts, end_interrupted, lines
from sarit.core.errors import Invalid, SaritError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.cli.envelopes import EnvelopeParts
    from sarit.client.blocking.streams import EventWriter
    from sarit.core.envelope import Envelope
    from sarit.core.names import StreamName


@click.command()
@click.argument("name", type=STREAM)
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--key", help="The routing key of all events.")
@click.option(
    "--key-separator", metavar="TEXT", help="The text before it in each line is the routing key of that line."
)
@click.option("--key-optional", is_flag=True, help="With --key-separator: a line without it is an event without a key.")
@click.option(
    "--input",
    "shape",
    type=click.Choice(["lines", "json"]),
    default=None,
    help="What a line is: the event itself, or a JSON document.  [default: json with --format json, else lines]",
)
@click.option("--envelope", is_flag=True, help="Write envelopes: the key travels with the event, and so do these:")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE", help="With --envelope: a header of all events."
)
@click.option(
    "--event-time", metavar="TIME", help='With --envelope: the time of all events, as "now" or "2026-01-31T12:00:00Z".'
)
@click.option("--create", is_flag=True, help="Create scope and stream when they are missing.")
@controller_option
@format_option
def write(
    name: StreamName,
    file: BinaryIO,
    key: str | None,
    key_separator: str | None,
    key_optional: bool,
    shape: str | None,
    envelope: bool,
    headers: tuple[str, ...],
    event_time: str | None,
    create: bool,
    controller: str,
    output: str,
) -> None:
    """Write each line of FILE (default: standard input) to SCOPE/STREAM as one event.

    With --format json a line is a JSON document, as `sarit read --format json` prints it: the event as "event", or
    as "event_base64" when it is not UTF-8 text, and its routing key, if it has one, as "key".  With --envelope it may
    have an "event_time", and "headers" as a list of objects with "name" and "value".

    Ends when all events are durable, and prints their number.  Ctrl-C stops reading and writes the lines that were
    read; a second one does not wait for them.  Started with SIGINT ignored, as by nohup or in the background of a
    script, it goes on ignoring it.
    """
    if key is not None and key_separator is not None:
        raise click.UsageError("--key or --key-separator, not both")
    as_json = (shape or ("json" if output == "json" else "lines")) == "json"
    if as_json and key_separator is not None:
        raise click.UsageError('a JSON document has its key as "key": give --input lines to use --key-separator')
    if key_optional and key_separator is None:
        raise click.UsageError("--key-optional needs --key-separator")
    parts = envelope_parts(envelope, headers, event_time)
    separator = key_separator.encode() if key_separator else None
    count = _Count()

    def event_of(line: bytes) -> tuple[bytes | Envelope, str | None]:
        number = count.read + 1
        if as_json:
            return _document(line, key, number, parts)
        event, own_key = _event(line, key, separator, number, optional=key_optional)
        return event if parts is None else parts.envelope(event, own_key), own_key

    with sarit.connect(controller) as client, Interrupts(again=True) as interrupts:
        if create:
            client.create_scope(name.scope)
            client.create_stream(name)
        stopped: BaseException | None = None
        try:
            with client.writer(name) as writer:
                stopped = _copy(file, writer, interrupts, count, event_of)
                interrupts.wait(writer.flush)
                count.durable = count.read
        except (KeyboardInterrupt, SaritError, OSError) as error:
            stopped = error
        report: dict[str, object] = {"stream": str(name), "events": count.durable}
        text = f"{count_of(count.durable, 'event')} written to {name}"
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
    event_of: Callable[[bytes], tuple[bytes | Envelope, str | None]],
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


def _event(
    line: bytes, key: str | None, separator: bytes | None, number: int, *, optional: bool
) -> tuple[bytes, str | None]:
    event = line.removesuffix(b"\r")
    if separator is None:
        return event, key
    head, found, tail = event.partition(separator)
    if found:
        return tail, _key(head, number)
    if optional:
        return event, None
    raise _bad_line(number, f"it has no key separator {separator.decode()!r}; --key-optional takes such lines")


def _key(text: bytes, number: int) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise _bad_line(number, "its key is not UTF-8") from None


def _document(
    line: bytes, key: str | None, number: int, parts: EnvelopeParts | None
) -> tuple[bytes | Envelope, str | None]:
    """Event and key of a JSON document.  Raises Invalid."""
    try:
        found = json.loads(line)
    except ValueError:
        raise _bad_line(number, "it is not a JSON document; --input lines takes lines as they are") from None
    if not isinstance(found, dict) or ("event" in found) == ("event_base64" in found):
        raise _bad_line(number, 'it is not a JSON object with either "event" or "event_base64"')
    event, own_key = found.get("event", found.get("event_base64")), found.get("key", key)
    if not isinstance(event, str) or not (own_key is None or isinstance(own_key, str)):
        raise _bad_line(number, "its event and its key must be strings")
    try:
        data = event.encode() if "event" in found else base64.b64decode(event, validate=True)
        if own_key is not None:
            own_key.encode()
    except ValueError as error:
        raise _bad_line(number, f"its event or key cannot be decoded: {error}") from None
    if parts is None:
        return data, own_key
    try:
        return parts.of_document(data, own_key, found), own_key
    except ValueError as error:
        raise _bad_line(number, f"a header cannot be decoded: {error}") from None
    except Invalid as error:
        raise _bad_line(number, str(error)) from None


def _bad_line(number: int, why: str) -> Invalid:
    return Invalid(f"line {number}: {why}; the lines before it are written")


def _progress(file: BinaryIO) -> click._termui_impl.ProgressBar[int]:
    """A bar over the bytes of a file, shown on a terminal alone."""
    try:
        size = os.fstat(file.fileno()).st_size
    except OSError:
        size = 0
    hidden = not sys.stderr.isatty() or size == 0
    return click.progressbar(length=size, label="writing", file=sys.stderr, hidden=hidden)
