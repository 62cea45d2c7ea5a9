"""Searches by the index of a stream: a page of hits, what is marked in them, and counts over time and by values.

What belongs to search is imported when somebody searches: a process without a searchable stream pays for none.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from sarit.admin.console.calls import call, stream_of
from sarit.admin.console.documents import event_document, segment_text
from sarit.admin.console.limits import (
    CONSOLE_BARS,
    CONSOLE_FACET_VALUES,
    CONSOLE_FACETS,
    CONSOLE_FIND_HITS,
    CONSOLE_SHOWN_EVENT_BYTES,
    MAX_CONSOLE_CHOSEN_VALUES,
)
from sarit.core.bounded_json import parse_json
from sarit.core.errors import Invalid
from sarit.core.times import parse_event_time

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from sarit.client.aio import Client
    from sarit.client.search.results import SearchHit
    from sarit.core.names import StreamName
    from sarit.env.ports import Clock

_SORTS: Final = ("newest", "oldest", "score")
_SECOND: Final = 1000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_OF_BAR: Final = re.compile(r"@-?\d{1,15}", re.ASCII)
_WIDTHS: Final = (
    _SECOND, 5 * _SECOND, 10 * _SECOND, 30 * _SECOND, _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 30 * _MINUTE, _HOUR,
    3 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 7 * _DAY, 30 * _DAY,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A question of the page.  `chosen`: fields, each with a value of hits.  Times: since 1970; None: no bound."""

    stream: StreamName
    query: str
    chosen: tuple[tuple[str, str], ...]
    sort: str
    page: bytes
    start_ms: int | None
    end_ms: int | None


class FindCalls:
    """The call that asks the index of a stream."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    def __repr__(self) -> str:
        return "<FindCalls>"

    def routes(self) -> list[BaseRoute]:
        """Below /console/api."""
        return [call("/streams/{scope}/{stream}/find", self.find)]

    async def find(self, request: Request) -> Any:
        """Return a page of hits.

        Parameters: `q`, `chosen` (JSON: pairs of a field and a value), `sort`, `page`, `from` and `until` (times as
        people write them, or @MS of a bar).

        The first page has the histogram and the facets, too.  `query`: the text of `q` and `chosen`.  Raises Invalid:
        the query, or the stream has no index."""
        from sarit.search.highlights import marks_of_text, names_fields
        from sarit.search.query_parser import text_of_value

        wanted = self._wanted(request)
        fields: tuple[tuple[str, str], ...] = ()
        if not wanted.page or wanted.chosen or names_fields(wanted.query):
            info = await self._client.search.info(wanted.stream)
            if not info.searchable:
                raise Invalid(f"stream {wanted.stream} has no index: search by reading the stream")
            fields = info.mapping
        marks = marks_of_text(wanted.query, fields)
        if wanted.chosen:
            values = " ".join(text_of_value(field, value) for field, value in wanted.chosen)
            wanted = replace(wanted, query=f"({wanted.query}) {values}")
            marks = marks_of_text(wanted.query, fields)
        bucket_ms, facets = 0, []
        if not wanted.page:
            facets = [path for path, kind in fields if kind == "keyword"][:CONSOLE_FACETS]
            bucket_ms = await self._bucket_ms(wanted)
        found = await self._client.search(
            wanted.stream, wanted.query, start_ms=wanted.start_ms, end_ms=wanted.end_ms, limit=CONSOLE_FIND_HITS,
            sort=wanted.sort, page=wanted.page, bucket_ms=bucket_ms, facets=facets, facet_limit=CONSOLE_FACET_VALUES,
        )  # fmt: skip
        return {
            "hits": [_hit(hit) for hit in found.hits], "total": found.total, "marks": marks.document(),
            "buckets": [list(bucket) for bucket in found.histogram], "bucket_ms": bucket_ms,
            "facets": {path: [list(value) for value in values] for path, values in found.facets.items()},
            "committed_ms": found.committed_ms, "query": wanted.query, "from_ms": wanted.start_ms,
            "page": base64.urlsafe_b64encode(found.page).decode(),
        }  # fmt: skip

    def _wanted(self, request: Request) -> _Wanted:
        given, now = request.query_params, self._clock.wall_ms()
        sort = given.get("sort", "newest")
        if sort not in _SORTS:
            raise Invalid(f"sort: give {', '.join(_SORTS)}")
        try:
            page = base64.b64decode(given.get("page", ""), altchars=b"-_", validate=True)
        except ValueError:
            raise Invalid("page: give that of the answer before") from None
        times = [_time(text, now) if (text := given.get(name, "")) else None for name in ("from", "until")]
        return _Wanted(stream_of(request), given.get("q", "*"), _chosen(given.get("chosen", "[]")), sort, page, *times)

    async def _bucket_ms(self, wanted: _Wanted) -> int:
        """Return the width of bars, with which the times of all hits, or the times that are asked for, have
        CONSOLE_BARS of them at most; 0: there is no hit."""
        first, last = wanted.start_ms, wanted.end_ms
        if first is None:
            first = await self._outermost(replace(wanted, sort="oldest"))
        if last is None:
            last = await self._outermost(replace(wanted, sort="newest"))
        return 0 if first is None or last is None else width_of(last - first)

    async def _outermost(self, wanted: _Wanted) -> int | None:
        """Return the time of the first hit of an order; None: there is none."""
        found = await self._client.search(
            wanted.stream, wanted.query, start_ms=wanted.start_ms, end_ms=wanted.end_ms, limit=1, sort=wanted.sort,
            events=False,
        )  # fmt: skip
        return found.hits[0].time_ms if found.hits else None


def width_of(span_ms: int) -> int:
    """Return the width of bars for a span of time, in milliseconds: at most CONSOLE_BARS of them, and one more."""
    for width in _WIDTHS:
        if span_ms <= width * CONSOLE_BARS:
            return width
    # Times that are far apart, as those of events with damaged times.
    return -(-span_ms // (_WIDTHS[-1] * CONSOLE_BARS)) * _WIDTHS[-1]


def _time(text: str, now_ms: int) -> int:
    # Bars are where the times of events are: people mean no such numbers, in the months after 1970 or before.
    return int(text[1:]) if _OF_BAR.fullmatch(text) else parse_event_time(text, now_ms)


def _chosen(text: str) -> tuple[tuple[str, str], ...]:
    try:
        found = parse_json(text)
        if len(found) > MAX_CONSOLE_CHOSEN_VALUES or not all(_is_text(field) and _is_text(one) for field, one in found):
            raise ValueError
    except (TypeError, ValueError):
        raise Invalid(
            f"chosen: give at most {MAX_CONSOLE_CHOSEN_VALUES} pairs of a field and a value, as JSON"
        ) from None
    return tuple((field, value) for field, value in found)


def _is_text(value: Any) -> bool:
    # Half a surrogate pair is none: no answer could repeat it.
    return isinstance(value, str) and not any("\ud800" <= sign <= "\udfff" for sign in value)


def _hit(hit: SearchHit) -> dict[str, Any]:
    place: dict[str, Any] = {"time_ms": hit.time_ms, "score": hit.score}
    if hit.event is None:
        return place | {"segment": segment_text(hit.segment), "offset": hit.offset, "gone": True}
    return place | event_document(hit.event, hit.segment, hit.offset, CONSOLE_SHOWN_EVENT_BYTES)
