"""A node is killed while a group reads: its readers continue, and every event is read once."""

import threading
import time

import sarit
from tests.nodes import RunningNode

EVENTS = 1200
SECONDS = 60


def write(client, first: int, count: int) -> list[bytes]:
    events = [f"{number}" for number in range(first, first + count)]
    with client.writer("s/t") as writer:
        for event in events:
            writer.write(event, key=f"{int(event) % 50}")
    return [event.encode() for event in events]


def read(group, name: str, into: list[bytes]) -> None:
    with group.reader(name) as reader:
        while not reader.at_end:
            found = reader.read(0.2)
            if isinstance(found, sarit.GroupEvent):
                into.append(found.event)
                time.sleep(0.0005)  # so that the node is killed in the middle


def test_group_survives_a_killed_node(tmp_path):
    node = RunningNode(tmp_path / "node", "--controller-port", "0", "--store-port", "0").start()
    ports = ["--controller-port", node.controller.rpartition(":")[2], "--store-port", node.store.rpartition(":")[2]]
    try:
        with sarit.connect(node.controller) as client:
            client.create_scope("s")
            client.create_stream("s/t", segments=3)
            group = client.reader_groups.create("s/g", "s/t", automatic_checkpoint=0.2)
            events, found = write(client, 0, EVENTS), []
            threads = [threading.Thread(target=read, args=(group, name, found)) for name in ("one", "two")]
            for thread in threads:
                thread.start()
            deadline = time.monotonic() + SECONDS
            while len(found) < EVENTS // 4:
                assert time.monotonic() < deadline
                time.sleep(0.005)
            node.kill()
            node = RunningNode(tmp_path / "node", *ports).start()
            events += write(client, EVENTS, 200)
            client.seal_stream("s/t")
            for thread in threads:
                thread.join(SECONDS)
            assert sorted(found) == sorted(events)
            assert group.online_readers() == []
    finally:
        node.kill()
