"""Full-text search by REST: the index of a stream, and what is found in it.

What belongs to search is imported when a request asks for it: a process without a searchable stream pays for none.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from sarit.admin.rest.limits import MAX_REST_EVENT_BYTES, MAX_REST_FACETS
from sarit.core.cuts import to_text
from sarit.core.errors import Invalid, NotFound, SaritError

if TYPE_CHECKING:
    from sarit.admin.rest.asked import Asked, Handler
    from sarit.client.aio import Client
    from sarit.client.search.results import SearchHit, SearchResult
    from sarit.client.streams.search_index import SearchIndex
    from sarit.core.names import StreamName
    from sarit.search.highlights import Marks
    from sarit.search.settings import SearchSettings

_HITS: Final = 20
_FACET_VALUES: Final = 10


async def get_search_index(client: Client, asked: Asked) -> Any:
    """Return the document of a stream's index.  Raises NotFound."""
    return index_property(await _index_of(client, asked.stream))


async def make_searchable(client: Client, asked: Asked) -> Any:
    """Give a stream an index with some settings: a new one unless it has these."""
    from sarit.client.streams.search_index import index_of
    from sarit.search.settings import SEARCH_JOB, SEARCH_KIND

    wanted, handle = settings_of(asked.body), client.stream(asked.stream)
    document = wanted.encode()
    found = index_of(await handle.jobs())
    if found is None:
        await handle.create_job(SEARCH_KIND, document, SEARCH_JOB)
    elif found.settings != wanted:
        await handle.delete_job(SEARCH_KIND, SEARCH_JOB)
        try:
            await handle.create_job(SEARCH_KIND, document, SEARCH_JOB)
        except SaritError:
            await handle.create_job(SEARCH_KIND, found.settings.encode(), SEARCH_JOB)
            raise
    return index_property(await _index_of(client, asked.stream))


async def delete_search_index(client: Client, asked: Asked) -> None:
    """Delete the index of a stream.  Raises NotFound."""
    from sarit.search.settings import SEARCH_JOB, SEARCH_KIND

    await client.stream(asked.stream).delete_job(SEARCH_KIND, SEARCH_JOB)


async def search_stream(client: Client, asked: Asked) -> Any:
    """Search a stream by its index.  Raises Invalid: the query, or the stream is not searchable."""
    from sarit.search.highlights import marks_of_text, names_fields

    given = asked.query
    facets = [path for path in given.get("facets", "").split(",") if path]
    if len(facets) > MAX_REST_FACETS:
        raise Invalid(f"facets has {len(facets)} fields: give {MAX_REST_FACETS} or fewer")
    try:
        page = base64.b64decode(given.get("page", ""), altchars=b"-_", validate=True)
    except ValueError:
        raise Invalid("page: give that of the answer before") from None
    found = await client.search(
        asked.stream, given["q"], start_ms=given.get("from"), end_ms=given.get("until"),
        limit=given.get("limit", _HITS), sort=given.get("sort", "newest"), page=page,
        bucket_ms=given.get("bucketMs", 0), facets=facets, facet_limit=given.get("facetValues", _FACET_VALUES),
    )  # fmt: skip
    # The kinds of fields are a question of their own: most queries name none, and their marks need none.
    needs_kinds = bool(found.hits) and names_fields(given["q"])
    fields = (await client.search.info(asked.stream)).mapping if needs_kinds else ()
    return search_answer(found, marks_of_text(given["q"], fields))


def search_answer(found: SearchResult, marks: Marks) -> dict[str, Any]:
    """Return the document of what a search has found."""
    answer = {
        "hits": [_hit(hit, marks) for hit in found.hits],
        "total": found.total,
        "histogram": [{"begin": begin, "events": events} for begin, events in found.histogram],
        "facets": [
            {"field": path, "values": [{"value": value, "events": events} for value, events in values]}
            for path, values in found.facets.items()
        ],
        "lastCommit": found.committed_ms,
    }
    if found.cut is not None:
        answer["cut"] = to_text(found.cut)
    if found.page:
        answer["page"] = base64.urlsafe_b64encode(found.page).decode()
    return answer


def _hit(hit: SearchHit, marks: Marks) -> dict[str, Any]:
    from sarit.search.highlights import spans

    found: dict[str, Any] = {
        "segment": hit.segment.number, "epoch": hit.segment.epoch, "offset": hit.offset, "time": hit.time_ms,
        "score": hit.score,
    }  # fmt: skip
    if hit.event is None:
        return found
    text = hit.event[:MAX_REST_EVENT_BYTES].decode(errors="replace")
    places = [{"begin": begin, "end": end} for begin, end in spans(text, marks)]
    return found | {"event": text, "size": len(hit.event), "highlights": places}


async def _index_of(client: Client, stream: StreamName) -> SearchIndex:
    from sarit.client.streams.search_index import index_of

    found = index_of(await client.stream(stream).jobs())
    if found is None:
        raise NotFound(f"stream {stream} is not searchable")
    return found


def settings_of(body: dict[str, Any]) -> SearchSettings:
    """Return the settings in a body; what is absent is as in a new index.  Raises Invalid."""
    from sarit.search.mapping import Field, Kind, Mapping
    from sarit.search.settings import SearchSettings

    given = {"start": body.get("start"), "interval_seconds": body.get("intervalSeconds")}
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if "fields" in body or "timeField" in body:
        fields = tuple(Field(each["path"], Kind(each["kind"])) for each in body.get("fields", ()))
        chosen["mapping"] = Mapping(fields, body.get("timeField", ""))
    return SearchSettings(**chosen).check()


def index_property(index: SearchIndex) -> dict[str, Any]:
    """Return the document of an index."""
    progress, settings = index.progress, index.settings
    shown: dict[str, Any] = {"start": settings.start, "intervalSeconds": settings.interval_seconds}
    if settings.mapping is not None:
        shown["fields"] = [{"path": field.path, "kind": field.kind.value} for field in settings.mapping.fields]
        if settings.mapping.time_field:
            shown["timeField"] = settings.mapping.time_field
    found = {
        "settings": shown, "state": index.job.state, "events": progress.events, "shards": progress.shards,
        "bytes": progress.bytes, "partly": progress.partly, "lostBytes": progress.lost_bytes,
    }  # fmt: skip
    rest = {"lastCommit": progress.committed_ms, "worker": index.job.holder, "problem": index.job.problem}
    return found | {name: value for name, value in rest.items() if value}


SEARCH_HANDLERS: Final[dict[str, Handler]] = {
    "getSearchIndex": get_search_index,
    "makeSearchable": make_searchable,
    "deleteSearchIndex": delete_search_index,
    "searchStream": search_stream,
}
