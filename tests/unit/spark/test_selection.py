"""Which streams the options of a read select."""

from __future__ import annotations

import pytest

from sarit.core.errors import Invalid, NotFound
from sarit.core.names import StreamName
from sarit.spark.source.options import parse_read

STREAMS = [StreamName("a", name) for name in ("y", "x", "logs-2", "logs-1", "old-logs-3")]


def resolved(**options):
    scopes = {"a": STREAMS, "empty": []}
    return [str(name) for name in parse_read(options).selection.resolve(lambda scope: iter(scopes[scope]))]


@pytest.mark.parametrize(
    "options",
    [
        {"stream": "a/x"},
        {"path": "a/x"},
        {"stream": " x ", "scope": "a"},
        {"streams": "a/x"},
        {"streamPattern": "a/x"},
        {"streamPattern": "[x]", "scope": "a"},
    ],
)
def test_one_stream_is_selected_by_each_option(options):
    assert resolved(**options) == ["a/x"]


def test_several_streams_are_sorted_and_unique():
    assert resolved(streams="b/z, y ,a/x,a/y,", scope="a") == ["a/x", "a/y", "b/z"]


def test_pattern_matches_whole_names_of_its_scope():
    assert resolved(streamPattern="a/logs-.*") == ["a/logs-1", "a/logs-2"]
    assert resolved(streamPattern="a/(x|y)") == ["a/x", "a/y"]


def test_pattern_without_a_match_is_refused_with_names_of_the_scope():
    with pytest.raises(NotFound, match=r"no stream of scope a matches streamPattern 'log-.*': it has 5, as .*logs-"):
        resolved(streamPattern="a/log-.*")
    with pytest.raises(NotFound, match="it has none"):
        resolved(streamPattern="empty/.*")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "which streams"),
        ({"streams": " , "}, "streams is ' , '"),
        ({"stream": "a/x", "streams": "a/y"}, "give one"),
        ({"stream": "a/x", "path": "a/y"}, "give one"),
        ({"path": "a/x", "streamPattern": "a/.*"}, "give one"),
        ({"stream": "a/x,a/y"}, 'option\\("streams"'),
        ({"streams": "a/x,y"}, "'y' is not SCOPE/STREAM"),
        ({"streamPattern": "logs-.*"}, "give SCOPE/REGEX"),
        ({"streamPattern": "a.*/x"}, "'a.\\*' is no scope"),
        ({"streamPattern": "a/(x"}, "no regular expression: missing"),
    ],
)
def test_unclear_selection_is_refused(options, text):
    with pytest.raises(Invalid, match=text):
        resolved(**options)


def test_several_streams_are_no_single_stream():
    with pytest.raises(Invalid, match="one stream, not a/x,b/y"):
        _ = parse_read({"streams": "b/y,a/x"}).stream
