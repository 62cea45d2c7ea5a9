"""`sarit read`: events to standard output."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, cast

import click

import sarit
from sarit.cli import envelopes, event_format, positions
from sarit.cli.contexts import registry_for
from sarit.cli.names import STREAM
from sarit.cli.near_names import NamedCommand
from sarit.cli.options import controller_option, format_option
from sarit.cli.pipes import Interrupts, Output, end_interrupted
from sarit.core import cuts
from sarit.core.cuts import StreamCut
from sarit.core.errors import Invalid, SaritError
from sarit.core.limits import EVENT_HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from sarit.client.blocking.streams import EventReader
    from sarit.core.names import SegmentId, StreamName

    # Events of one segment and the cut before them, to lines; None: an event is skipped.
    Form = Callable[[list[bytes], StreamCut, SegmentId], Iterable[bytes | None]]

MAX_PRINTED: Final = 10_000  # events printed at once


@click.command(cls=NamedCommand)
@click.argument("name", type=STREAM)
@click.option(
    "--from",
    "start",
    default="head",
    show_default=True,
    metavar=positions.METAVAR,
    help=f"Where to begin.  {positions.HELP}",
)
@click.option("--follow", is_flag=True, help="Do not end at the tail: wait for more.")
@click.option("--limit", type=click.IntRange(1), help="End after this number of events.")
@click.option("--skip-truncated", is_flag=True, help="Skip truncated data instead of failing.")
@click.option("--envelope", is_flag=True, help="Show key, time and headers of envelopes before their payload.")
@click.option("-f", "--line", metavar="TEXT", help=f"What to print for each event: {event_format.HELP}")
@click.option("--decode", is_flag=True, help="Show events as JSON, by the schema that the header of each names.")
@click.option("--registry", metavar="URL", help="With --decode: where the schemas are, as of `sarit schema`.")
@click.option("--group", help="With --decode and Pravega's header: the group of the schemas.  [default: SCOPE.STREAM]")
@click.option(
    "--on-error",
    type=click.Choice(["raise", "skip"]),
    help="With --decode: what to do with an event that does not fit.  [default: raise]",
)
@click.option("--print-cut", is_flag=True, help="At the end, print the cut reached on standard error.")
@controller_option
@format_option
def read(
    name: StreamName,
    start: str,
    follow: bool,
    limit: int | None,
    skip_truncated: bool,
    envelope: bool,
    line: str | None,
    decode: bool,
    registry: str | None,
    group: str | None,
    on_error: str | None,
    print_cut: bool,
    controller: str,
    output: str,
) -> None:
    """Print the events of SCOPE/STREAM, one a line; with --format json, one JSON document a line.

    From a time on means all events that were appended at that time or later, and some from shortly before it: up to a
    minute in the last hour, more before that.

    A JSON document has the event as "event", or as "event_base64" when it is not UTF-8 text.
    With --envelope a line has key, time, headers and payload, separated by tabs, and "-" for what an event has not;
    a JSON document has "key", "event_time" and "headers", too.  A plain event is shown as a payload alone.
    With --decode an event of a stream with the property schema-header is the document that its schema makes of it; a
    JSON document has it as "event", with the id of the schema, segment, offset, and the key of an envelope.
    With --line '%k %t %h %c %s %v' you choose what is shown; "-" stands for what an event has not.
    Ends at the tail as it was when reading began, unless --follow.  The cut of --print-cut is after the last event
    that was printed, whatever ended the reading: Ctrl-C, a closed pipe, an error.
    """
    form = _form(envelope, line, as_json=output == "json")
    decoding = _decoding(decode, registry, group, on_error, plain=line is None and not envelope)
    stopped: BaseException | None = None
    several = None if output == "json" or decode else _SeveralLines()
    end = None if follow else "tail"
    with (
        sarit.connect(controller) as client,
        client.reader(name, positions.position_of(client, name, start), end, skip_truncated=skip_truncated) as reader,
        Interrupts() as interrupts,
    ):
        cut = reader.position()
        if decoding is not None:
            form = decoding.form(name, client.stream(name).properties(), as_json=output == "json")
        try:
            for cut in _printed(reader, interrupts, limit, form, several, skips=decode):  # noqa: B007
                pass
        except (KeyboardInterrupt, SaritError, OSError) as error:
            stopped = error
        if several is not None and several.events:
            click.echo(
                f"sarit: events of more than one line: {several.events:,}; --format json shows where each ends",
                err=True,
            )
        if print_cut:
            click.echo(cuts.to_text(cut), err=True)
    if isinstance(stopped, KeyboardInterrupt):
        end_interrupted()
    if stopped is not None:
        raise stopped


@dataclass(slots=True)
class _SeveralLines:
    """Events that were printed as several lines each."""

    events: int = 0


def _printed(
    reader: EventReader,
    interrupts: Interrupts,
    limit: int | None,
    form: Form | None,
    several: _SeveralLines | None,
    *,
    skips: bool,
) -> Iterator[StreamCut]:
    """Print events.  `skips`: whether `form` may skip some.

    Yields the cut after the printed events after each batch, before anything is raised."""
    sys.stdout.flush()
    out = Output(sys.stdout.fileno(), interrupts)
    count = 0
    while limit is None or count < limit:
        found = interrupts.wait(reader.next_events)
        if found is None:
            yield reader.position()
            return
        cut = reader.position()
        events = list(islice(found.left, MAX_PRINTED if limit is None else min(MAX_PRINTED, limit - count)))
        lines, failure = _lines(events, form, cut, found.segment)
        events = events[: len(lines)]
        shown = [line for line in lines if line is not None] if skips else cast("list[bytes]", lines)
        try:
            if shown:
                out.write(shown)
        except OSError as error:
            failure = error
        whole = out.whole_lines if shown else 0
        done = events[: _events_of(lines, whole) if skips else whole]
        count += len(done)
        if several is not None:
            several.events += sum(b"\n" in event for event in done)
        after = cut.positions[found.segment] + sum(map(len, done)) + EVENT_HEADER_BYTES * len(done)
        yield StreamCut(cut.stream, {**cut.positions, found.segment: after})
        if failure is not None:
            raise failure
        if len(done) < len(events):
            raise KeyboardInterrupt


def _events_of(lines: Sequence[bytes | None], whole: int) -> int:
    """Return how many events are done when `whole` lines are printed: those that are skipped count with the line
    before them."""
    left = whole
    for at, line in enumerate(lines):
        if line is not None:
            if not left:
                return at
            left -= 1
    return len(lines)


@dataclass(frozen=True, slots=True)
class _Decoding:
    """The options of --decode; `url`: of the registry."""

    url: str
    group: str | None
    skips: bool

    def form(self, stream: StreamName, properties: Mapping[str, str], *, as_json: bool) -> Form:
        """Return what makes documents of the events of a stream.  Raises UsageError: they have no header."""
        from sarit.cli.event_decoder import EventDecoder, header_of

        header = header_of(stream, properties, self.url, self.group)
        return EventDecoder(stream, header, skips=self.skips, as_json=as_json).lines


def _decoding(
    decode: bool, registry: str | None, group: str | None, on_error: str | None, *, plain: bool
) -> _Decoding | None:
    """Return the options of --decode; None: it is not given.  Raises UsageError."""
    if not decode:
        for option, given in (("--registry", registry), ("--group", group), ("--on-error", on_error)):
            if given is not None:
                raise click.UsageError(f"{option} is about events that are decoded: give --decode, too")
        return None
    if not plain:
        raise click.UsageError("--decode says what is printed: leave --envelope and --line away")
    return _Decoding(registry_for(click.get_current_context(), registry), group, on_error == "skip")


def _form(envelope: bool, line: str | None, *, as_json: bool) -> Form | None:
    """Return what makes lines of events; None: an event is its line.  Raises UsageError."""
    if line is not None:
        if envelope or as_json:
            raise click.UsageError("--line says what is printed: leave --envelope and --format json away")
        try:
            return event_format.EventFormat(line).lines
        except Invalid as error:
            raise click.UsageError(str(error)) from None
    each = partial(envelopes.shown, as_json=as_json) if envelope else _document if as_json else None
    return None if each is None else lambda events, _cut, _segment: map(each, events)


def _document(event: bytes) -> bytes:
    return json.dumps(envelopes.bytes_field("event", event)).encode()


def _lines(
    events: list[bytes], form: Form | None, cut: StreamCut, segment: SegmentId
) -> tuple[Sequence[bytes | None], OSError | SaritError | None]:
    """Return the lines of events, up to the first that cannot be shown, and why it cannot."""
    if form is None:
        return events, None
    lines: list[bytes | None] = []
    try:
        lines.extend(form(events, cut, segment))  # lines before an event that fails are kept
    except SaritError as error:
        return lines, error
    return lines, None
