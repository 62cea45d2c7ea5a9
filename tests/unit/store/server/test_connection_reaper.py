"""Connections that hold memory and make no progress are ended; slow ones are not."""

from dataclasses import dataclass, field

from sarit.core.limits import KIB, MIB
from sarit.store.limits import FIRST_REQUEST_SECONDS
from sarit.store.server.connection_reaper import (
    MAX_CONNECTIONS_MEMORY_BYTES,
    ConnectionMemory,
    ConnectionReaper,
    unacked_limit,
    unsent_limit,
)


@dataclass(eq=False)
class Client:
    unsent: int = 0
    half: int = 0
    reads: int = 0
    paused: bool = False
    opened: float = 0.0
    requested: bool = True
    name: str = field(default="", repr=True)

    def memory(self):
        return ConnectionMemory(self.unsent, self.half, self.reads, self.paused)


def ended(reaper, clients, now):
    return [connection for connection, _ in reaper.select(clients, now)]


def test_connection_with_untaken_replies_is_ended_after_the_time_limit():
    reaper, client = ConnectionReaper(60), Client(unsent=100)
    assert ended(reaper, [client], 0) == []
    assert ended(reaper, [client], 59) == []
    ((connection, reason),) = reaper.select([client], 60)
    assert connection is client
    assert reason == "did not take 100 bytes of replies for 60 s"


def test_connection_with_an_incomplete_frame_is_ended_after_the_time_limit():
    reaper, client = ConnectionReaper(60), Client(half=100, reads=3)
    reaper.select([client], 0)
    ((_, reason),) = reaper.select([client], 61)
    assert reason == "sent 100 bytes of a frame and stalled for 61 s"


def test_slow_connection_is_not_ended():
    reaper, reader, writer = ConnectionReaper(60), Client(unsent=1000), Client(half=10)
    for now in range(0, 600, 50):
        assert ended(reaper, [reader, writer], now) == []
        reader.unsent -= 1
        writer.reads += 1
    assert ended(reaper, [reader, writer], 600) == []
    assert ended(reaper, [reader, writer], 660) == [reader, writer]


def test_connection_whose_replies_grow_faster_than_taken_is_stalled():
    reaper, client = ConnectionReaper(60), Client(unsent=100)
    reaper.select([client], 0)
    client.unsent = 200
    assert ended(reaper, [client], 60) == [client]


def test_paused_connection_is_not_blamed_for_an_incomplete_frame():
    reaper, client = ConnectionReaper(60), Client(half=100, paused=True)
    reaper.select([client], 0)
    assert ended(reaper, [client], 100) == []


def test_progress_restarts_the_stall_timer():
    reaper, client = ConnectionReaper(60), Client(unsent=100)
    reaper.select([client], 0)
    client.unsent = 0
    reaper.select([client], 30)
    client.unsent = 100
    reaper.select([client], 50)
    assert ended(reaper, [client], 100) == []
    assert ended(reaper, [client], 110) == [client]


def test_over_the_memory_bound_the_longest_stalled_is_ended_first():
    reaper = ConnectionReaper(60, max_bytes=250)
    old, young, small = Client(unsent=100), Client(half=100), Client(unsent=10)
    assert ended(reaper, [old], 0) == []
    assert ended(reaper, [old, young, small], 5) == []
    third = Client(unsent=100)
    ((connection, reason),) = reaper.select([old, young, small, third], 10)
    assert connection is old
    assert "; all connections hold too much" in reason
    assert ended(reaper, [young, small, third], 15) == []


def test_closed_connections_are_forgotten():
    reaper, client = ConnectionReaper(60), Client(unsent=100)
    reaper.select([client], 0)
    assert reaper.select([], 5) == []
    assert "0 connections" in repr(reaper)


def test_unsent_limit_shrinks_with_the_number_of_connections():
    assert unsent_limit(1) == unsent_limit(128) == 8 * MIB
    assert unsent_limit(129) == 4 * MIB
    assert unsent_limit(10_000) == 64 * KIB
    assert all(unsent_limit(count) * count <= MAX_CONNECTIONS_MEMORY_BYTES for count in range(1, 30_000, 7))


def test_unacked_limit_shrinks_with_the_number_of_connections():
    assert unacked_limit(1) == unacked_limit(32) == 32 * MIB
    assert unacked_limit(33) == 16 * MIB
    assert unacked_limit(10_000) == 64 * KIB
    assert all(unacked_limit(count) * count <= MAX_CONNECTIONS_MEMORY_BYTES for count in range(1, 30_000, 7))


def test_connection_without_a_request_is_silent_from_its_opening():
    reaper = ConnectionReaper()
    early, late, asked = Client(requested=False), Client(opened=10, requested=False), Client()
    everyone = [early, late, asked]
    assert reaper.select_silent(everyone, FIRST_REQUEST_SECONDS - 1) == []
    assert reaper.select_silent(everyone, FIRST_REQUEST_SECONDS) == [early]
    assert reaper.select_silent(everyone, FIRST_REQUEST_SECONDS + 10) == [early, late]
