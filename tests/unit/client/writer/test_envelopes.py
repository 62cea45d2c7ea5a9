"""Envelopes in `write`, `write_many` and transactions: bytes as stored, keys that route."""

from __future__ import annotations

import pytest

import sarit
from sarit import Envelope
from sarit.core.errors import Invalid
from tests.nodes import RunningNode
from tests.unit.client.world import on_loop

MADE = [Envelope(str(n), key=None if n % 4 == 3 else f"k{n % 3}", event_time=n, headers={"h": b"v"}) for n in range(40)]


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with (
        RunningNode(tmp_path_factory.mktemp("envelopes") / "node") as node,
        sarit.connect(node.controller) as connected,
    ):
        connected.create_scope("s")
        yield connected


@on_loop
async def test_write_frames_an_envelope_and_routes_by_its_key(world) -> None:
    world.controller.create("s/t", 4)
    world.controller.create("s/u", 4)
    world.controller.create("s/v", 4)
    writer, plain, bulk = (world.client.writer(stream) for stream in ("s/t", "s/u", "s/v"))
    bulk.write_many([envelope for envelope in MADE if envelope.key is not None])
    for envelope in MADE:
        if envelope.key is not None:
            writer.write(envelope)
            plain.write(bytes(envelope), envelope.key)
    await writer.flush()
    await plain.flush()
    await bulk.flush()
    found = {
        stream: {name[3:]: bytes(one.data) for name, one in world.store.segments.items() if name.startswith(stream)}
        for stream in ("s/t", "s/u", "s/v")
    }
    assert len([data for data in found["s/t"].values() if data]) > 1
    assert found["s/t"] == found["s/u"] == found["s/v"]
    await writer.close()
    await plain.close()
    await bulk.close()


def read(client, stream):
    return list(client.reader(stream, end="tail"))


@pytest.mark.parametrize("way", ["write", "write_many", "mixed", "transaction", "columns"])
def test_every_way_to_write_takes_envelopes(client, way):
    stream = f"s/{way.replace('_', '-')}"
    client.create_stream(stream, segments=3)
    if way == "transaction":
        with client.transactional_writer(stream) as writer, writer.begin() as transaction:
            transaction.write_many(MADE[:20])
            for envelope in MADE[20:]:
                transaction.write(envelope)
    else:
        with client.writer(stream) as writer:
            if way == "write":
                for envelope in MADE:
                    writer.write(envelope)
            elif way == "columns":
                keys = [one.key for one in MADE]
                headers = [[{"key": "h", "value": b"v"}]] * len(MADE)
                columns = [one.payload for one in MADE], [one.event_time for one in MADE]
                events = Envelope.encode_many(columns[0], keys=keys, event_times=columns[1], headers=headers)
                writer.write_many(events, keys)
            else:
                writer.write_many([*MADE, *(["plain", b"plain"] if way == "mixed" else [])])
    events = read(client, stream)
    found = [Envelope.parse(event) for event in events if Envelope.is_envelope(event)]
    assert sorted(found, key=lambda one: one.event_time) == MADE
    for key in ("k0", "k1", "k2"):
        mine = [one.event_time for one in found if one.key == key]
        assert mine == sorted(mine)
    assert [event for event in events if not Envelope.is_envelope(event)] == [b"plain"] * (2 * (way == "mixed"))


def test_given_key_comes_before_that_of_the_envelope(client):
    client.create_stream("s/given", segments=4)
    client.create_stream("s/same", segments=4)
    for stream, key in (("s/given", "one"), ("s/same", None)):
        with client.writer(stream) as writer:
            for number in range(30):
                writer.write(Envelope(str(number), key=f"other {number}" if key else "one"), key)
            writer.write_many([Envelope("x", key="other")] * 2, None if key is None else [key] * 2)
    # All of one key: one segment.  The two batches of None have the key of their envelopes.
    ends = client.segment_infos("s/given", client.stream_cut_head("s/given").positions)
    assert sum(info.end_offset > 0 for info in ends.values()) == 1


def test_what_is_no_event_is_refused_with_what_is_one(client):
    client.create_stream("s/wrong")
    with client.writer("s/wrong") as writer:
        with pytest.raises(Invalid, match="an event is bytes, str or Envelope, not int"):
            writer.write(5)  # type: ignore[arg-type]
        with pytest.raises(Invalid, match="an event is bytes, str or Envelope, not dict"):
            writer.write_many([Envelope("x"), {}])
