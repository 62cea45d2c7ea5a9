"""The console's search by the index of a stream: what it asks for, and what the page gets."""

from __future__ import annotations

import base64
import json
from types import SimpleNamespace

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from sarit.admin.console.find import FindCalls, width_of
from sarit.admin.console.limits import CONSOLE_BARS, CONSOLE_FACETS, CONSOLE_FIND_HITS
from sarit.core.names import SegmentId

NOW = 1_769_860_800_000
HOUR = 3_600_000
SEGMENT = SegmentId(2, 5)
PATH = "/streams/web/log/find"


class Searches:
    """The searches of a client of a stream with 61 hits, a minute between two of them; `asked`: what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict] = []
        self.infos = 0
        self.searchable = True
        self.fields = (("level", "keyword"), ("message", "text"), *((f"k{n}", "keyword") for n in range(9)))

    async def info(self, stream):
        self.infos += 1
        return SimpleNamespace(mapping=self.fields, searchable=self.searchable)

    async def __call__(self, stream, query, **asked):
        self.asked.append(asked | {"query": query})
        times = [NOW - 60_000 * at for at in range(61)]
        if asked["sort"] == "oldest":
            times.reverse()
        events = [b'{"level": "error"}', None, b"\xff\x00"]
        hits = [SimpleNamespace(segment=SEGMENT, offset=8 * at, time_ms=time, score=0.0, event=events[at % 3])
                for at, time in enumerate(times[: asked["limit"]])]  # fmt: skip
        return SimpleNamespace(
            hits=hits, total=61, histogram=((NOW - HOUR, 60), (NOW, 1)), facets={"level": (("error", 61),)},
            committed_ms=NOW, page=b"\xfe\xff",
        )  # fmt: skip


@pytest.fixture
def client() -> Searches:
    return Searches()


def find(client, status=200, **given):
    calls = FindCalls(SimpleNamespace(search=client), SimpleNamespace(wall_ms=lambda: NOW))
    answer = TestClient(Starlette(routes=calls.routes())).get(PATH, params=given)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_first_page_has_hits_marks_bars_and_facets(client) -> None:
    found = find(client, q="error")
    *outermost, asked = client.asked
    assert [(one["sort"], one["limit"], one["events"]) for one in outermost] == [
        ("oldest", 1, False),
        ("newest", 1, False),
    ]
    assert (asked["limit"], asked["bucket_ms"]) == (CONSOLE_FIND_HITS, 60_000)
    assert asked["facets"] == ["level", "k0", "k1", "k2"]
    assert len(asked["facets"]) == CONSOLE_FACETS
    assert (found["total"], found["bucket_ms"]) == (61, 60_000)
    assert found["buckets"] == [[NOW - HOUR, 60], [NOW, 1]]
    assert found["facets"] == {"level": [["error", 61]]}
    assert found["marks"]["words"] == ["error"]
    first, gone, _ = found["hits"][:3]
    assert (first["segment"], first["offset"], first["time_ms"]) == ("5.2", 0, NOW)
    assert base64.b64decode(first["payload"]["base64"]) == b'{"level": "error"}'
    assert gone == {"segment": "5.2", "offset": 8, "time_ms": NOW - 60_000, "score": 0.0, "gone": True}


def test_later_page_asks_for_hits_alone(client) -> None:
    page = find(client, q="error")["page"]
    client.asked.clear()
    find(client, q="error", page=page)
    (asked,) = client.asked
    assert (asked["page"], asked["bucket_ms"], asked["facets"]) == (b"\xfe\xff", 0, [])


@pytest.mark.parametrize(("query", "kinds"), [("error", 1), ('disk -"is full"', 1), ("level:error", 2), ("-k0:x a", 2)])
def test_kinds_of_fields_are_asked_for_once_and_again_only_by_their_names(client, query, kinds) -> None:
    first = find(client, q=query)
    second = find(client, q=query, page=first["page"])
    assert client.infos == kinds
    assert first["marks"] == second["marks"]
    assert first["marks"]["words"]


def test_range_of_time_gives_the_width_of_bars(client) -> None:
    find(client, q="*", **{"from": "-1 hour", "until": str(NOW)})
    (asked,) = client.asked
    assert (asked["start_ms"], asked["end_ms"], asked["bucket_ms"]) == (NOW - HOUR, NOW, 60_000)


def test_range_of_time_may_lie_before_1970(client) -> None:
    find(client, q="*", **{"from": "1950-01-01T00:00:00Z", "until": "1969-12-31T23:59:59Z"})
    (asked,) = client.asked
    assert (asked["start_ms"], asked["end_ms"]) == (-631_152_000_000, -1000)


def test_times_of_bars_are_taken_wherever_they_are(client) -> None:
    find(client, q="*", **{"from": "@-631152000000", "until": "@5"})
    (asked,) = client.asked
    assert (asked["start_ms"], asked["end_ms"]) == (-631_152_000_000, 5)


def test_chosen_values_are_asked_for_beside_the_whole_query(client) -> None:
    chosen = [["le vel:", 'a "b\\'], ["k0", ""]]
    found = find(client, q="error OR disk", chosen=json.dumps(chosen))
    wanted = """(error OR disk) "le vel:":"a \\"b\\\\" "k0":\"\""""
    assert found["query"] == wanted
    assert {asked["query"] for asked in client.asked} == {wanted}
    # The query alone has to be one: what is chosen stands beside all of it.
    assert "without its (" in find(client, 400, q="error) OR (disk", chosen=json.dumps(chosen))["error"]


def test_stream_without_an_index_is_not_asked(client) -> None:
    client.searchable = False
    assert find(client, 400)["error"] == "stream web/log has no index: search by reading the stream"
    assert not client.asked


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"q": "("}, "at character 2"), ({"sort": "random"}, "sort: give newest, oldest, score"),
        ({"page": "%%"}, "page: give that"), ({"from": "long ago"}, "is no time"),
        ({"from": "@1e9"}, "is no time"), ({"from": f"@{'9' * 99}"}, "is no time"),
        ({"q": "x" * 5000}, "5,000 characters"), ({"chosen": "{"}, "chosen: give at most 8 pairs"),
        ({"chosen": '[["a", 1]]'}, "chosen: give"), ({"chosen": '[["a", "\\ud800"]]'}, "chosen: give"),
        ({"chosen": json.dumps([["a", "b"]] * 9)}, "chosen: give"), ({"chosen": "[" * 9999}, "chosen: give"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_refused(client, given, reason) -> None:
    assert reason in find(client, 400, **given)["error"]


@pytest.mark.parametrize("span", [0, 1, 59_999, HOUR, 90 * 24 * HOUR, 5000 * 365 * 24 * HOUR])
def test_bars_are_few_whatever_the_times_are(span) -> None:
    assert span // width_of(span) <= CONSOLE_BARS
