"""`sarit search`: the events of a stream that match a query."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from sarit.cli import search_output
from sarit.cli.contexts import registry_for
from sarit.cli.names import STREAM
from sarit.cli.near_names import NamedCommand
from sarit.cli.option_types import Memory
from sarit.cli.options import controller_option, format_option
from sarit.cli.pipes import end_interrupted
from sarit.cli.positions import checked_place, is_time
from sarit.cli.progress import Bar
from sarit.client.limits import SEARCH_MAX_HITS
from sarit.core.errors import Invalid
from sarit.core.properties import CONFLUENT, PRAVEGA, SCHEMA_HEADER
from sarit.core.times import parse_event_time, parse_time
from sarit.env.real import RealClock
from sarit.search.limits import MAX_SEARCH_HITS

if TYPE_CHECKING:
    from sarit.client.aio import Client
    from sarit.client.search.query_scan import ScanQuestion, ScanState
    from sarit.core.names import StreamName
    from sarit.search.document_maker import Decode

_SOME_TIME: Final = 10**13  # lengths are differences to it


@click.command(cls=NamedCommand)
@click.argument("name", type=STREAM)
@click.argument("query")
@click.option(
    "--from",
    "start",
    default="head",
    show_default=True,
    metavar="head|TIME|CUT",
    help='The earliest time of events ("-1h", "2026-01-31T12:00:00Z"), or where to begin to read.',
)
@click.option("--to", "end", default="tail", show_default=True, metavar="tail|TIME|CUT", help="The time to end at.")
@click.option(
    "--limit",
    type=click.IntRange(0, SEARCH_MAX_HITS),
    default=20,
    show_default=True,
    help="Print at most so many events.",
)
@click.option(
    "--sort",
    type=click.Choice(["newest", "oldest", "score"]),
    default="newest",
    show_default=True,
    help="Which come first; score: those that match best, of an index only.",
)
@click.option(
    "--histogram", metavar="WIDTH", help='Print how many events match by their times, as "1m" or "1h", and no event.'
)
@click.option(
    "--facet",
    "facets",
    multiple=True,
    metavar="FIELD",
    help="Print the most frequent values of a keyword in an index, and no event; more than once: of each.",
)
@click.option("--count", is_flag=True, help="Print how many events match, and none of them.")
@click.option("--scan", is_flag=True, help="Read the events, also where the stream has an index.")
@click.option(
    "--limit-bytes", type=Memory(), help="End a scan after so many bytes, and say where to go on.  [default: no bound]"
)
@click.option("--registry", metavar="URL", help="Where the schemas of the stream are, as of `sarit schema`.")
@controller_option
@format_option
def search(
    name: StreamName,
    query: str,
    start: str,
    end: str,
    limit: int,
    sort: str,
    histogram: str | None,
    facets: tuple[str, ...],
    count: bool,
    scan: bool,
    limit_bytes: int | None,
    registry: str | None,
    controller: str,
    output: str,
) -> None:
    """Print the events of SCOPE/STREAM that match QUERY, newest first: by its index, or without one by reading it.

    QUERY has words, which have to be there all: `error timeout`.  `a OR b`, `NOT c` or `-c`, and parentheses;
    "words in order" in double quotes; beginnings of words, `time*`; fields of JSON documents, `level:ERROR`,
    `took:>=5`, `took:[1 TO 5]`, `user.name:*`.  `*` is every event.  A QUERY that begins with a minus stands behind
    `--`.

    Without an index all events of the range of times are read first, since those of parallel segments come in no order
    of time.  Their times are those that documents or envelopes say, or about those of writing.  Ctrl-C shows what was
    found so far, and how to go on.
    """
    width = 0 if histogram is None else _width(histogram)
    counted = bool(count or width or facets)
    choices = _Choices(query, start, end, *_times(start, end), 0 if counted else limit, sort, width, facets)
    url = registry_for(click.get_current_context(), registry)
    printing = _Printing(output, count, counted)
    answer = _Answer()
    interrupted = False
    try:
        asyncio.run(_search(controller, name, choices, _Reading(scan, limit_bytes, url), printing, answer))
    except KeyboardInterrupt:
        interrupted = True
    if answer.state is not None:
        search_output.print_scan(answer.state, output, count=count, counted=counted)
    if interrupted:
        end_interrupted()


@dataclass(frozen=True, slots=True)
class _Choices:
    """The options that say what is searched for.  `start_ms`, `end_ms`: None: `start` and `end` are no times."""

    query: str
    start: str
    end: str
    start_ms: int | None
    end_ms: int | None
    limit: int
    sort: str
    bucket_ms: int
    facets: tuple[str, ...]

    @property
    def by_place(self) -> bool:
        """Whether the range is one of places in the stream, which indexes do not know."""
        return any(text not in ("head", "tail") and not is_time(text) for text in (self.start, self.end))


@dataclass(frozen=True, slots=True)
class _Reading:
    """The options of a scan.  `forced`: also where the stream has an index.  `registry`: the URL."""

    forced: bool
    limit_bytes: int | None
    registry: str


@dataclass(frozen=True, slots=True)
class _Printing:
    """The options of what is printed.  `counted`: counts, and no events."""

    output: str
    count: bool
    counted: bool


@dataclass(slots=True)
class _Answer:
    """How far a scan has come; None: nothing was read."""

    state: ScanState | None = None


async def _search(
    controller: str, name: StreamName, choices: _Choices, reading: _Reading, printing: _Printing, answer: _Answer
) -> None:
    from sarit.client import aio
    from sarit.client.streams.search_index import index_of

    async with await aio.connect(controller) as client:
        index = None if reading.forced else index_of(await client.stream(name).jobs())
        if index is not None and not choices.by_place:
            await _indexed(client, name, choices, printing)
            return
        if choices.sort == "score" or choices.facets:
            raise Invalid(
                "--sort score and --facet need an index, and a range of times: make one with "
                f"`sarit stream update {name} --searchable`"
            )
        await _scan(client, name, choices, reading, answer)


async def _indexed(client: Client, name: StreamName, choices: _Choices, printing: _Printing) -> None:
    """Print what the index of a stream answers, page by page."""
    search = partial(
        client.search, name, choices.query, start_ms=choices.start_ms, end_ms=choices.end_ms, sort=choices.sort
    )
    scores = choices.sort == "score"
    page = first = await search(
        limit=min(choices.limit, MAX_SEARCH_HITS), bucket_ms=choices.bucket_ms, facets=choices.facets
    )
    search_output.print_result(first, printing.output, count=printing.count, scores=scores)
    shown = len(first.hits)
    while page.page and shown < choices.limit:
        page = await search(limit=min(choices.limit - shown, MAX_SEARCH_HITS), page=page.page)
        search_output.print_hits(page, printing.output, scores=scores)
        shown += len(page.hits)
    search_output.say_of_index(first, None if printing.counted else shown)


async def _scan(client: Client, name: StreamName, choices: _Choices, reading: _Reading, answer: _Answer) -> None:
    from sarit.client.search.query_scan import scan_query

    bar = Bar()
    try:
        question = await _question(client, name, choices, reading.registry)
        if reading.limit_bytes is not None:
            question = replace(question, bounds=replace(question.bounds, bytes=reading.limit_bytes))
        done = 0
        async with aclosing(scan_query(client.session, name, question)) as states:
            async for state in states:
                if answer.state is None:
                    bar.begin("searching", state.range_bytes)
                answer.state = state
                bar.add(state.bytes - done)
                done = state.bytes
    finally:
        bar.end()


async def _question(client: Client, name: StreamName, choices: _Choices, registry: str) -> ScanQuestion:
    """Return the question that the options ask.  Raises Invalid, NotFound."""
    from sarit.client.search.query_scan import ScanQuestion

    asked = ScanQuestion(
        choices.query, from_ms=choices.start_ms, to_ms=choices.end_ms, sort=choices.sort, limit=choices.limit,
        bucket_ms=choices.bucket_ms,
    )  # fmt: skip
    if choices.start_ms is None and choices.start != "head":
        asked = replace(asked, start=await client.cut(name, choices.start))
    if choices.end_ms is None and choices.end != "tail":
        asked = replace(asked, end=await client.cut(name, choices.end))
    header = (await client.stream(name).properties()).get(SCHEMA_HEADER, "")
    return replace(asked, decode=_decode(name, header, registry)) if header in (CONFLUENT, PRAVEGA) else asked


def _decode(name: StreamName, header: str, registry: str) -> Decode:
    """Return what makes documents of payloads with a header."""
    from sarit.cli.event_decoder import header_of
    from sarit.search.schema_documents import SchemaDocuments

    return SchemaDocuments(header, header_of(name, {SCHEMA_HEADER: header}, registry, None).reader, RealClock())


def _times(start: str, end: str) -> tuple[int | None, int | None]:
    """Return the times of a range, in milliseconds since 1970; None: that end of it is no time.  Raises Invalid."""
    now_ms = RealClock().wall_ms()
    start_ms, end_ms = (_time(text, now_ms) for text in (start, end))
    if start_ms is not None and end_ms is not None and start_ms > end_ms:
        raise Invalid("--from is later than --to: nothing lies between them")
    return start_ms, end_ms


def _time(text: str, now_ms: int) -> int | None:
    if is_time(text):
        return parse_event_time(text, now_ms)
    checked_place(text)
    return None


def _width(text: str) -> int:
    """Return a length of time in milliseconds.  Raises UsageError."""
    try:
        width = _SOME_TIME - parse_time(f"-{text}", _SOME_TIME)
    except Invalid:
        width = 0
    if width <= 0:
        raise click.UsageError(f"--histogram {text}: give a number and a unit, as 10s, 1m, 1h or 1d")
    return width


__all__ = ["search"]
