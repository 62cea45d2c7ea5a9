"""`sarit write`: a line of standard input or of a file is an event."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

import click

import sarit
from sarit.cli.contexts import registry_for
from sarit.cli.envelopes import envelope_parts
from sarit.cli.names import STREAM
from sarit.cli.near_names import NamedCommand
from sarit.cli.options import controller_option, count_of, format_option, show
from sarit.cli.pipes import Interrupts, end_interrupted, lines, whole_input
from sarit.cli.transfer.rows import Document, Row, from_json
from sarit.core.errors import Invalid, SaritError
from sarit.core.properties import CONFLUENT, SCHEMA_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sarit.cli.envelopes import EnvelopeParts
    from sarit.client.blocking.client import Client
    from sarit.client.blocking.streams import EventWriter
    from sarit.core.names import StreamName


@click.command(cls=NamedCommand)
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
    type=click.Choice(["lines", "json", "raw"]),
    default=None,
    help="What a line is: the event itself, or a JSON document; raw: all of FILE is one event.  [default: json with "
    "--format json, else lines]",
)
@click.option("--envelope", is_flag=True, help="Write envelopes: the key travels with the event, and so do these:")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE", help="With --envelope: a header of all events."
)
@click.option(
    "--event-time", metavar="TIME", help='With --envelope: the time of all events, as "now" or "2026-01-31T12:00:00Z".'
)
@click.option("--crlf", is_flag=True, help="Lines end with CR LF: the CR is no part of the event.")
@click.option("--drop-unknown", is_flag=True, help="Leave out fields of JSON documents that an event cannot have.")
@click.option("--schema", "subject", metavar="SUBJECT", help="Encode lines of JSON by the latest schema of SUBJECT.")
@click.option("--registry", metavar="URL", help="With --schema: where the schemas are, as of `sarit schema`.")
@click.option("--create", is_flag=True, help="Create scope and stream when they are missing.")
@controller_option
@format_option
def write(
    name: StreamName, file: BinaryIO, key: str | None, key_separator: str | None, key_optional: bool,
    shape: str | None, envelope: bool, headers: tuple[str, ...], event_time: str | None, crlf: bool,
    drop_unknown: bool, subject: str | None, registry: str | None, create: bool, controller: str, output: str,
) -> None:  # fmt: skip
    """Write each line of FILE (default: standard input) to SCOPE/STREAM as one event.

    With --format json a line is a JSON document, as `sarit read --format json` prints it: the event as "event", or
    as "event_base64" when it is not UTF-8 text, and its routing key, if it has one, as "key".  An envelope has an
    "envelope" that is true, or --envelope is given; then it may have an "event_time", and "headers" as a list of
    objects with "name" and "value".  With "envelope": false an event is written as it is.

    With --schema a line is a value as JSON, which the schema encodes; the header of the event names the schema.  A
    value is not compared with a JSON Schema.  With --create a new stream gets the property schema-header, by which
    readers know.

    Ends when all events are durable, and prints their number.  Ctrl-C stops reading and writes the lines that were
    read; a second one does not wait for them.  Started with SIGINT ignored, as by nohup or in the background of a
    script, it goes on ignoring it.
    """
    as_json = _as_json(shape, output, key, key_separator, key_optional)
    if shape == "raw" and crlf:
        raise click.UsageError("--crlf is about lines, and --input raw has none")
    url = _registry_of(subject, registry, lines_alone=not as_json and shape != "raw")
    parts = envelope_parts(envelope, headers, event_time)
    separator = key_separator.encode() if key_separator else None
    count = _Count()
    encode: Callable[[bytes], bytes] | None = None

    def event_of(line: bytes) -> Row:
        number = count.read + 1
        if as_json:
            return _document(line, key, number, parts, drop_unknown=drop_unknown)
        return _event(line.removesuffix(b"\r") if crlf else line, key, separator, number, parts, key_optional, encode)

    with sarit.connect(controller) as client, Interrupts(again=True) as interrupts:
        created = False
        if create:
            client.create_scope(name.scope)
            created = client.create_stream(name)
        # Otherwise it would show with the first event that the stream is not there.
        properties = interrupts.wait(client.stream(name).properties)
        if subject is not None:
            encode = _encoder(client, name, properties, subject, url, created=created)
        stopped: BaseException | None = None
        try:
            with client.writer(name) as writer:
                batches = whole_input if shape == "raw" else lines
                stopped = _copy(
                    batches(file.fileno(), interrupts), _progress(file), writer, interrupts, count, event_of
                )
                interrupts.wait(writer.flush)
                count.durable = count.read
        except (KeyboardInterrupt, SaritError, OSError) as error:
            stopped = error
        try:
            _report(name, count, output, lines_with_cr=not (crlf or as_json or shape == "raw"))
        except OSError:  # the pipe is closed or the disk is full: report first what ended the writing
            if stopped is None:
                raise
            sys.stdout = None  # otherwise flushing it at exit fails the process
    if isinstance(stopped, KeyboardInterrupt):
        end_interrupted()
    if stopped is not None:
        raise stopped


def _report(name: StreamName, count: _Count, output: str, *, lines_with_cr: bool) -> None:
    """Print how many events were written.  Raises OSError: the pipe is closed, the disk is full."""
    report: dict[str, object] = {"stream": str(name), "events": count.durable}
    text = f"{count_of(count.durable, 'event')} written to {name}"
    if unknown := count.read - count.durable:
        report["unknown"] = unknown
        text += f"; the outcome of {unknown} more is unknown"
    show(output, report, text)
    if count.with_cr and lines_with_cr:
        click.echo(
            f"sarit: events that end with a CR, as their lines did: {count.with_cr:,}; --crlf leaves it out", err=True
        )


def _as_json(shape: str | None, output: str, key: str | None, separator: str | None, optional: bool) -> bool:
    """Return whether lines are JSON documents.  Raises UsageError for options that contradict each other."""
    if key is not None and separator is not None:
        raise click.UsageError("--key or --key-separator, not both")
    as_json = (shape or ("json" if output == "json" else "lines")) == "json"
    if shape == "raw" and separator is not None:
        raise click.UsageError("with --input raw there is one event: give its key with --key")
    if as_json and separator is not None:
        raise click.UsageError('a JSON document has its key as "key": give --input lines to use --key-separator')
    if optional and separator is None:
        raise click.UsageError("--key-optional needs --key-separator")
    return as_json


@dataclass(slots=True)
class _Count:
    """Events that were passed to the writer, and those known to be acknowledged."""

    read: int = 0
    durable: int = 0
    with_cr: int = 0  # lines that end with CR LF

    def reached(self, events: int) -> None:
        self.durable = max(self.durable, events)


def _copy(
    batches: Iterator[list[bytes]],
    progress: click._termui_impl.ProgressBar[int],
    writer: EventWriter,
    interrupts: Interrupts,
    count: _Count,
    event_of: Callable[[bytes], Row],
) -> BaseException | None:
    """Write batches of lines.  Returns the error that ended this early, if any.  Raises the writer's failure."""
    with progress as bar:
        try:
            for batch in batches:
                for line in batch:
                    row = event_of(line)
                    writer.write(row.event, row.routing_key)
                    count.read += 1
                    count.with_cr += line.endswith(b"\r")
                writer.when_durable(partial(count.reached, count.read))
                bar.update(sum(map(len, batch)) + len(batch))
        except Invalid as error:
            return error
        except KeyboardInterrupt as error:
            if interrupts.asked > 1:
                raise
            return error
    return None


