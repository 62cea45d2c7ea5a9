"""A lane against a model of the store, with connections that break at any moment."""

import random

import pytest

from sarit.client.core.framing import Chunk, chunks_of, split_events
from sarit.client.writer.flush_barrier import Mark
from sarit.client.writer.segment_appender import (
    CHUNK_BYTES,
    DETACHED,
    LANE_WINDOW_BYTES,
    OPEN,
    SEALED,
    SMALL_BLOCK_BYTES,
    SegmentAppender,
)
from sarit.core.errors import Corrupt
from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.wire.append import AppendAssembler
from sarit.wire.frames import FrameReader


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


def new_lane() -> SegmentAppender:
    return SegmentAppender("s/t/0.#epoch.0", None, bytes(16))


def add(lane: SegmentAppender, *events: bytes) -> None:
    for chunk in chunks_of(list(events)):
        lane.add(chunk)


def open_lane(store: ModelStore) -> SegmentAppender:
    lane = new_lane()
    lane.attached(1)
    lane.set_up(store.setup())
    return lane


@pytest.mark.parametrize("seed", range(60))
def test_exactly_once_and_in_order_whatever_breaks(seed: int) -> None:
    rng = random.Random(seed)
    store, lane = ModelStore(), new_lane()
    written: list[bytes] = []
    wire: list = []  # appends sent, not yet seen by the store
    acks: list[int] = []  # sent by the store, not yet seen by the lane
    for step in range(300):
        choice = rng.random()
        if choice < 0.35:
            event = f"{step}".encode() * rng.randrange(1, 3000)
            written.append(event)
            add(lane, event)
        elif choice < 0.4:
            wire.clear() if rng.random() < 0.5 else [store.append(append) for append in wire]
            wire, acks = [], []  # the connection breaks: before or after the store saw what was under way
            lane.detached()
        elif lane.state == DETACHED:
            lane.attached(1)
            lane.set_up(store.setup())
        elif choice < 0.6:
            wire += appends(lane.blocks(urgent=rng.random() < 0.2, only=rng.random() < 0.5))
        elif choice < 0.8 and wire:
            acks.append(store.append(wire.pop(0)))
        elif acks:
            lane.acked(acks.pop(0))
        assert lane.held_bytes >= 0
    if lane.state == DETACHED or wire or acks:
        lane.detached()
        lane.attached(1)
        lane.set_up(store.setup())
    while lane.busy:
        for append in appends(lane.blocks(urgent=True)):
            lane.acked(store.append(append))
    assert split_events(store.data) == written
    assert lane.held_bytes == lane.sent_bytes == 0
    assert lane.acked_events == lane.accepted_events == len(written)


def test_a_few_blocks_go_at_once_then_chunks_gather_until_an_ack() -> None:
    store = ModelStore()
    lane = open_lane(store)
    sent = []
    for number in range(10):
        add(lane, b"%d" % number)
        sent += appends(lane.blocks())
    few = len(sent)
    assert 1 <= few < 5
    lane.acked(store.append(sent[0]))
    (gathered,) = appends(lane.blocks())
    assert gathered.events == 10 - few


def test_where_no_other_lane_gets_anything_a_second_block_is_as_large_as_the_first() -> None:
    lane = open_lane(ModelStore())
    add(lane, b"x" * 1000)
    assert len(appends(lane.blocks(only=True))) == 1
    add(lane, b"y" * 500)
    assert not lane.blocks(only=True)
    add(lane, b"z" * 500)
    (second,) = appends(lane.blocks(only=True))
    assert second.events == 2
    add(lane, b"x" * 5000)
    assert not lane.blocks(only=True), "two are in flight: chunks gather"


