"""A reader of ours and one of Pravega's Java client in one group."""

from __future__ import annotations

import time

import pytest

import sarit
from benchmarks.peers.maven import PeerMissing
from tests.interop.java_peer import JavaReader, compiled
from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    try:
        return compiled(tmp_path_factory.mktemp("classes"))
    except PeerMissing as error:
        pytest.skip(f"no Java client to share a group with: {error}")


@pytest.fixture
def node(tmp_path):
    with RunningNode(tmp_path / "node") as running:
        yield running


def write(client, first: int, count: int) -> list[bytes]:
    events = [f"{number}" for number in range(first, first + count)]
    with client.writer("s/t") as writer:
        for event in events:
            writer.write(event, key=event)
    return [event.encode() for event in events]


def read_until(reader, ours: list[bytes], done) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while not done():
        assert time.monotonic() < deadline
        found = reader.read(0.2)
        if isinstance(found, sarit.GroupEvent):
            ours.append(found.event)


@pytest.mark.parametrize("creator", ["python", "java"])
def test_python_and_java_reader_share_a_group(node, classes, creator) -> None:
    with sarit.connect(node.controller) as client:
        client.create_scope("s")
        client.create_stream("s/t", segments=4)
        if creator == "python":
            client.reader_groups.create("s/g", "s/t", automatic_checkpoint=1.0)
        else:
            maker = JavaReader(classes, node.controller, "s", "g", "t", "create")
            maker.wait()
            assert "created" in maker.said
        group = client.reader_groups.open("s/g")
        events, ours = write(client, 0, 200), []
        java = JavaReader(classes, node.controller, "s", "g", "t", "read")
        try:
            reader = group.reader("python")

            def shared() -> bool:
                return {r: len(s) for r, s in group.info().readers.items()} == {"python": 2, "java": 2}

            read_until(reader, ours, lambda: shared() and len(ours) + len(java.events()) >= len(events))
            events += write(client, 200, 200)
            read_until(reader, ours, lambda: len(ours) + len(java.events()) >= len(events))
            assert java.events()
            segment = client.stream_info("s/t").segments[0].segment
            client.stream("s/t").split(segment)
            events += write(client, 400, 200)
            read_until(reader, ours, lambda: len(ours) + len(java.events()) >= len(events))
            assert any(line.startswith("checkpoint ") for line in java.said)
            java.leave_soon()
            read_until(reader, ours, lambda: java.process.poll() is not None)
            java.wait()
            assert "left" in java.said
            events += write(client, 600, 50)
            read_until(reader, ours, lambda: len(ours) + len(java.events()) >= len(events))
            assert sorted(ours + java.events()) == sorted(events)
            assert len(reader.segments) == 5
        finally:
            java.kill()
        reader.close()
