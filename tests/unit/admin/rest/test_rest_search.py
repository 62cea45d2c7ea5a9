"""Indexes of streams for full-text search by REST."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from sarit.admin.rest.asked import Asked
from sarit.admin.rest.models import MODELS
from sarit.admin.rest.schema import check
from sarit.admin.rest.search import index_property, search_answer, search_stream, settings_of
from sarit.client.search.results import SearchHit
from sarit.client.streams.job_status import JobStatus
from sarit.client.streams.search_index import SearchIndex
from sarit.controller.jobs import JobKey, JobTable
from sarit.core.cuts import StreamCut
from sarit.core.errors import Invalid
from sarit.core.names import SegmentId, StreamName
from sarit.search.highlights import marks_of_text
from sarit.search.limits import MAX_FIELD_PATH_CHARACTERS, MAX_INDEX_INTERVAL_SECONDS, MAX_MAPPED_FIELDS
from sarit.search.mapping import Field, Kind, Mapping
from sarit.search.progress import IndexProgress
from sarit.search.settings import SEARCH_JOB, SEARCH_KIND, SearchSettings
from tests.unit.admin.rest.served import error_of, on_rest

FULL = SearchSettings(Mapping((Field("at", Kind.TIME), Field("a.b", Kind.TEXT)), "at"), "tail", 7)
PROGRESS = IndexProgress(5, 2, 300, 1000, 8, 1)


@pytest.mark.parametrize("settings", [SearchSettings(), FULL])
def test_an_index_is_shown_as_the_document_says_and_its_settings_can_be_sent_back(settings) -> None:
    shown = index_property(SearchIndex(settings, PROGRESS, JobStatus(None, "head", "h:1", done=False, problem="why")))
    assert set(shown) == set(MODELS["SearchIndex"]["properties"])
    assert shown["state"] in MODELS["SearchIndex"]["properties"]["state"]["enum"]
    check(MODELS["SearchSettings"], shown["settings"], MODELS)
    assert settings_of(shown["settings"]) == settings
    quiet = index_property(SearchIndex(settings, IndexProgress(), JobStatus(None, "head", "", done=False, problem="")))
    assert set(quiet) == set(MODELS["SearchIndex"]["required"])


def test_bounds_are_those_of_search() -> None:
    settings = MODELS["SearchSettings"]["properties"]
    assert settings["fields"]["anyOf"][0]["maxItems"] == MAX_MAPPED_FIELDS
    assert settings["intervalSeconds"]["anyOf"][0]["maximum"] == MAX_INDEX_INTERVAL_SECONDS
    assert MODELS["SearchField"]["properties"]["path"]["maxLength"] == MAX_FIELD_PATH_CHARACTERS
    assert MODELS["SearchField"]["properties"]["kind"]["enum"] == [kind.value for kind in Kind]


def test_mapping_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(Invalid, match="not among its fields of times"):
        settings_of({"fields": [{"path": "a", "kind": "text"}], "timeField": "a"})
    with pytest.raises(Invalid, match="twice"):
        settings_of({"fields": [{"path": "a", "kind": "text"}] * 2})


def test_what_was_found_is_shown_as_the_document_says() -> None:
    hits = [SearchHit(SegmentId(2, 5), 8, 1000, 0.5, b"an ERROR \xff"), SearchHit(SegmentId(0, 0), 0, 900, 0.0, None)]
    result = SimpleNamespace(
        hits=hits, total=7, histogram=((0, 3),), facets={"level": (("warn", 2),)}, committed_ms=5, page=b"\xfe\xff",
        cut=StreamCut(StreamName("s", "t"), {SegmentId(0, 0): 7}),
    )  # fmt: skip
    found = search_answer(result, marks_of_text("error", ()))
    assert set(found) == set(MODELS["SearchAnswer"]["properties"])
    first, gone = found["hits"]
    assert first == {
        "segment": 5, "epoch": 2, "offset": 8, "time": 1000, "score": 0.5, "event": "an ERROR \ufffd", "size": 10,
        "highlights": [{"begin": 3, "end": 8}],
    }  # fmt: skip
    assert gone == {"segment": 0, "epoch": 0, "offset": 0, "time": 900, "score": 0.0}
    assert found["facets"] == [{"field": "level", "values": [{"value": "warn", "events": 2}]}]
    check(MODELS["SearchAnswer"]["properties"]["page"], found["page"], MODELS)
    empty = SimpleNamespace(hits=(), total=0, histogram=(), facets={}, committed_ms=0, page=b"", cut=None)
    assert set(search_answer(empty, marks_of_text("error", ()))) == set(MODELS["SearchAnswer"]["required"])


@pytest.mark.parametrize(
    ("query", "hits", "infos", "marked"),
    [
        ("disk", 1, 0, "disk"), ("disk -full", 1, 0, "disk"), ("took:7 level:ERR*", 1, 1, "error"),
        ("level:error", 0, 0, ""), ("disk OR level:error", 1, 1, "disk error"),
    ],
)  # fmt: skip
def test_index_is_asked_for_its_fields_only_if_a_query_names_some(query, hits, infos, marked) -> None:
    asked = []

    class Searches:
        async def info(self, stream):
            asked.append(stream)
            return SimpleNamespace(mapping=(("level", "keyword"), ("took", "number")))

        async def __call__(self, stream, text, **given):
            hit = SearchHit(SegmentId(0, 0), 0, 1000, 0.0, b"disk error 7")
            return SimpleNamespace(
                hits=[hit] * hits, total=hits, histogram=(), facets={}, committed_ms=5, page=b"", cut=None
            )  # fmt: skip

    client = SimpleNamespace(search=Searches())
    path = {"scopeName": "s", "streamName": "t"}
    found = asyncio.run(search_stream(client, Asked(path, {"q": query}, None)))
    assert len(asked) == infos
    spans = [span for hit in found["hits"] for span in hit["highlights"]]
    assert " ".join("disk error 7"[span["begin"] : span["end"]] for span in spans) == marked


@on_rest
async def test_search_that_cannot_be_is_refused(made, rest) -> None:
    await made.client.create_stream("s/t")
    path = "/v1/scopes/s/streams/t/search"
    assert "parameter q is missing" in error_of(await rest.get(path), 400)
    assert "give one of" in error_of(await rest.get(path, params={"q": "a", "sort": "random"}), 400)
    assert "give 100 or less" in error_of(await rest.get(path, params={"q": "a", "limit": 101}), 400)
    assert "10 or fewer" in error_of(await rest.get(path, params={"q": "a", "facets": "a," * 11}), 400)
    refused = error_of(await rest.get(path, params={"q": "a"}), 400)
    assert "stream s/t is not searchable: make it so with `sarit stream update s/t --searchable`" in refused
    assert "or read it: `sarit search`, scan=True in Python" in refused


@on_rest
async def test_stream_without_an_index_says_so(made, rest) -> None:
    await made.client.create_stream("s/t")
    path = "/v1/scopes/s/streams/t/searchable"
    assert error_of(await rest.get(path), 404) == "stream s/t is not searchable"
    assert error_of(await rest.delete(path), 404)
    assert "give one of" in error_of(await rest.put(path, json={"start": "middle"}), 400)
    assert "give 1 or more" in error_of(await rest.put(path, json={"intervalSeconds": 0}), 400)
    assert error_of(await rest.get("/v1/scopes/s/streams/none/searchable"), 404)


@on_rest
async def test_index_of_a_stream_is_shown_and_deleted(made, rest) -> None:
    await made.client.create_stream("s/t")
    key = JobKey(SEARCH_KIND, StreamName("s", "t"), SEARCH_JOB)
    await JobTable(made.node.controller.catalog).create(key, FULL.encode())
    path = "/v1/scopes/s/streams/t/searchable"
    found = (await rest.get(path)).json()
    assert (found["state"], settings_of(found["settings"])) == ("waiting", FULL)
    same = await rest.put(path, json=found["settings"])
    assert (same.status_code, same.json()) == (200, found)
    assert (await rest.delete(path)).status_code == 204
    assert error_of(await rest.get(path), 404)
