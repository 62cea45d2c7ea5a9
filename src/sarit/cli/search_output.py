"""What `sarit search` prints: events on standard output, and on standard error what they are of."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from sarit.cli import envelopes
from sarit.cli.options import count_of
from sarit.core import cuts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sarit.client.search.query_scan import ScanState
    from sarit.client.search.results import SearchResult
    from sarit.core.names import SegmentId

_MICROS_PER_MILLI: Final = 1000
TRUNCATED: Final = "(truncated since)"


def print_scan(state: ScanState, output: str, *, count: bool, counted: bool) -> None:
    """Print what a scan has found, and where to go on.  `output`: text or json.  `counted`: hits are not wanted."""
    _print_counts(state.total if count else None, state.buckets, output)
    for found in state.hits:
        pointer = found.hit.pointer
        _print_hit(found.time_ms, pointer.segment, pointer.offset, found.hit.event, output)
    sys.stdout.flush()
    _say_found(
        f"{state.total:,} of {count_of(state.events, 'event')}", state.total, None if counted else len(state.hits)
    )
    if state.partly:
        _say(f"of {state.partly:,} events only a part was searched, or they have a field of another kind")
    if state.left_out:
        _say(f"{state.left_out:,} more are too large to be kept: give a smaller --limit")
    if state.position != state.end and state.ended != "end":
        _say(f"what is left to search: --from {cuts.to_text(state.position)}")


def print_result(result: SearchResult, output: str, *, count: bool, scores: bool) -> None:
    """Print the first page of what an index has answered.  `output`: text or json."""
    _print_counts(result.total if count else None, result.histogram, output)
    for field, values in result.facets.items():
        for value, events in values:
            row = {"facet": field, "value": value, "events": events}
            # A value is somebody else's: it must be no line of its own, and nothing that a terminal acts on.
            shown = value if value.isprintable() else json.dumps(value)
            click.echo(json.dumps(row) if output == "json" else f"{field}  {shown}  {events}")
    print_hits(result, output, scores=scores)


def print_hits(result: SearchResult, output: str, *, scores: bool) -> None:
    """Print the hits of a page of what an index has answered.  `output`: text or json."""
    for hit in result.hits:
        _print_hit(hit.time_ms, hit.segment, hit.offset, hit.event, output, hit.score if scores else None)


def say_of_index(result: SearchResult, shown: int | None) -> None:
    """Say how many events match, and how new the index is.  `shown`: how many are printed; None: they are counted."""
    sys.stdout.flush()
    _say_found(count_of(result.total, "event"), result.total, shown)
    when = "nothing yet" if result.cut is None else f"what was written until {_time(result.committed_ms)}, about"
    _say(f"the index has {when}")


def _print_counts(total: int | None, buckets: Iterable[tuple[int, int]], output: str) -> None:
    if total is not None:
        click.echo(json.dumps({"total": total}) if output == "json" else total)
    for begin, events in buckets:
        click.echo(
            json.dumps({"time": _time(begin), "events": events}) if output == "json" else f"{_time(begin)}  {events}"
        )


def _print_hit(
    time_ms: int, segment: SegmentId, offset: int, event: bytes | None, output: str, score: float | None = None
) -> None:
    if output == "json":
        row: dict[str, Any] = {"time": _time(time_ms), "segment": str(segment), "offset": offset}
        if score is not None:
            row["score"] = score
        click.echo(json.dumps(row if event is None else row | envelopes.bytes_field("event", event)))
    else:
        click.echo(f"{_time(time_ms)}  {TRUNCATED if event is None else event.decode(errors='replace')}")


def _time(time_ms: int) -> str | int:
    """Return a time as ISO 8601, to the second or to the millisecond; as it is where that has no form."""
    text = envelopes.text_of_time(time_ms * _MICROS_PER_MILLI)
    return f"{text[:-4]}Z" if isinstance(text, str) and "." in text else text


def _say_found(events: str, total: int, shown: int | None) -> None:
    """Say that events match; `shown`: how many of them are printed, None: they were only counted."""
    part = "" if shown is None else f", of which {shown:,} {'is' if shown == 1 else 'are'} shown"
    _say(f"{events} {'matches' if total == 1 else 'match'}{part}")


def _say(text: str) -> None:
    click.echo(f"sarit: {text}", err=True)


__all__ = ["print_hits", "print_result", "print_scan", "say_of_index"]
