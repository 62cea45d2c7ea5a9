"""`sarit search`, as a user types it, on a real node."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace

import pytest
from click.testing import CliRunner

import sarit as client_of
from sarit.cli.search import search as search_command
from sarit.client.search import query_scan
from tests.nodes import RunningNode
from tests.test_cli import sarit

START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("node") / "data") as node:
        with client_of.connect(node.controller) as client:
            client.create_scope("shop")
            client.create_stream("shop/log", segments=3)
            with client.writer("shop/log") as writer:
                for at in range(100):
                    level = "ERROR" if at % 10 == 0 else "INFO"
                    event = {"timestamp": START_MS + at * 1000, "level": level, "message": f"request {at} timed out"}
                    writer.write(json.dumps(event), key=str(at))
        yield node


def search(node, query, *options, **given):
    return sarit(node, "search", "shop/log", query, *options, **given)


def test_hits_are_printed_newest_first(node):
    printed, said = search(node, "level:ERROR", "--limit", "3")
    lines = [line.split("  ", 1) for line in printed.splitlines()]
    assert [time for time, _ in lines] == [f"2023-11-14T22:14:{second}Z" for second in (50, 40, 30)]
    assert json.loads(lines[0][1])["message"] == "request 90 timed out"
    assert "10 of 100 events match, of which 3 are shown" in said
    printed, _ = search(node, '"timed out" -level:INFO', "--sort", "oldest", "--limit", "2", "--format", "json")
    documents = [json.loads(line) for line in printed.splitlines()]
    assert [json.loads(document["event"])["message"] for document in documents] == [
        "request 0 timed out", "request 10 timed out",
    ]  # fmt: skip
    assert documents[0]["time"] == "2023-11-14T22:13:20Z"
    assert documents[0].keys() == {"time", "segment", "offset", "event"}


def test_hits_are_counted(node):
    assert search(node, "timed", "--count")[0] == "100\n"
    printed, said = search(node, "request 42", "--count", "--format", "json")
    assert printed == '{"total": 1}\n'
    assert "1 of 100 events matches\n" in said
    assert search(node, "*", "--count", "--from", "2023-11-14T22:14:00Z", "--to", "2023-11-14T22:14:10Z")[0] == "10\n"


def test_hits_are_counted_by_time(node):
    printed, _ = search(node, "level:ERROR", "--histogram", "1m")
    assert printed == "2023-11-14T22:13:00Z  4\n2023-11-14T22:14:00Z  6\n"
    assert "give a number and a unit" in search(node, "*", "--histogram", "x", code=2)[1]


def test_a_bounded_scan_says_where_to_go_on(node):
    printed, said = search(node, "level:ERROR", "--limit-bytes", "2000", "--sort", "oldest")
    where = said.split("--from ")[1].split()[0]
    rest, said = search(node, "level:ERROR", "--from", where)
    assert len(printed.splitlines()) + len(rest.splitlines()) == 10
    assert "--from" not in said


def test_mistakes_are_named(node):
    assert "at character 1: the ( has no )" in " ".join(search(node, "(a", code=1)[1].split())
    assert "there is no field levl" in search(node, "levl:ERROR", code=1)[1]
    assert "No such option '-l'. Before a query that begins with a minus write --" in search(node, "-level", code=2)[1]
    assert "write --" not in search(node, "--level", code=2)[1]
    assert search(node, "--count", "--", "-level:INFO")[0] == "10\n"
    assert (
        "'yesterday' is no position: give head, tail, a cut, or a time"
        in search(node, "*", "--from", "yesterday", code=1)[1]
    )
    assert "--from is later than --to" in search(node, "*", "--from", "-1h", "--to", "-2h", code=1)[1]


def test_ctrl_c_shows_what_was_found_and_how_to_go_on(node, monkeypatch):
    whole = query_scan.scan_query

    async def interrupted(*args):
        async for state in whole(*args):
            yield replace(state, position=args[2].start or state.position, ended=None)
            if state.hits:
                raise KeyboardInterrupt

    monkeypatch.setattr(query_scan, "scan_query", interrupted)
    monkeypatch.setattr("sarit.cli.search.end_interrupted", lambda: sys.exit(130))
    with client_of.connect(node.controller) as client:
        head = str(client.stream_info("shop/log").head)
    found = CliRunner().invoke(
        search_command, ["shop/log", "level:ERROR", "--from", head, "--controller", node.controller]
    )
    assert found.exit_code == 130
    assert "timed out" in found.stdout
    assert f"what is left to search: --from {head}" in found.stderr


def test_times_before_1970_bound_a_scan(node):
    with client_of.connect(node.controller) as client:
        client.create_stream("shop/old")
        with client.writer("shop/old") as writer:
            for year in range(1960, 1980):
                writer.write(json.dumps({"timestamp": f"{year}-07-20T20:17:40Z", "message": "landed"}))
    bounds = ("--from", "1965-01-01T00:00:00Z", "--to", "1970-01-01T01:00:00+01:00")
    printed, _ = sarit(node, "search", "shop/old", "landed", *bounds)
    assert [line[:20] for line in printed.splitlines()] == [f"{year}-07-20T20:17:40Z" for year in range(1969, 1964, -1)]
    assert sarit(node, "search", "shop/old", "landed", "--from", "-30000 days", "--count")[0] == "20\n"
    # Events that say no time happened when they were written.
    assert search(node, "*", "--from", "1969-12-31T23:00:00Z", "--count")[0] == "100\n"
    assert search(node, "*", "--to", "1969-12-31T23:00:00Z", "--count")[0] == "0\n"
    assert "before the year 1" in search(node, "*", "--to", "-99999999 weeks", code=1)[1]


def test_an_index_answers_as_a_scan_does(tmp_path, monkeypatch):
    with RunningNode(tmp_path / "node") as node, client_of.connect(node.controller) as client:
        client.create_scope("shop")
        client.create_stream("shop/log", segments=2)
        with client.writer("shop/log") as writer:
            for at in range(60):
                event = {
                    "timestamp": START_MS + at * 1000,
                    "level": "ERROR" if at % 3 else "INFO",
                    "message": f"no {at}",
                }
                writer.write(json.dumps(event), key=str(at))
        assert "--searchable" in search(node, "*", "--facet", "level", code=1)[1]
        assert "--searchable" in search(node, "*", "--sort", "score", code=1)[1]
        sarit(node, "stream", "update", "shop/log", "--searchable", "--search-interval", "1")
        while client.search.info("shop/log").events < 60:
            time.sleep(0.05)
        for query in ("level:ERROR", "erro* no", "message:no -level:INFO", "timestamp:>=2023-11-14T22:14:00Z"):
            for options in (
                (),
                ("--limit", "5"),
                ("--sort", "oldest", "--format", "json"),
                ("--histogram", "10s"),
                ("--count",),
            ):
                by_index, said = search(node, query, *options)
                assert "the index has what was written until" in said
                by_scan, said = search(node, query, *options, "--scan")
                assert "the index" not in said
                assert by_index == by_scan, (query, options)
        for bounds, count in (("--from", "60\n"), ("--to", "0\n")):
            assert search(node, "no", "--count", bounds, "1969-07-20T20:17:40Z")[0] == count
        # More hits than a page of an answer may have come page by page.
        assert len(search(node, "*", "--limit", "10000")[0].splitlines()) == 60
        monkeypatch.setattr("sarit.cli.search.MAX_SEARCH_HITS", 7)
        asked = ["shop/log", "*", "--limit", "50", "--sort", "oldest", "--controller", node.controller]
        paged = CliRunner().invoke(search_command, asked)
        assert paged.stdout.splitlines() == search(node, "*", "--sort", "oldest", "--limit", "50")[0].splitlines()
        assert "60 events match, of which 50 are shown" in paged.stderr
        assert search(node, "*", "--facet", "level")[0] == "level  ERROR  40\nlevel  INFO  20\n"
        document = json.loads(search(node, "no", "--sort", "score", "--limit", "1", "--format", "json")[0])
        assert document["score"] > 0
        scanned = client.search("shop/log", "level:ERROR", scan=True, limit=3, bucket_ms=60_000)
        indexed = client.search("shop/log", "level:ERROR", limit=3, bucket_ms=60_000)
        assert [hit.event for hit in scanned.hits] == [hit.event for hit in indexed.hits]
        assert (scanned.total, scanned.histogram) == (indexed.total, indexed.histogram)
        assert client.stream("shop/log").fetch_event(scanned.hits[0].pointer) == scanned.hits[0].event
