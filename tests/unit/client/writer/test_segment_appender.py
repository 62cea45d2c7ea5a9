"""A segment appender against a model of the store, with connections that break at any moment."""

import random

import pytest

from sarit.client.core.framing import Chunk, chunks_of, split_events
from sarit.client.limits import APPENDER_WINDOW_BYTES, SMALL_BLOCK_BYTES, WRITE_CHUNK_BYTES
from sarit.client.writer.segment_appender import (
    DISCONNECTED,
    OPEN,
    SEALED,
    TRANSITIONS,
    FlushBarrier,
    SegmentAppender,
)
from sarit.core.errors import Corrupt
from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.wire.frames import AppendAssembler, FrameReader


class ModelStore:
    """One segment, one writer: what was appended, and the number known to the present connection."""

    def __init__(self) -> None:
        self.data = b""
        self.last = NULL_ATTRIBUTE_VALUE
        self.known = NULL_ATTRIBUTE_VALUE

    def setup(self) -> int:
        self.known = self.last
        return self.last

    def append(self, append) -> int:
        assert self.known == self.last, "InvalidEventNumber"
        assert append.last_event_number - append.events == max(self.last, 0), "a number is missing or comes twice"
        self.data += b"".join(append.parts)
        self.last = self.known = append.last_event_number
        return self.last


def appends(parts) -> list:
    assembler = AppendAssembler()
    return [assembler.block_end(payload) for _, payload in FrameReader().feed(b"".join(parts))]


def new_appender() -> SegmentAppender:
    return SegmentAppender("s/t/0.#epoch.0", bytes(16))


def add(appender: SegmentAppender, *events: bytes) -> None:
    for chunk in chunks_of(list(events)):
        appender.add(chunk)


def open_appender(store: ModelStore) -> SegmentAppender:
    appender = new_appender()
    appender.connecting(1)
    appender.opened_at(store.setup())
    return appender


@pytest.mark.parametrize("seed", range(60))
def test_exactly_once_and_in_order_whatever_breaks(seed: int) -> None:
    rng = random.Random(seed)
    store, appender = ModelStore(), new_appender()
    written: list[bytes] = []
    wire: list = []  # appends sent, not yet seen by the store
    acks: list[int] = []  # sent by the store, not yet seen by the appender
    for step in range(300):
        choice = rng.random()
        if choice < 0.35:
            event = f"{step}".encode() * rng.randrange(1, 3000)
            written.append(event)
            add(appender, event)
        elif choice < 0.4:
            wire.clear() if rng.random() < 0.5 else [store.append(append) for append in wire]
            wire, acks = [], []  # the connection breaks: before or after the store saw what was under way
            appender.disconnected()
        elif appender.state == DISCONNECTED:
            appender.connecting(1)
            appender.opened_at(store.setup())
        elif choice < 0.6:
            wire += appends(appender.blocks(urgent=rng.random() < 0.2, only=rng.random() < 0.5))
        elif choice < 0.8 and wire:
            acks.append(store.append(wire.pop(0)))
        elif acks:
            appender.acked(acks.pop(0))
        assert appender.unacked_bytes >= 0
    if appender.state == DISCONNECTED or wire or acks:
        appender.disconnected()
        appender.connecting(1)
        appender.opened_at(store.setup())
    while appender.unacked_bytes:
        for append in appends(appender.blocks(urgent=True)):
            appender.acked(store.append(append))
    assert split_events(store.data) == written
    assert appender.unacked_bytes == appender.bytes_in_flight == 0
    assert appender.acked_events == appender.accepted_events == len(written)


def test_eager_blocks_are_sent_at_once_then_chunks_are_batched() -> None:
    store = ModelStore()
    appender = open_appender(store)
    sent = []
    for number in range(10):
        add(appender, b"%d" % number)
        sent += appends(appender.blocks())
    few = len(sent)
    assert 1 <= few < 5
    appender.acked(store.append(sent[0]))
    (gathered,) = appends(appender.blocks())
    assert gathered.events == 10 - few