def test_of_a_large_first_block_the_second_is_sent_as_soon_as_it_is_worth_a_sync() -> None:
    lane = open_lane(ModelStore())
    add(lane, b"x" * (CHUNK_BYTES // 2))
    assert len(appends(lane.blocks(only=True))) == 1
    add(lane, b"y" * SMALL_BLOCK_BYTES)
    assert len(appends(lane.blocks(only=True))) == 1


@pytest.mark.parametrize("how", ["acknowledged", "urgent", "others"])
def test_a_second_block_does_not_wait_for_ever(how: str) -> None:
    store = ModelStore()
    lane = open_lane(store)
    add(lane, b"x" * 1000)
    (first,) = appends(lane.blocks(only=True))
    add(lane, b"y")
    if how == "acknowledged":
        lane.acked(store.append(first))
    assert len(appends(lane.blocks(urgent=how == "urgent", only=how != "others"))) == 1


def test_a_good_block_does_not_wait_and_the_window_bounds_what_is_in_flight() -> None:
    lane = open_lane(ModelStore())
    total = 0
    for _ in range(40):
        add(lane, b"x" * (CHUNK_BYTES // 2))
        total += sum(append.length for append in appends(lane.blocks()))
    assert total == lane.sent_bytes
    assert LANE_WINDOW_BYTES <= lane.sent_bytes <= LANE_WINDOW_BYTES + CHUNK_BYTES
    assert lane.held_bytes > lane.sent_bytes


def test_small_chunks_are_joined_up_to_the_limit() -> None:
    store = ModelStore()
    lane = open_lane(store)
    for _ in range(3):
        add(lane, b"x")
        for append in appends(lane.blocks()):
            store.append(append)
    for _ in range(30):
        add(lane, b"y" * (CHUNK_BYTES // 10))
    lane.acked(store.last)
    blocks = appends(lane.blocks(urgent=True))
    assert [block.length for block in blocks] == sorted((block.length for block in blocks), reverse=True)
    assert all(block.length <= CHUNK_BYTES for block in blocks)
    assert len(blocks) == 4


def test_marks_pass_when_everything_before_them_is_acknowledged() -> None:
    store = ModelStore()
    lane = open_lane(store)
    passed = []
    add(lane, b"a", b"b")
    mark = Mark(lambda: passed.append(1))
    mark.one_more()
    lane.marks.append((lane.accepted_events, mark))
    mark.one_done()
    add(lane, b"c")
    first, *rest = appends(lane.blocks(urgent=True))
    lane.acked(store.append(first))
    if first.events == 2:
        assert passed == [1]
    for append in rest:
        lane.acked(store.append(append))
    assert passed == [1]


def test_a_store_that_forgets_or_halves_is_corrupt() -> None:
    lane = open_lane(ModelStore())
    add(lane, b"a", b"b", b"c")
    appends(lane.blocks())
    lane.detached()
    lane.attached(1)
    with pytest.raises(Corrupt, match="half"):
        lane.set_up(2)
    lane.set_up(3)
    assert not lane.busy
    lane.attached(1)
    with pytest.raises(Corrupt, match="acknowledged event 3"):
        lane.set_up(2)
    with pytest.raises(Corrupt, match="has event 9"):
        lane.set_up(9)


def test_a_deleted_segment_may_say_it_knows_nothing_but_not_take_more() -> None:
    lane = open_lane(ModelStore())
    add(lane, b"a")
    appends(lane.blocks())
    lane.acked(1)
    lane.detached()
    lane.attached(1)
    lane.set_up(NULL_ATTRIBUTE_VALUE)
    assert lane.state == OPEN
    add(lane, b"b")
    appends(lane.blocks())
    with pytest.raises(Corrupt, match="lost"):
        lane.acked(2)


def test_a_sealed_lane_gives_up_what_is_not_acknowledged_in_order() -> None:
    store = ModelStore()
    lane = open_lane(store)
    for number in range(6):
        add(lane, b"%d" % number)
        wire = appends(lane.blocks())
        if number == 0:
            lane.acked(store.append(wire[0]))
    lane.seal()
    add(lane, b"late")
    assert not lane.blocks(urgent=True)
    left = [event for chunk in lane.surrender() for event in split_events(chunk.data)]
    assert left == [b"1", b"2", b"3", b"4", b"5", b"late"]
    assert lane.state == SEALED
    assert lane.held_bytes == 0
    assert not lane.busy


def test_a_large_event_waits_its_turn_and_holds_up_what_follows() -> None:
    store = ModelStore()
    lane = open_lane(store)
    add(lane, b"before")
    lane.add(Chunk(b"L" * 50, 50, 1, large=True))
    add(lane, b"after")
    (first,) = appends(lane.blocks(urgent=True))
    assert lane.large_due() is None
    lane.acked(store.append(first))
    assert not appends(lane.blocks(urgent=True))
    block = lane.large_due()
    assert block is not None
    assert (block.number, lane.stored_number()) == (2, 1)
    lane.large_done()
    store.last = 2
    lane.attached(1)
    lane.set_up(store.setup())
    (last,) = appends(lane.blocks(urgent=True))
    lane.acked(store.append(last))
    assert not lane.busy


def test_a_large_event_that_was_merged_before_the_connection_broke_is_not_sent_again() -> None:
    lane = open_lane(ModelStore())
    lane.add(Chunk(b"L" * 50, 50, 1, large=True))
    lane.blocks()
    assert lane.large_due() is not None
    lane.detached()
    lane.attached(1)
    lane.set_up(1)
    assert lane.large_due() is None
    assert not lane.busy
