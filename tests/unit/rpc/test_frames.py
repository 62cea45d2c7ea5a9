"""Frames of HTTP/2 are counted and cut at their ends, however the bytes come; what they cost is bounded."""

from __future__ import annotations

import random

import pytest

from sarit.core.bucket import Bucket, HostBuckets
from sarit.rpc.frame_budget import FrameBudget
from sarit.rpc.frames import Frames, FrameScanner
from sarit.rpc.limits import (
    CONTROL_BURST,
    CONTROL_PER_CALL,
    CONTROL_PER_SECOND,
    HEADER_BYTES_PER_TURN,
    HOST_WORK_BURST,
    HOST_WORK_PER_SECOND,
    HTTP2_FRAMES_PER_TURN,
    LONG_DATA_BYTES,
    MAX_HEADER_BLOCK_BYTES,
    MAX_HOSTS_COUNTED,
    MAX_HTTP2_FRAME_BYTES,
    UNKNOWN_CONTROL_BURST,
    UNKNOWN_CONTROL_PER_SECOND,
    UNKNOWN_WORK_BURST,
    WIDE_FRAME_BYTES,
)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int = 0, payload: bytes = b"", stream: int = 0) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


CALL = frame(1, 4, b"h" * 40, 1) + frame(0, 1, b"d" * 2000, 1)
MIXED = PREFACE + b"".join(
    [frame(4, 0, b"\0\4\0\0\xff\xff"), frame(4, 1), CALL, frame(6, 0, bytes(8)), frame(3, 0, bytes(4), 1), frame(0, 1),
     frame(8, 0, bytes(4)), frame(2, 0, bytes(5)), frame(0x77), frame(1, 0, b"h" * 10, 3), frame(9, 4, b"h" * 10, 3)]
)  # fmt: skip


def taken(pieces: list[bytes], most: int = 1000) -> list[Frames]:
    scanner, found = FrameScanner(), []
    for piece in pieces:
        scanner.add(piece)
        while (frames := scanner.take(most)).data:
            found.append(frames)
    assert scanner.excess is None
    assert not scanner.held_bytes
    assert not scanner.incomplete
    return found


def total(found: list[Frames]) -> tuple[bytes, int, int, int, int]:
    return (b"".join(f.data for f in found), *(sum(each) for each in zip(*(f[1:5] for f in found), strict=True)))  # type: ignore[return-value]


def test_long_data_comes_alone():
    def scanned(data, most_bytes=WIDE_FRAME_BYTES):
        scanner, found = FrameScanner(), []
        scanner.most_bytes = most_bytes
        scanner.add(PREFACE + data)
        while (frames := scanner.take(1000)).data:
            found.append((frames.long_stream, bytes(frames.data), frames.frames))
        return found

    long = frame(0, 0, bytes(LONG_DATA_BYTES), 3)
    assert scanned(CALL + long + long + CALL) == [(0, PREFACE + CALL, 2), (3, long, 1), (3, long, 1), (0, CALL, 2)]
    scanner = FrameScanner()
    scanner.most_bytes = WIDE_FRAME_BYTES
    scanner.add(PREFACE + CALL + long)
    scanner.take(1000)
    assert bytes(scanner.take(1000).payload) == bytes(LONG_DATA_BYTES)
    # What is shorter, has flags (as the end of a call, or padding), or is in the middle of headers, is for h2.
    for other in (
        frame(0, 0, bytes(LONG_DATA_BYTES - 1), 3), frame(0, 1, bytes(LONG_DATA_BYTES), 3),
        frame(0, 8, bytes(LONG_DATA_BYTES), 3), frame(1, 0, b"h", 3) + long,
    ):  # fmt: skip
        assert {stream for stream, _, _ in scanned(other)} == {0}
    # Nobody may send it who has not the permission to.
    assert scanned(long, MAX_HTTP2_FRAME_BYTES) == [(0, PREFACE, 0)]


def test_each_kind_counts_as_what_it_costs():
    (found,) = taken([MIXED])
    # Settings 8, acknowledged settings 1, ping 1, reset 16, DATA without bytes 1, window 1, priority 1, unknown 1,
    # continuation 1; neither headers nor the DATA of a call.
    assert found[:5] == (MIXED, 12, 2, 60, 8 + 1 + 1 + 16 + 1 + 1 + 1 + 1 + 1)


def test_however_bytes_come_frames_are_whole_and_nothing_is_lost():
    drawn = random.Random(7)
    for most in (1, 3, 1000):
        for _ in range(50):
            cuts = sorted(drawn.sample(range(1, len(MIXED)), drawn.randrange(1, 40)))
            pieces = [MIXED[a:b] for a, b in zip([0, *cuts], [*cuts, len(MIXED)], strict=True)]
            found = taken(pieces, most)
            assert all(f.frames <= most for f in found)
            assert total(found) == total(taken([MIXED]))
    assert total(taken([MIXED[at : at + 1] for at in range(len(MIXED))])) == total(taken([MIXED]))


def test_one_turn_takes_a_bounded_number_of_frames_and_bytes_of_headers():
    scanner = FrameScanner()
    scanner.add(PREFACE + frame(6, 0, bytes(8)) * 29_000)
    assert scanner.take(HTTP2_FRAMES_PER_TURN).frames == HTTP2_FRAMES_PER_TURN
    scanner = FrameScanner()
    scanner.add(PREFACE + frame(1, 4, bytes(5000)) * 100)
    assert scanner.take(HTTP2_FRAMES_PER_TURN).header_bytes < HEADER_BYTES_PER_TURN + 5000


