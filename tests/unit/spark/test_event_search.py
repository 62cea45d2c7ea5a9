"""Option `search` of a batch read: which events a task leaves, and which fields the query is for."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import pyarrow as pa
import pytest

from sarit.client.streams.jobs import JobInfo
from sarit.core.errors import Invalid
from sarit.search.mapping import Field, Kind, Mapping
from sarit.search.settings import SEARCH_JOB, SEARCH_KIND, SearchSettings
from sarit.spark.limits import SPARK_SEARCH_EVENTS
from sarit.spark.source.event_search import parse_search
from sarit.spark.source.options import parse_read
from sarit.spark.source.ranges import Range
from sarit.spark.source.stream_readers import stream_reader
from tests.unit.spark.fake_stream import A, S

LEVEL = Mapping((Field("level", Kind.KEYWORD), Field("n", Kind.NUMBER)))
EVENTS = [b'{"level": "error", "n": 5, "text": "Disk is full"}', b'{"level": "info", "n": 7}', b"plain error", b"\xff"]


class Client:
    """A client of a stream with these settings of its index."""

    def __init__(self, settings=None):
        jobs = [] if settings is None else [JobInfo(SEARCH_KIND, SEARCH_JOB, settings.encode(), {}, "", False, "")]
        self.stream = lambda _: SimpleNamespace(jobs=lambda: jobs)


class Access:
    """A stream with some events in one segment."""

    stream = S

    def batches(self, segment, start, end):
        yield pa.array(EVENTS, pa.binary()), pa.array(range(len(EVENTS)), pa.int64())


def search(text, mapping=None, settings=None):
    return parse_search(text, mapping).of_stream(Client(settings), Access(), [Range(S, A, 0, 100)])


def found(text, events=EVENTS, **chosen):
    made = pickle.loads(pickle.dumps(search(text, **chosen)))
    left, offsets = made.found(pa.array(events, pa.binary()), pa.array(range(len(events)), pa.int64()))
    assert [events[at] for at in offsets.to_pylist()] == left.to_pylist()
    return offsets.to_pylist()


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("error", [0, 2]), ("level:error", [0]), ("n:>=6", [1]), ('"is full"', [0]), ("-error", [1, 3]),
        ("*", [0, 1, 2, 3]), ("nothing", []), ("level:info OR full", [0, 1]),
    ],
)  # fmt: skip
def test_events_that_a_query_finds(text, places):
    assert found(text) == places


def test_places_are_those_in_the_whole_batch():
    events = [b"no"] * SPARK_SEARCH_EVENTS + [b"yes", b"no", b"yes"]
    assert found("yes", events) == [SPARK_SEARCH_EVENTS, SPARK_SEARCH_EVENTS + 2]


def test_fields_are_those_of_the_option_then_of_the_index_then_of_the_events():
    given = '{"fields": {"other": "text"}}'
    assert search("other:x", given).mapping == Mapping((Field("other", Kind.TEXT),))
    assert search("level:error", settings=SearchSettings(LEVEL)).mapping == LEVEL
    assert {field.path for field in search("error", settings=SearchSettings()).mapping.fields} >= {"level", "n", "text"}
    with pytest.raises(Invalid, match=r"option search, for stream s/t: .*level"):
        search("level:error", given)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"search": "(a"}, "option search: "),
        ({"search": ""}, "option search: "),
        ({"search": "a", "searchMapping": "{"}, "option searchMapping is not JSON"),
        ({"search": "a", "searchMapping": "[]"}, "option searchMapping: a mapping has to be"),
        ({"searchMapping": "{}"}, "option searchMapping belongs to option search"),
    ],
)
def test_wrong_options_are_refused_on_the_driver(options, reason):
    with pytest.raises(Invalid, match=reason):
        parse_read({"stream": "s/t", **options})


def test_streaming_reads_refuse_it():
    with pytest.raises(Invalid, match="option search is for batch reads"):
        stream_reader(parse_read({"stream": "s/t", "search": "a"}), None)
