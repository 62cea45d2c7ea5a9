"""The progress of a query is published as the position of a reader group, and never fails the query."""

from __future__ import annotations

import pytest

from sarit.core.errors import Invalid
from sarit.spark.limits import SPARK_PUBLISH_SECONDS
from sarit.spark.source.group_position import GroupPosition
from sarit.spark.source.options import parse_read
from sarit.spark.source.position import Offset, StreamPosition, to_json
from tests.unit.spark.fake_stream import A, FakeSource, FakeStream, S


def at(offset):
    return to_json(Offset({S: StreamPosition({A: offset})}))


def test_position_is_published_every_few_seconds_and_at_the_end():
    source = FakeSource(FakeStream())
    group = GroupPosition("s/g", source)
    group.reached(at(0))
    group.reached(at(10))
    assert source.published == [("s/g", {S: {A: 0}})]
    source.now += SPARK_PUBLISH_SECONDS
    group.reached(at(20))
    group.reached(at(30))
    source.now += SPARK_PUBLISH_SECONDS
    group.reached(at(30))
    group.reached(at(30))
    assert [position[S][A] for _, position in source.published] == [0, 20, 30]
    group.reached(at(40))
    group.publish()
    group.publish()
    assert [position[S][A] for _, position in source.published] == [0, 20, 30, 40]


def test_failed_publication_is_logged_and_repeated(caplog):
    source = FakeSource(FakeStream())
    group = GroupPosition("s/g", source)
    source.broken = True
    group.reached(at(10))
    group.reached(at(10))
    assert [record.getMessage() for record in caplog.records] == [
        "the position of the query was not published as reader group s/g: no controller replies"
    ]
    source.broken = False
    source.now += SPARK_PUBLISH_SECONDS
    group.reached(at(10))
    assert source.published == [("s/g", {S: {A: 10}})]


@pytest.mark.parametrize(
    ("given", "group"),
    [
        ({"stream": "a/x", "readerGroup": "g"}, "a/g"),
        ({"streams": "b/y,a/x", "readerGroup": "c/g"}, "c/g"),
        ({"streamPattern": "d/.*", "readerGroup": "g"}, "d/g"),
        ({"stream": "a/x"}, None),
    ],
)
def test_group_is_in_the_scope_of_the_stream(given, group):
    assert parse_read(given).streaming.reader_group == group


def test_wrong_name_of_a_group_is_refused():
    with pytest.raises(Invalid, match="option readerGroup: 'a/my group' is not SCOPE/GROUP"):
        parse_read({"stream": "a/x", "readerGroup": "my group"})