def _registry_of(subject: str | None, registry: str | None, *, lines_alone: bool) -> str:
    """Return the URL of the registry for --schema; empty without it.  Raises UsageError."""
    if subject is None:
        if registry is not None:
            raise click.UsageError("--registry is about events with a schema: give --schema, too")
        return ""
    if not lines_alone:
        raise click.UsageError("--schema encodes lines of JSON: leave --format json and --input away")
    return registry_for(click.get_current_context(), registry)


def _encoder(
    client: Client, name: StreamName, properties: Mapping[str, str], subject: str, url: str, *, created: bool
) -> Callable[[bytes], bytes]:
    """Return what encodes lines.  `created`: the stream is new: it gets the property that says what its events are."""
    from sarit.cli.line_encoder import line_encoder

    if created:
        properties = client.stream(name).set_properties({SCHEMA_HEADER: CONFLUENT})
    return line_encoder(name, properties, subject, url)


def _event(
    line: bytes, key: str | None, separator: bytes | None, number: int, parts: EnvelopeParts | None, optional: bool,
    encode: Callable[[bytes], bytes] | None,
) -> Row:  # fmt: skip
    """Return the event of a line.  Raises Invalid."""
    if separator is not None:
        head, found, tail = line.partition(separator)
        if not found and not optional:
            raise _bad_line(number, f"it has no key separator {separator.decode()!r}; --key-optional takes such lines")
        line, key = (tail, _key(head, number)) if found else (line, None)
    if parts is None and encode is None:
        return Row(line, None, key)
    try:
        return Document(line if encode is None else encode(line), key).row(parts)
    except Invalid as error:
        raise _bad_line(number, str(error)) from None


def _key(text: bytes, number: int) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise _bad_line(number, "its key is not UTF-8") from None


def _document(line: bytes, key: str | None, number: int, parts: EnvelopeParts | None, *, drop_unknown: bool) -> Row:
    """Return the event of a JSON document.  Raises Invalid."""
    try:
        return from_json(line, drop_unknown=drop_unknown, key=key).row(parts)
    except Invalid as error:
        raise _bad_line(number, str(error)) from None


def _bad_line(number: int, why: str) -> Invalid:
    return Invalid(f"line {number}: {why}; the lines before it are written")


def _progress(file: BinaryIO) -> click._termui_impl.ProgressBar[int]:
    """Return a bar over the bytes of a file, shown on a terminal alone."""
    try:
        size = os.fstat(file.fileno()).st_size
    except OSError:
        size = 0
    hidden = not sys.stderr.isatty() or size == 0
    return click.progressbar(length=size, label="writing", file=sys.stderr, hidden=hidden)
