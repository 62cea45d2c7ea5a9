"""The position of a query as that of a reader group, on a node (without Spark)."""

from __future__ import annotations

import pytest

import sarit
from sarit.core.errors import Conflict
from sarit.core.names import StreamName
from sarit.spark.client import ConnectedSource
from sarit.spark.options import Target
from tests.nodes import RunningNode

X, Y = StreamName("s", "x"), StreamName("s", "y")


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("node") / "data") as node:
        yield node


@pytest.fixture
def client(node):
    with sarit.connect(node.controller) as client:
        client.create_scope("s")
        for stream in (X, Y):
            client.create_stream(stream, segments=2)
            with client.writer(stream) as writer:
                for n in range(100):
                    writer.write(f"{n:012}", key=str(n))  # 20 bytes with its header
        yield client
        client.delete_scope("s", recursive=True)


@pytest.fixture
def source(node):
    source = ConnectedSource(Target(node.controller))
    yield source
    source.close()


def position(client, stream, which):
    return dict(client.cut(stream, which).positions)


def test_group_is_created_at_the_position_and_follows_it(client, source):
    head, tail = position(client, X, "head"), position(client, X, "tail")
    source.publish("s/query", {X: head})
    group = client.reader_groups.open("s/query")
    assert group.unread_bytes() == 2000
    middle = {**head, min(head): tail[min(head)]}
    source.publish("s/query", {X: middle})
    assert group.unread_bytes() == 2000 - tail[min(head)]
    source.publish("s/query", {X: tail})
    source.publish("s/query", {X: tail})
    assert group.unread_bytes() == 0
    # Through a scale, and with another stream.
    client.stream(X).scale(3)
    with client.writer(X) as writer:
        writer.write("x" * 92, key="a")
    source.publish("s/query", {X: tail, Y: position(client, Y, "head")})
    assert group.unread_bytes() == 2100
    source.publish("s/query", {X: position(client, X, "tail"), Y: position(client, Y, "tail")})
    assert group.unread_bytes() == 0


def test_query_that_went_back_to_an_older_checkpoint_moves_its_group_back(client, source, caplog):
    head, tail = position(client, X, "head"), position(client, X, "tail")
    starts = {X: tail, Y: position(client, Y, "head")}
    source.publish("s/query", starts)
    group = client.reader_groups.open("s/query")
    middle = {**head, min(head): tail[min(head)]}
    for at, unread in ((head, 4000), (middle, 4000 - tail[min(head)])):
        source.publish("s/query", {**starts, X: at})
        assert group.unread_bytes() == unread
    source.publish("s/query", {X: tail, Y: position(client, Y, "tail")})
    assert group.unread_bytes() == 0
    # The reset begins a generation, to which what was released before means nothing: no release goes back.
    assert not caplog.records


def test_group_with_readers_is_left_alone(client, source):
    group = client.reader_groups.create("s/read", [str(X)])
    with group.reader("r") as reader:
        first = next(iter(reader)).event
        with pytest.raises(Conflict, match="reader group s/read has readers \\(r\\): name another"):
            source.publish("s/read", {X: position(client, X, "tail")})
        assert next(iter(reader)).event != first
