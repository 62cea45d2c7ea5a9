"""Searches by somebody who may read one stream: everything beyond is refused, soon and clearly, and the log repeats
nothing of what was sent as it is."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from contextlib import asynccontextmanager

import pytest

import sarit
from sarit.controller.jobs import JobKey, JobTable
from sarit.core import cuts
from sarit.core.cuts import StreamCut
from sarit.core.names import SegmentId, StreamName
from sarit.rpc.generated import search_pb2 as pb
from sarit.rpc.search_methods import SEARCH
from sarit.search.answers import Ask, Page
from sarit.search.mapping import Field, Kind, Mapping
from sarit.search.settings import SEARCH_JOB, SEARCH_KIND, SearchSettings
from sarit.search.state import IndexState
from tests.limits import HANG_SECONDS
from tests.security.http_serving import serving
from tests.security.running import PASSWORD

pytest.importorskip("tantivy", reason="sarit[search] is not installed")
EVENTS, SECONDS = 40, 10.0
LOG, HIDDEN = StreamName("app", "log"), StreamName("app", "hidden")
FIELDS = Mapping((Field("level", Kind.KEYWORD), Field("n", Kind.NUMBER), Field("text", Kind.TEXT)))
# A line end and codes of a terminal, which nothing may repeat as they are.
LINES = "x\n2026-01-01 00:00:00,000 INFO forged\x1b[31m\u202e"
ALL = {"low": -(1 << 62), "high": 1 << 62}


@pytest.fixture(scope="module")
def runner():
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(scope="module")
def http(runner, tmp_path_factory):
    """A node with two searchable streams, of which dave may read the first one alone."""
    made = serving(tmp_path_factory.mktemp("searched"), jobs=True)

    async def start():
        found = await made.__aenter__()
        async with found.secured.client("root") as root:
            await root.create_scope("app")
            for stream in (LOG, HIDDEN):
                await root.create_stream(str(stream), segments=2)
                async with root.writer(str(stream)) as writer:
                    for number in range(EVENTS):
                        writer.write(json.dumps({"level": f"l{number % 4}", "n": number, "text": f"{stream} {number}"}))
                settings = SearchSettings(FIELDS, interval_seconds=1).encode()
                await root.stream(str(stream)).create_job(SEARCH_KIND, settings, SEARCH_JOB)
                while (await root.search.info(stream)).events < EVENTS:
                    await asyncio.sleep(0.05)
        found.shard = await shard_of(found.node, LOG)
        await found.secured.grant(("user:dave", f"prn::/scope:app/stream:{LOG.stream}", "READ"))
        return found

    yield runner.run(asyncio.wait_for(start(), HANG_SECONDS))
    runner.run(made.__aexit__(None, None, None))


async def shard_of(node, stream: StreamName) -> bytes:
    """The id of the one shard of an index, which nobody is answer."""
    found = await JobTable(node.controller.catalog).find(JobKey(SEARCH_KIND, stream, SEARCH_JOB))
    return IndexState.decode(found.job.state).growing.id.encode()


async def called(client, method, request):
    return await client.session.controller.call(method, request, SECONDS)


@asynccontextmanager
async def web_of_dave(http):
    """Dave over HTTP: by his password for REST, by a cookie for the console."""
    async with http.as_user(("dave", PASSWORD), timeout=SECONDS) as web:
        found = await web.post("/console/api/log-in", json={"user": "dave", "password": PASSWORD})
        assert found.status_code == 200
        yield web


def assert_unheard(caplog) -> None:
    """Check that no line of the log repeats what was sent as it is, and that nothing was an error of the node."""
    for record in caplog.records:
        assert record.getMessage().isprintable()
        assert record.levelno < logging.ERROR


ANYWHERE = {"key": 1 << 62, "ties": 0, "total": EVENTS, "committed_ms": 1, "asked": Ask("*").asked}


def page(stream=LOG, positions=None, **fields) -> bytes:
    cut = StreamCut(stream, {SegmentId(0, 0): 1 << 40, SegmentId(0, 1): 1 << 40} if positions is None else positions)
    return Page(cut, **ANYWHERE | fields).encode()


def search(**fields) -> pb.SearchRequest:
    return pb.SearchRequest(**{"scope": LOG.scope, "stream": LOG.stream, "query": b"*", "limit": 10} | fields)


def shards(**fields) -> pb.SearchShardsRequest:
    given = {"scope": LOG.scope, "stream": LOG.stream, "query": b"*", "limit": 10, "sort": "newest", "facetLimit": 10}
    return pb.SearchShardsRequest(**given | ALL | fields)


FORGED = (
    page(HIDDEN), page(StreamName("_system", "log")), page(positions={SegmentId(0, 0): 5}),
    page(positions={SegmentId(7, 7): 5}), page(positions={SegmentId(0, at): at for at in range(15_000)}),
    page(ties=10_001), page(total=-1), page(committed_ms=-1), b"\x01" + page()[1:], page()[:-3], page() + b"x",
    page()[:33], b"\x02" * 40, b"\xff" * 5000, page()[:33] + bytes(2_000_000), page()[:33] + b"\xff" * 2_000_000,
)  # fmt: skip
REFUSED = (
    *((SEARCH.search, search(page=one)) for one in FORGED),
    *((SEARCH.search, search(query=query)) for query in (
        b"", b"(" * 4096, b"-" * 4096, b"NOT " * 1000, b"\xff\xfe", b"x" * 100_000, b"a " * 2000, b'"', b"level:[1 TO",
        b"nobody:1", f"{LINES}:1".encode(), f"n:{LINES}".encode(), b"n:" + b"9" * 4000, b"a*b", b"a*", b"n:9e99999",
        b"text:[a TO b]", ("\U0001f642" * 4097).encode(), ("(" * 33 + "a" + ")" * 33).encode(),
    )),
    (SEARCH.search, search(limit=1001)), (SEARCH.search, search(limit=-1)), (SEARCH.search, search(bucketMs=-1)),
    (SEARCH.search, search(bucketMs=(1 << 63) - 1)), (SEARCH.search, search(fromMs=-(1 << 63))),
    (SEARCH.search, search(untilMs=(1 << 63) - 1)), (SEARCH.search, search(sort=LINES)),
    (SEARCH.search, search(facets=["text"])), (SEARCH.search, search(facets=["nobody"])),
    (SEARCH.search, search(facets=[LINES])), (SEARCH.search, search(facets=["x" * 100_000])),
    (SEARCH.search, search(facets=["level", "level"])), (SEARCH.search, search(facets=[str(n) for n in range(11)])),
    (SEARCH.search, search(facets=["level"], facetLimit=1001)), (SEARCH.search, search(facets=[""])),
    (SEARCH.search, search(sort="score", page=page())), (SEARCH.search, search(sort="score", limit=1 << 30)),
    (SEARCH.searchShards, shards(limit=1 << 30)), (SEARCH.searchShards, shards(limit=-1)),
    (SEARCH.searchShards, shards(query=b"(")), (SEARCH.searchShards, shards(sort=LINES)),
    (SEARCH.searchShards, shards(facetLimit=0)), (SEARCH.searchShards, shards(facets=["x" * 1000])),
    (SEARCH.searchShards, shards(until=pb.SearchCut(segments=[1], offsets=[]))),
    (SEARCH.searchShards, shards(until=pb.SearchCut(segments=[-1], offsets=[1]))),
    (SEARCH.searchShards, shards(until=pb.SearchCut(segments=[0], offsets=[-1]))),
    (SEARCH.searchShards, shards(until=pb.SearchCut(segments=[5, 9], offsets=[1, 1]))),
    (SEARCH.searchShards, shards(until=pb.SearchCut(segments=range(100_000), offsets=range(100_000)))),
    (SEARCH.searchShards, shards(until=pb.SearchCut())), (SEARCH.searchShards, shards(bucketMs=-5)),
    (SEARCH.putContinuous, pb.PutContinuousRequest(scope="app", stream="log", name=LINES, query=b"*")),
)  # fmt: skip
UNKNOWN_SHARDS = ([b"shard999"], [b"../shard1"], [LINES.encode()], [b"\xff"], [b"shard1"] * 10_000,
                  [b"%d" % number for number in range(100_000)])  # fmt: skip


def test_searches_that_are_wrong_are_refused_soon_and_say_why(runner, http, caplog):
    caplog.set_level(logging.INFO)

    async def main() -> None:
        async with http.secured.client("dave") as dave:
            for method, request in REFUSED:
                if method is SEARCH.searchShards:
                    request.shards[:] = [http.shard]
                begun = time.monotonic()
                with pytest.raises((sarit.Invalid, sarit.Forbidden)) as error:
                    await called(dave, method, request)
                answer = str(error.value)
                assert time.monotonic() - begun < SECONDS, answer
                assert answer, request
                assert len(answer) < 600, answer
                assert answer.isprintable(), answer
            for ids in UNKNOWN_SHARDS:
                with pytest.raises(sarit.Unavailable, match="the index was changed meanwhile"):
                    await called(dave, SEARCH.searchShards, shards(shards=ids))
            # The node serves, and each stands for itself.
            assert (await dave.search(LOG, "*")).total == EVENTS

    runner.run(main())
    assert_unheard(caplog)


def test_pages_and_parts_that_are_forged_show_nothing_but_the_stream(runner, http):
    async def main() -> None:
        async with http.secured.client("dave") as dave:
            every = {(hit.segment, hit.offset) for hit in (await called(dave, SEARCH.search, search(limit=1000))).hits}
            assert len(every) == EVENTS
            for fields in ({}, {"key": -(1 << 63)}, {"key": (1 << 63) - 1}, {"ties": 10_000}, {"total": (1 << 63) - 1}):
                for sort in ("newest", "oldest"):
                    found = await called(
                        dave,
                        SEARCH.search,
                        search(page=page(**fields, asked=Ask("*", sort=sort).asked), sort=sort, limit=1000),
                    )
                    assert {(hit.segment, hit.offset) for hit in found.hits} <= every
            for low, high in ((1 << 62, -(1 << 62)), (-(1 << 63), (1 << 63) - 1), (5, 5)):
                with_all = shards(low=low, high=high, facets=["level", "nobody", "text"], bucketMs=1, limit=1000)
                with_all.shards[:] = [http.shard]
                found = await called(dave, SEARCH.searchShards, with_all)
                assert found.total == len(found.hits) == (EVENTS if low < 0 else 0)
                assert {(hit.segment, hit.offset) for hit in found.hits} <= every

    runner.run(main())


def test_stream_that_one_may_not_read_is_not_found_out_about(runner, http):
    """Neither its hits, counts, fields or pages, nor whether it is there."""

    async def main() -> None:
        there, gone = HIDDEN, StreamName("app", "gone")
        answer: dict[StreamName, list[str]] = {there: [], gone: []}
        async with http.secured.client("dave") as dave:
            for stream in (there, gone):
                at = {"scope": stream.scope, "stream": stream.stream}
                for method, request in (
                    (SEARCH.search, search(**at)), (SEARCH.search, search(**at, page=page(stream))),
                    (SEARCH.search, search(**at, limit=0, facets=["level"])), (SEARCH.search, search(**at, query=b"(")),
                    (SEARCH.searchShards, shards(**at)), (SEARCH.searchInfo, pb.SearchInfoRequest(**at)),
                    (SEARCH.listContinuous, pb.ListContinuousRequest(**at)),
                    (SEARCH.putContinuous, pb.PutContinuousRequest(**at, name="q", query=b"*")),
                    (SEARCH.deleteContinuous, pb.DeleteContinuousRequest(**at, name="q")),
                ):  # fmt: skip
                    with pytest.raises(sarit.Forbidden) as error:
                        await called(dave, method, request)
                    answer[stream].append(re.sub(rf"{stream.stream}|\(request \d+\)", "", str(error.value)))
            for method, kind in (
                (SEARCH.search, search), (SEARCH.searchShards, shards), (SEARCH.searchInfo, pb.SearchInfoRequest),
            ):  # fmt: skip
                for name in ("_tables", "_search", "log", "x"):
                    with pytest.raises((sarit.Forbidden, sarit.Invalid)):
                        await called(dave, method, kind(scope="_system", stream=name))
            # To write matches of the stream into an output takes the right to change it.
            with pytest.raises(sarit.Forbidden):
                await dave.continuous.create("app/log", "q", "*", "app/hidden")
        assert answer[there] == answer[gone]
        async with web_of_dave(http) as web:
            for name, status in (("log", 200), ("hidden", 403), ("gone", 403)):
                for path in ("/v1/scopes/app/streams/{}/search", "/console/api/streams/app/{}/find"):
                    found = await web.get(path.format(name), params={"q": "*"})
                    assert found.status_code == status, (path, name, found.text)

    runner.run(main())


def test_wrong_searches_over_http_are_refused_as_over_grpc(runner, http, caplog):
    caplog.set_level(logging.INFO)
    given = (
        {"q": "("}, {"q": LINES + ":1"}, {"q": "x" * 5000}, {"q": "*", "page": "%%%"}, {"q": "*", "sort": LINES},
        {"q": "*", "page": cuts.to_text(StreamCut(HIDDEN, {SegmentId(0, 0): 1}))},
    )  # fmt: skip
    rest = ({"q": "*", "limit": "-1"}, {"q": "*", "limit": "9" * 5000}, {"q": "*", "facets": LINES}, {},
            {"q": "*", "bucketMs": "1e9"}, {"q": "*", "from": LINES})  # fmt: skip
    find = (
        {"q": "*", "from": LINES}, {"q": "a) OR (b", "chosen": '[["level", "l0"]]'},
        *({"q": "*", "chosen": chosen} for chosen in (
            "{", "[1]", '[["a"]]', '[["level", "\\ud800"]]', json.dumps([["level", "x"]] * 9), "[" * 5000,
            '[["nobody", "x"]]', '[["", "x"]]',
        )),
    )  # fmt: skip

    async def main() -> None:
        async with web_of_dave(http) as web:
            for path, asked in (("/v1/scopes/app/streams/log/search", given + rest),
                                ("/console/api/streams/app/log/find", given + find)):  # fmt: skip
                for params in asked:
                    found = await web.get(path, params=params)
                    assert found.status_code == 400, (params, found.text)
                    assert len(found.text) < 1000
                    assert not set("\n\x1b\u202e") & set(json.loads(found.text).get("error", "").strip())
            chosen = json.dumps([["level", "l0"], ["level", "l0"]])
            found = await web.get("/console/api/streams/app/log/find", params={"q": "1 OR 4", "chosen": chosen})
            assert (found.status_code, found.json()["total"]) == (200, 1)

    runner.run(main())
    assert_unheard(caplog)