def test_part_of_a_frame_or_of_headers_is_known_as_such():
    for sent in (frame(6, 0, bytes(8))[:12], frame(1, 0, b"h")):
        scanner = FrameScanner()
        scanner.add(PREFACE + sent)
        scanner.take(10)
        assert scanner.incomplete


@pytest.mark.parametrize(
    ("sent", "excess"),
    [
        ((MAX_HTTP2_FRAME_BYTES + 1).to_bytes(3, "big"), "announced a frame of more than 16 KiB"),
        (
            frame(1, 0, bytes(MAX_HTTP2_FRAME_BYTES)) + frame(9, 0, bytes(MAX_HTTP2_FRAME_BYTES)) * 4,
            "sent headers of more than 64 KiB",
        ),
    ],
)
def test_what_exceeds_a_bound_is_named_and_not_read(sent, excess):
    scanner = FrameScanner()
    scanner.add(PREFACE + frame(6, 0, bytes(8)) + sent)
    read = 0
    while scanner.excess is None:
        frames = scanner.take(10)
        assert frames.data
        read += frames.header_bytes
    assert scanner.excess == excess
    assert read <= MAX_HEADER_BLOCK_BYTES + MAX_HTTP2_FRAME_BYTES


def control(cost: int) -> Frames:
    return Frames(b"", 1, 0, 0, cost)


def call(control: int = 1) -> Frames:
    return Frames(b"", 2, 1, 300, control)


def counted_hosts() -> HostBuckets:
    return HostBuckets(HOST_WORK_BURST, HOST_WORK_PER_SECOND, MAX_HOSTS_COUNTED)


def new(now: float = 0.0, host: Bucket | None = None) -> FrameBudget:
    return FrameBudget(host or counted_hosts().of("a", now), now)


def test_control_frames_are_few_before_a_log_in_and_more_after_it():
    budget = new()
    assert budget.charge(control(UNKNOWN_CONTROL_BURST), 0, 0.0)
    assert not budget.charge(control(1), 0, 0.0)
    budget = new()
    assert budget.charge(control(UNKNOWN_CONTROL_BURST), 0, 0.0)
    assert budget.charge(control(UNKNOWN_CONTROL_PER_SECOND * 2), 0, 2.0)
    budget.become_known(2.0)
    # Not at once: a client that comes back after each flood gains nothing.
    assert not budget.charge(control(CONTROL_PER_SECOND), 0, 2.5)
    budget = new()
    budget.become_known(0.0)
    assert budget.charge(control(CONTROL_BURST), 0, 60.0)
    assert not budget.charge(control(1), 0, 60.0)


def test_calls_bring_the_control_frames_that_they_need_and_reset_ones_do_not():
    budget = new()
    budget.become_known(0.0)
    for _ in range(100_000):  # in no time
        assert budget.charge(call(CONTROL_PER_CALL), 1, 0.0)
    refused = 0
    while budget.charge(Frames(b"", 2, 1, 20, 16), 0, 0.0):
        refused += 1
    assert refused <= (UNKNOWN_CONTROL_BURST + CONTROL_PER_CALL) / 16


def test_frames_of_an_unknown_client_wait_and_those_of_a_known_one_do_not():
    budget = new()
    calls = 0
    while budget.wait(0.0) == 0:
        assert budget.charge(call(), 1, 0.0)
        calls += 1
    assert 50 < calls < UNKNOWN_WORK_BURST / 16
    assert 0 < budget.wait(0.0) < 1
    assert budget.wait(1.0) == 0
    budget.charge(call(), 1, 0.0)
    budget.become_known(0.0)
    assert budget.wait(0.0) == 0


def test_unknown_clients_of_a_host_share_and_known_ones_give_back():
    hosts = counted_hosts()
    for _ in range(10_000):  # one after another, each of which becomes known
        budget = new(0.0, hosts.of("a", 0.0))
        budget.charge(call(), 1, 0.0)
        assert budget.wait(0.0) == 0
        budget.become_known(0.0)
    unknown = 0
    while hosts.of("a", 0.0).wait(0.0) == 0:
        new(0.0, hosts.of("a", 0.0)).charge(call(), 1, 0.0)
        unknown += 1
    assert 100 < unknown < HOST_WORK_BURST / 40
    assert new(0.0, hosts.of("a", 0.0)).wait(0.0) > 0
    assert new(0.0, hosts.of("b", 0.0)).wait(0.0) == 0


def test_host_of_clients_that_flood_waits_a_bounded_time():
    hosts = counted_hosts()
    for _ in range(1000):
        new(0.0, hosts.of("a", 0.0)).charge(control(100_000), 0, 0.0)
    assert 0 < hosts.of("a", 0.0).wait(0.0) <= 5
    assert hosts.of("a", 10.0).wait(10.0) == 0


def test_hosts_that_are_counted_are_bounded():
    hosts = counted_hosts()
    for number in range(MAX_HOSTS_COUNTED + 10):
        hosts.of(f"host {number}", 0.0)
    assert repr(hosts) == f"<HostBuckets of {MAX_HOSTS_COUNTED} hosts>"
