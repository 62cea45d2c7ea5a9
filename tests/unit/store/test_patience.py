"""Connections that hold memory and stand still are ended; those that are only slow are not."""

from dataclasses import dataclass, field

from sarit.core.limits import KIB, MIB
from sarit.store.server.connection_reaper import MAX_HELD_BYTES, ConnectionReaper, Holding, unacked_share, unsent_share


@dataclass(eq=False)
class Held:
    unsent: int = 0
    half: int = 0
    received: int = 0
    paused: bool = False
    name: str = field(default="", repr=True)

    def holding(self):
        return Holding(self.unsent, self.half, self.received, self.paused)


def ended(patience, held, now):
    return [connection for connection, _ in patience.look(held, now)]


def test_replies_not_taken():
    patience, client = ConnectionReaper(60), Held(unsent=100)
    assert ended(patience, [client], 0) == []
    assert ended(patience, [client], 59) == []
    ((connection, reason),) = patience.look([client], 60)
    assert connection is client
    assert reason == "did not take 100 bytes of replies for 60 s"


def test_half_a_frame_and_silence():
    patience, client = ConnectionReaper(60), Held(half=100, received=3)
    patience.look([client], 0)
    ((_, reason),) = patience.look([client], 61)
    assert reason == "began a frame, sent 100 bytes of it and went silent for 61 s"


def test_slow_is_not_still():
    patience, reader, writer = ConnectionReaper(60), Held(unsent=1000), Held(half=10)
    for now in range(0, 600, 50):
        assert ended(patience, [reader, writer], now) == []
        reader.unsent -= 1
        writer.received += 1
    assert ended(patience, [reader, writer], 600) == []
    assert ended(patience, [reader, writer], 660) == [reader, writer]


def test_more_replies_than_taken_is_standing_still():
    patience, client = ConnectionReaper(60), Held(unsent=100)
    patience.look([client], 0)
    client.unsent = 200
    assert ended(patience, [client], 60) == [client]


def test_who_is_not_read_from_cannot_finish_a_frame():
    patience, client = ConnectionReaper(60), Held(half=100, paused=True)
    patience.look([client], 0)
    assert ended(patience, [client], 100) == []


def test_a_pause_that_ends_begins_anew():
    patience, client = ConnectionReaper(60), Held(unsent=100)
    patience.look([client], 0)
    client.unsent = 0
    patience.look([client], 30)
    client.unsent = 100
    patience.look([client], 50)
    assert ended(patience, [client], 100) == []
    assert ended(patience, [client], 110) == [client]


def test_the_bound_of_all_takes_the_stillest_first():
    patience = ConnectionReaper(60, max_held_bytes=250)
    old, young, small = Held(unsent=100), Held(half=100), Held(unsent=10)
    assert ended(patience, [old], 0) == []
    assert ended(patience, [old, young, small], 5) == []
    third = Held(unsent=100)
    ((connection, reason),) = patience.look([old, young, small, third], 10)
    assert connection is old
    assert "all together hold too much" in reason
    assert ended(patience, [young, small, third], 15) == []


def test_the_gone_are_forgotten():
    patience, client = ConnectionReaper(60), Held(unsent=100)
    patience.look([client], 0)
    assert patience.look([], 5) == []
    assert "0 connections" in repr(patience)


def test_shares_shrink_with_the_number_of_connections():
    assert unsent_share(1) == unsent_share(128) == 8 * MIB
    assert unsent_share(129) == 4 * MIB
    assert unsent_share(10_000) == 256 * KIB
    assert all(unsent_share(count) * count <= MAX_HELD_BYTES for count in range(1, 4000, 7))


def test_shares_in_appends_shrink_alike():
    assert unacked_share(1) == unacked_share(32) == 32 * MIB
    assert unacked_share(33) == 16 * MIB
    assert unacked_share(10_000) == 256 * KIB
    assert all(unacked_share(count) * count <= MAX_HELD_BYTES for count in range(1, 4000, 7))
