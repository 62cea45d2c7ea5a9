"""Reader groups of the blocking client, on a real node: each method once."""

import pytest

import sarit
from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode


@pytest.fixture
def client(tmp_path):
    with RunningNode(tmp_path / "node") as node, sarit.connect(node.controller) as made:
        made.create_scope("s")
        yield made


def test_group_and_reader_methods_work_blocking(client):
    client.create_stream("s/t", segments=2)
    with client.writer("s/t") as writer:
        for number in range(30):
            writer.write(f"{number}", key=f"{number}")
    group = client.reader_groups.create("s/g", "s/t", automatic_checkpoint=0.05, retention="manual")
    assert list(client.reader_groups.list("s")) == ["s/g"]
    assert next(iter(group.segments_changed())) == (2, 0)
    found: list[bytes] = []
    with group.reader("r") as reader:
        while len(found) < 10:
            event = reader.read(HANG_SECONDS)
            if isinstance(event, sarit.GroupEvent):
                found.append(event.event)
        while len(found) < 20:
            batch = reader.read_batch(10, HANG_SECONDS)
            if isinstance(batch, sarit.EventBatch):
                assert batch.position.offsets.items() >= {batch.segment: batch.offset + 8}.items() or batch.events
                found += batch.events
        while len(found) < 30:
            table = reader.read_arrow(HANG_SECONDS)
            if isinstance(table, sarit.ArrowBatch):
                assert table.events.schema.names == ["event", "segment", "offset"]
                found += table.events.column(0).to_pylist()
        assert len(reader.segments) == 2
        assert reader.position().offsets.keys() == set(reader.segments)
        assert group.online_readers() == ["r"]
    assert sorted(found) == sorted(f"{number}".encode() for number in range(30))
    assert group.info().readers == {}
    checkpoint = group.checkpoint("here")
    assert list(group.stream_cuts().values()) == list(checkpoint.cuts.values())
    assert list(checkpoint.cuts.values()) == [client.stream_cut_tail("s/t")]
    group.update_retention_cut(*checkpoint.cuts.values())
    group.give_up_checkpoints()
    assert group.reset(checkpoint) == 1
    assert group.unread_bytes() == 0
    assert group.last_checkpoint() is None
    assert not group.reader_offline("nobody")
    client.seal_stream("s/t")
    with client.reader_groups.open("s/g").reader("last") as reader:
        assert list(reader) == []
        assert reader.at_end
    group.end_of_data(5)
    group.delete()
    assert list(client.reader_groups.list("s")) == []