def test_only_appender_batches_its_second_block_up_to_the_first() -> None:
    appender = open_appender(ModelStore())
    add(appender, b"x" * 1000)
    assert len(appends(appender.blocks(only=True))) == 1
    add(appender, b"y" * 500)
    assert not appender.blocks(only=True)
    add(appender, b"z" * 500)
    (second,) = appends(appender.blocks(only=True))
    assert second.events == 2
    add(appender, b"x" * 5000)
    assert not appender.blocks(only=True), "two are in flight: chunks gather"


def test_second_block_after_a_large_first_is_sent_when_worth_a_sync() -> None:
    appender = open_appender(ModelStore())
    add(appender, b"x" * (WRITE_CHUNK_BYTES // 2))
    assert len(appends(appender.blocks(only=True))) == 1
    add(appender, b"y" * SMALL_BLOCK_BYTES)
    assert len(appends(appender.blocks(only=True))) == 1


@pytest.mark.parametrize("how", ["acknowledged", "urgent", "others"])
def test_second_block_is_sent_on_ack_or_when_urgent(how: str) -> None:
    store = ModelStore()
    appender = open_appender(store)
    add(appender, b"x" * 1000)
    (first,) = appends(appender.blocks(only=True))
    add(appender, b"y")
    if how == "acknowledged":
        appender.acked(store.append(first))
    assert len(appends(appender.blocks(urgent=how == "urgent", only=how != "others"))) == 1


def test_good_block_is_sent_at_once_and_the_window_bounds_bytes_in_flight() -> None:
    appender = open_appender(ModelStore())
    total = 0
    for _ in range(40):
        add(appender, b"x" * (WRITE_CHUNK_BYTES // 2))
        total += sum(append.length for append in appends(appender.blocks()))
    assert total == appender.bytes_in_flight
    assert APPENDER_WINDOW_BYTES <= appender.bytes_in_flight <= APPENDER_WINDOW_BYTES + WRITE_CHUNK_BYTES
    assert appender.unacked_bytes > appender.bytes_in_flight


def test_small_chunks_join_into_blocks_up_to_the_limit() -> None:
    store = ModelStore()
    appender = open_appender(store)
    for _ in range(3):
        add(appender, b"x")
        for append in appends(appender.blocks()):
            store.append(append)
    for _ in range(30):
        add(appender, b"y" * (WRITE_CHUNK_BYTES // 10))
    appender.acked(store.last)
    blocks = appends(appender.blocks(urgent=True))
    assert [block.length for block in blocks] == sorted((block.length for block in blocks), reverse=True)
    assert all(block.length <= WRITE_CHUNK_BYTES for block in blocks)
    assert len(blocks) == 4


def test_barrier_passes_when_all_before_it_is_acknowledged() -> None:
    store = ModelStore()
    appender = open_appender(store)
    passed = []
    add(appender, b"a", b"b")
    FlushBarrier(lambda: passed.append(1), [appender])
    assert not passed
    add(appender, b"c")
    first, *rest = appends(appender.blocks(urgent=True))
    appender.acked(store.append(first))
    if first.events == 2:
        assert passed == [1]
    for append in rest:
        appender.acked(store.append(append))
    assert passed == [1]


def test_store_that_forgets_or_halves_blocks_raises_corrupt() -> None:
    appender = open_appender(ModelStore())
    add(appender, b"a", b"b", b"c")
    appends(appender.blocks())
    appender.disconnected()
    appender.connecting(1)
    with pytest.raises(Corrupt, match="half"):
        appender.opened_at(2)
    appender.opened_at(3)
    assert not appender.unacked_bytes
    appender.disconnected()
    appender.connecting(1)
    with pytest.raises(Corrupt, match="acknowledged event 3"):
        appender.opened_at(2)
    with pytest.raises(Corrupt, match="has event 9"):
        appender.opened_at(9)


def test_deleted_segment_may_report_no_number_but_not_acknowledge_more() -> None:
    appender = open_appender(ModelStore())
    add(appender, b"a")
    appends(appender.blocks())
    appender.acked(1)
    appender.disconnected()
    appender.connecting(1)
    appender.opened_at(NULL_ATTRIBUTE_VALUE)
    assert appender.state == OPEN
    add(appender, b"b")
    appends(appender.blocks())
    with pytest.raises(Corrupt, match="lost"):
        appender.acked(2)


def test_sealed_appender_returns_unacknowledged_chunks_in_order() -> None:
    store = ModelStore()
    appender = open_appender(store)
    for number in range(6):
        add(appender, b"%d" % number)
        wire = appends(appender.blocks())
        if number == 0:
            appender.acked(store.append(wire[0]))
    appender.seal()
    add(appender, b"late")
    assert not appender.blocks(urgent=True)
    left = [event for chunk in appender.take_unacknowledged() for event in split_events(chunk.data)]
    assert left == [b"1", b"2", b"3", b"4", b"5", b"late"]
    assert appender.state == SEALED
    assert appender.unacked_bytes == 0
    assert not appender.unacked_bytes


def test_large_event_waits_for_acks_and_blocks_later_events() -> None:
    store = ModelStore()
    appender = open_appender(store)
    add(appender, b"before")
    appender.add(Chunk(b"L" * 50, 50, 1, large=True))
    add(appender, b"after")
    (first,) = appends(appender.blocks(urgent=True))
    assert appender.large_due() is None
    appender.acked(store.append(first))
    assert not appends(appender.blocks(urgent=True))
    block = appender.large_due()
    assert block is not None
    assert (block.number, appender.stored_number()) == (2, 1)
    appender.large_done()
    store.last = 2
    appender.connecting(1)
    appender.opened_at(store.setup())
    (last,) = appends(appender.blocks(urgent=True))
    appender.acked(store.append(last))
    assert not appender.unacked_bytes


def test_large_event_merged_before_a_disconnect_is_not_sent_again() -> None:
    appender = open_appender(ModelStore())
    appender.add(Chunk(b"L" * 50, 50, 1, large=True))
    appender.blocks()
    assert appender.large_due() is not None
    appender.disconnected()
    appender.connecting(1)
    appender.opened_at(1)
    assert appender.large_due() is None
    assert not appender.unacked_bytes


def test_large_event_whose_merge_and_disconnect_come_together_is_done_once() -> None:
    """The reply was delivered, then the connection ended, before the task that awaits the reply ran again."""
    appender = open_appender(ModelStore())
    appender.add(Chunk(b"L" * 100, 100, 1, large=True))
    appender.blocks()
    block = appender.large_due()
    assert block is not None
    appender.disconnected()
    appender.large_done()
    assert appender.state == DISCONNECTED
    appender.connecting(1)
    appender.opened_at(block.number)
    assert not appender.unacked_bytes
    assert not appender.blocks()


STATES = {state for state, _ in TRANSITIONS}
EVENTS = {event for _, event in TRANSITIONS}


@pytest.mark.parametrize("state", sorted(STATES))
@pytest.mark.parametrize("event", sorted(EVENTS))
def test_step_outside_the_table_raises_assertion_error(state: str, event: str) -> None:
    appender = new_appender()
    appender.state = state
    if (state, event) in TRANSITIONS:
        appender._step(event)
        assert appender.state == TRANSITIONS[state, event]
    else:
        with pytest.raises(AssertionError, match=f"{event} is not legal while {state}"):
            appender._step(event)
        assert appender.state == state


def test_every_state_is_reachable_and_sealed_is_final() -> None:
    reached = {DISCONNECTED}
    for _ in STATES:
        reached |= {after for (before, _), after in TRANSITIONS.items() if before in reached}
    assert reached == STATES
    assert {after for (before, _), after in TRANSITIONS.items() if before == SEALED} == {SEALED}
