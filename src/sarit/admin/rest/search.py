"""Full-text search by REST: the index of a stream, and what is found in it.

What belongs to search is imported when a request asks for it: a process without a searchable stream pays for none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import NotFound, SaritError

if TYPE_CHECKING:
    from sarit.admin.rest.asked import Asked, Handler
    from sarit.client.aio import Client
    from sarit.client.streams.search_index import SearchIndex
    from sarit.core.names import StreamName
    from sarit.search.settings import SearchSettings


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
        "settings": shown, "state": index.state, "events": progress.events, "shards": progress.shards,
        "bytes": progress.bytes, "partly": progress.partly, "lostBytes": progress.lost_bytes,
    }  # fmt: skip
    rest = {"lastCommit": progress.committed_ms, "worker": index.holder, "problem": index.problem}
    return found | {name: value for name, value in rest.items() if value}


SEARCH_HANDLERS: Final[dict[str, Handler]] = {
    "getSearchIndex": get_search_index,
    "makeSearchable": make_searchable,
    "deleteSearchIndex": delete_search_index,
}
