"""The index and the continuous queries of a node that was restored from a backup, which was taken under load."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter

import pytest

import sarit
from sarit.search.mapping import Field, Kind, Mapping
from sarit.search.settings import SEARCH_JOB, SEARCH_KIND, SearchSettings
from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode
from tests.test_backup import create, run

pytest.importorskip("tantivy", reason="sarit[search] is not installed")
LOG, ALERTS = "web/log", "web/alerts"
MAPPING = Mapping((Field("level", Kind.KEYWORD), Field("n", Kind.NUMBER), Field("text", Kind.TEXT)))
SETTINGS = SearchSettings(MAPPING, interval_seconds=1).encode()
QUERIES = ("*", "level:error", '"timed out"', "n:[100 TO 400] text:request", "level:error OR n:<50")
KEYS = 5


def line(number: int) -> str:
    level, text = ("error", "timed out") if number % 3 == 0 else ("info", "is done")
    return json.dumps({"level": level, "n": number, "text": f"request {number} {text}"})


class Load:
    """Writes numbered lines until it ends; `acknowledged`: how many are there for certain."""

    def __init__(self, controller: str) -> None:
        self._controller = controller
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.acknowledged = 0
        self.failure: BaseException | None = None

    def _write(self) -> None:
        try:
            with sarit.connect(self._controller) as client, client.writer(LOG) as writer:
                number = 0
                while not self._ends.wait(0.2):
                    for _ in range(20):
                        writer.write(line(number), key=f"k{number % KEYS}")
                        number += 1
                    writer.flush()
                    self.acknowledged = number
        except BaseException as error:
            self.failure = error

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *error) -> None:
        self._ends.set()
        self._thread.join()
        assert self.failure is None

    def reach(self, events: int) -> None:
        end = time.monotonic() + HANG_SECONDS
        while self.acknowledged < events:
            assert time.monotonic() < end
            assert self.failure is None
            time.sleep(0.01)


def until(holds) -> None:
    end = time.monotonic() + HANG_SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def indexed(client) -> None:
    """Wait until the index has all of the stream."""
    until(lambda: (info := client.search.info(LOG)).cut is not None and not info.bytes_behind and not info.problem)


def places(found) -> list[tuple]:
    return sorted((hit.segment.packed, hit.offset, hit.event) for hit in found.hits)


def all_pages(client, query: str):
    """All hits of the index: (segment, offset, event)."""
    found, page = [], b""
    while True:
        answer = client.search(LOG, query, limit=1000, page=page)
        found += places(answer)
        if not (page := answer.page):
            return sorted(found)


def matches(client) -> Counter:
    """How often each event is in the output, by its place."""
    found = Counter()
    for event in client.reader(ALERTS, end="tail"):
        match = json.loads(event)
        assert (match["stream"], match["query"]) == (LOG, "errors")
        found[match["segment"], match["offset"]] += 1
    return found


def wanted(client, since: int) -> Counter:
    """The places of the events of level error, from a number on."""
    found = client.search(LOG, f"level:error n:>={since}", limit=10_000, scan=True)
    return Counter((hit.segment.packed, hit.offset) for hit in found.hits)


@pytest.mark.parametrize("options", [(), pytest.param(("--processes", "2"), marks=pytest.mark.long)])
def test_restored_index_and_queries_go_on_from_the_moment_of_the_backup(tmp_path, options):
    data, place, new = tmp_path / "data", tmp_path / "backups", tmp_path / "new"
    options = ("--jobs", "on", *options)
    with RunningNode(data, *options) as node, sarit.connect(node.controller) as client:
        client.create_scope("web")
        client.create_stream(LOG, segments=3)
        client.create_stream(ALERTS)
        client.stream(LOG).create_job(SEARCH_KIND, SETTINGS, SEARCH_JOB)
        made = client.continuous.create(LOG, "errors", "level:error", ALERTS)
        assert made.state == "active"
        with Load(node.controller) as load:
            load.reach(200)
            until(lambda: client.search.info(LOG).events > 100 and client.continuous.progress(LOG).matches > 20)
            acknowledged = load.acknowledged
            create(place, data)
            load.reach(load.acknowledged + 100)
        lost = load.acknowledged
    run("restore", place, "--data-dir", new)
    with RunningNode(new, *options) as node, sarit.connect(node.controller) as client:
        there = sum(1 for _ in client.reader(LOG, end="tail"))
        assert acknowledged <= there < lost
        indexed(client)
        assert client.search.info(LOG).events == there
        for query in QUERIES:
            scanned = client.search(LOG, query, limit=10_000, scan=True)
            assert all_pages(client, query) == places(scanned), query
            assert client.search(LOG, query).total == scanned.total == len(scanned.hits)
        until(lambda: matches(client) >= wanted(client, 0))
        assert matches(client) == wanted(client, 0)
        assert [each.name for each in client.continuous.list(LOG)] == ["errors"]

        # It goes on with what comes now, once each.
        with client.writer(LOG) as writer:
            for number in range(10_000, 10_300):
                writer.write(line(number), key=f"k{number % KEYS}")
        indexed(client)
        assert client.search.info(LOG).events == there + 300
        assert client.search(LOG, "n:>=10000").total == 300
        until(lambda: matches(client) >= wanted(client, 0))
        assert matches(client) == wanted(client, 0)
    with RunningNode(new, *options) as node, sarit.connect(node.controller) as client:
        indexed(client)
        assert all_pages(client, "*") == places(client.search(LOG, "*", limit=10_000, scan=True))
        assert matches(client) == wanted(client, 0)
    assert "nothing is damaged" in run("verify", new)
