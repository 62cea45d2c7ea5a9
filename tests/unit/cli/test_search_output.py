"""What `sarit search` prints of an index."""

from __future__ import annotations

from sarit.cli.search_output import print_result
from sarit.client.search.results import SearchHit, SearchResult
from sarit.core.names import SegmentId


def printed(capsys, output="text", **fields):
    made = {"hits": (), "total": 0, "histogram": (), "facets": {}, "cut": None, "committed_ms": 0, "page": b""}
    print_result(SearchResult(**made | fields), output, count=False, scores=False)
    return capsys.readouterr().out


def test_value_of_a_facet_is_one_line_whatever_is_in_it(capsys) -> None:
    facets = {"level": (("err or", 3), ("x\nlevel  info  9", 2), ("\x1b[31m\u202e", 1), ("größe", 1))}
    assert printed(capsys, facets=facets).splitlines() == [
        "level  err or  3", 'level  "x\\nlevel  info  9"  2', 'level  "\\u001b[31m\\u202e"  1', "level  größe  1",
    ]  # fmt: skip


def test_times_have_seconds_or_milliseconds(capsys) -> None:
    hits = tuple(SearchHit(SegmentId(0, 0), 0, time_ms, 0.0, b"x") for time_ms in (1000, 1001, 1_790_000_000_120))
    times = [line.split()[0] for line in printed(capsys, hits=hits).splitlines()]
    assert times == ["1970-01-01T00:00:01Z", "1970-01-01T00:00:01.001Z", "2026-09-21T14:13:20.120Z"]
