"""Each event of an epoch comes once, whatever the shards, the point of a kill and the number of shards afterwards."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sarit.core.errors import Conflict, Corrupt, Invalid, Truncated, Unavailable
from sarit.training.blocks import ShardReader
from sarit.training.loader import Batches
from sarit.training.order import mixed
from sarit.training.settings import Settings
from sarit.training.state import EpochState, Order, decode, encode, merge
from sarit.training.tensors import Form
from tests.limits import examples
from tests.unit.training.memory_source import MemorySource

lengths = st.lists(st.one_of(st.integers(0, 40), st.integers(0, 3000)), max_size=60)
streams = st.dictionaries(st.integers(0, 1 << 40), lengths, max_size=4)
orders = st.builds(Order, st.integers(0, 3), st.sampled_from([0, 1, 2, 5, 16, 1000]), st.integers(1, 4))


def batches(source: MemorySource, state, rows: int = 3, *, skip: bool = False, prefetch: bool = False) -> Batches:
    return Batches(source, state, Settings(Form(positions=True), rows, skip=skip, prefetch=prefetch))


def places(batch) -> list[tuple[int, int]]:
    return list(zip(batch["segment"].tolist(), batch["offset"].tolist(), strict=True))


def rest(found: Batches) -> list[tuple[int, int]]:
    return [place for batch in found for place in places(batch)]


def saved(found: Batches):
    """The position as it comes back from a checkpoint."""
    return json.loads(json.dumps(encode(found.state())))


@settings(max_examples=examples(200))
@given(streams, orders, st.integers(1, 7), st.integers(1, 9), st.integers(0, 2))
def test_union_of_shards_is_each_event_once(segments, order, shards, pieces, epoch) -> None:
    source = MemorySource(segments, pieces)
    whole = EpochState(source.plan(), order, epoch)
    found = Counter(place for shard in range(shards) for place in rest(batches(source, whole.shard(shard, shards))))
    assert found == Counter(source.events())


@settings(max_examples=examples(200))
@given(streams, orders, st.integers(1, 4), st.data())
def test_resumed_shard_continues_with_the_next_event(segments, order, shards, data) -> None:
    source = MemorySource(segments)
    state = EpochState(source.plan(), order, 0).shard(data.draw(st.integers(0, shards - 1)), shards)
    expected = rest(batches(source, state))
    found: list[tuple[int, int]] = []
    for _ in range(30):
        ahead = data.draw(st.booleans())
        other = MemorySource(segments, data.draw(st.integers(1, 9)))
        reader = batches(other, state, data.draw(st.integers(1, 20)), prefetch=ahead)
        for _ in range(data.draw(st.integers(0, 4))):
            batch = next(reader, None)
            if batch is None:
                break
            found += places(batch)
        state = decode(saved(reader))
    found += rest(batches(source, state))
    assert found == expected


@settings(max_examples=examples(200))
@given(streams, orders, st.lists(st.integers(1, 5), min_size=2, max_size=4), st.data())
def test_other_numbers_of_shards_continue_exactly(segments, order, worlds, data) -> None:
    source = MemorySource(segments)
    state = encode(EpochState(source.plan(), order, 1))
    found: list[tuple[int, int]] = []
    for shards in worlds:
        states = []
        for shard in range(shards):
            reader = batches(source, decode(state).shard(shard, shards), data.draw(st.integers(1, 20)))
            for _ in range(data.draw(st.integers(0, 3))):
                found += places(next(reader, {"segment": _NONE, "offset": _NONE}))
            states.append({"worker": [saved(reader)]})
        state = merge({"nested": data.draw(st.permutations(states))})
    for shard in range(3):
        found += rest(batches(source, decode(state).shard(shard, 3)))
    assert Counter(found) == Counter(source.events())


class _None:
    @staticmethod
    def tolist() -> list[int]:
        return []


_NONE = _None()


@settings(max_examples=examples(100))
@given(streams, orders, st.data())
def test_truncation_leaves_out_what_is_gone_and_nothing_else(segments, order, data) -> None:
    source = MemorySource(segments)
    state = EpochState(source.plan(), order, 0).shard(0, 1)
    reader = batches(source, state, data.draw(st.integers(1, 20)), skip=True)
    begun = [next(reader, None) for _ in range(data.draw(st.integers(0, 5)))]
    found = [place for batch in begun if batch for place in places(batch)]
    for segment, begins in source.begins.items():
        source.heads[segment] = int(data.draw(st.sampled_from(begins.tolist())))
    if data.draw(st.booleans()):
        reader = batches(source, decode(saved(reader)), skip=True)
    found += rest(reader)
    assert len(found) == len(set(found))
    left = {place for place in source.events() if place[1] >= source.heads[place[0]]}
    assert left <= set(found)


def test_truncation_is_an_error_unless_it_is_skipped() -> None:
    source = MemorySource({0: [10] * 500})
    source.heads[0] = 18 * 100
    whole = EpochState(source.plan(), Order(0, 0, 1), 0)
    with pytest.raises(Truncated):
        rest(batches(source, whole.shard(0, 1)))
    skipping = batches(source, whole.shard(0, 1), skip=True)
    assert len(rest(skipping)) == 400
    assert skipping.skipped_bytes == 1800


def test_truncation_of_a_whole_piece_is_an_error() -> None:
    source = MemorySource({0: [10] * 500})
    whole = EpochState(source.plan(), Order(0, 0, 1), 0)
    source.heads[0] = 18 * 400
    with pytest.raises(Truncated):
        rest(batches(source, whole.shard(3, 9)))
    assert rest(batches(source, whole.shard(8, 9)))  # which has lost nothing


def test_truncated_block_goes_on_behind_the_last_event_that_was_handed_out() -> None:
    for emitted in range(1, 50):
        source = MemorySource({0: [10] * 60})
        reader = batches(source, EpochState(source.plan(), Order(0, 60, 1), 0).shard(0, 1), emitted, skip=True)
        found = places(next(reader))
        source.heads[0] = 18 * 5
        again = rest(batches(source, decode(saved(reader)), skip=True))
        assert not set(found) & set(again)
        assert {place for place in source.events() if place[1] >= 90} <= {*found, *again}


def test_truncation_is_an_error_while_a_piece_is_read() -> None:
    source = MemorySource({0: [10] * 500})
    reader = batches(source, EpochState(source.plan(8192), Order(0, 50, 1), 0).shard(0, 1), 5)
    next(reader)
    source.heads[0] = 18 * 400
    with pytest.raises(Truncated):
        rest(reader)


def test_changed_stream_is_refused_when_a_block_is_read_again() -> None:
    source = MemorySource({0: [10] * 100})
    reader = batches(source, EpochState(source.plan(), Order(0, 50, 1), 0).shard(0, 1), 5)
    next(reader)
    state = saved(reader)
    other = MemorySource({0: [28, 28] * 25})
    with pytest.raises(Conflict, match="not the stream that the position is of"):
        rest(batches(other, decode(state)))


def test_orders_differ_between_epochs_and_seeds_and_repeat() -> None:
    source = MemorySource({0: [10] * 500, 1: [11] * 500})

    def order(seed: int, epoch: int) -> list[tuple[int, int]]:
        return rest(batches(source, EpochState(source.plan(), Order(seed, 100, 2), epoch).shard(0, 1)))

    assert order(1, 0) == order(1, 0)
    assert len({tuple(order(seed, epoch)) for seed in (1, 2) for epoch in (0, 1)}) == 4
    assert order(1, 0) != sorted(order(1, 0))


def test_order_is_that_of_the_first_version() -> None:
    """A position of an older Sarit means the same in a newer one."""
    source = MemorySource({0: [10] * 400, 5: [20] * 300})
    found = rest(batches(source, EpochState(source.plan(), Order(7, 40, 2), 3).shard(1, 2)))
    assert found[:6] == GOLDEN


GOLDEN = [(5, 7756), (5, 7896), (5, 7616), (0, 36), (0, 324), (5, 7672)]


def test_unshuffled_shard_has_its_events_as_they_are_stored() -> None:
    source = MemorySource({0: [10] * 500, 1: [11] * 500})
    found = rest(batches(source, EpochState(source.plan(), Order(0, 0, 4), 0).shard(0, 1)))
    assert found == source.events()


class Failing(MemorySource):
    """Fails by chance while it reads."""

    chance = 0
    number = 0

    def read(self, part, start, end):
        for batch in super().read(part, start, end):
            self.number = mixed(self.number)
            if self.number % 100 < self.chance:
                raise Unavailable("not now")
            yield batch


@settings(max_examples=examples(100))
@given(streams, orders, st.integers(1, 40), st.booleans(), st.integers(1, 20))
def test_failed_call_is_repeated_without_loss(segments, order, chance, prefetch, rows) -> None:
    source = Failing(segments)
    state = EpochState(source.plan(), order, 0).shard(0, 1)
    expected = rest(batches(source, state))
    source.chance = chance
    reader = Batches(source, state, Settings(Form(positions=True), rows, prefetch=prefetch))
    found: list[tuple[int, int]] = []
    for _ in range(2000):
        try:
            batch = next(reader, None)
        except Unavailable:
            state = decode(saved(reader))
            assert found + rest(batches(MemorySource(segments), state)) == expected
            source.chance = max(source.chance - 1, 0)
            continue
        if batch is None:
            break
        found += places(batch)
    assert found == expected


def test_event_that_does_not_fit_is_not_handed_out() -> None:
    source = MemorySource({0: [4] * 10 + [5] + [4] * 10})
    state = EpochState(source.plan(), Order(0, 0, 1), 0).shard(0, 1)
    reader = Batches(source, state, Settings(Form("u1", (4,)), 6))
    assert len(next(reader)["value"]) == 6
    for _ in range(2):
        with pytest.raises(Corrupt, match="the event at 120 of segment 0 has 5 bytes"):
            next(reader)
    skipping = Batches(source, decode(saved(reader)), Settings(Form("u1", (4,), on_error="skip"), 6))
    assert [len(batch["value"]) for batch in skipping] == [5, 6, 3]


def test_closed_batches_are_refused_and_their_position_stays() -> None:
    source = MemorySource({0: [10] * 100})
    state = EpochState(source.plan(), Order(0, 7, 1), 0).shard(0, 1)
    reader = Batches(source, state, Settings(Form(positions=True), 5, prefetch=True))
    found = places(next(reader))
    reader.close()
    with pytest.raises(Invalid, match="are closed"):
        list(reader)
    assert found + rest(batches(source, decode(saved(reader)))) == rest(batches(source, state))


def test_last_batch_is_left_out_by_choice() -> None:
    source = MemorySource({0: [10] * 10})
    whole = EpochState(source.plan(), Order(0, 0, 1), 0)
    sizes = [len(batch["value"]) for batch in batches(source, whole.shard(0, 1), 4)]
    assert sizes == [4, 4, 2]
    dropping = Batches(source, whole.shard(0, 1), Settings(Form(), 4, drop_last=True))
    assert [len(batch["value"]) for batch in dropping] == [4, 4]
    assert source.closed == 2  # an iterator that came to its end holds no connection


def test_block_is_bounded_in_bytes(monkeypatch) -> None:
    monkeypatch.setattr("sarit.training.blocks.TRAINING_BLOCK_BYTES", 1000)
    source = MemorySource({0: [92] * 100})
    reader = ShardReader(source, EpochState(source.plan(), Order(0, 100, 1), 0).shard(0, 1))
    rows, _ = reader.fetch()
    assert rows is not None
    assert rows.count == 10


def _begun(order: Order, epoch: int, shard: int, shards: int):
    source = MemorySource({0: [10] * 500})
    reader = batches(source, EpochState(source.plan(), order, epoch).shard(shard, shards))
    next(reader)
    return saved(reader)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda states: states[:2], r"those of \[2\] are missing"),
        (lambda states: [*states, states[0]], "none twice"),
        (lambda states: [*states[:2], _begun(Order(0, 4, 2), 4, 2, 3)], "epochs 0 and 4"),
        (lambda states: [*states[:2], _begun(Order(9, 4, 2), 0, 2, 3)], "different epochs, streams"),
        (lambda states: [*states[:2], _begun(Order(0, 4, 2), 0, 2, 4)], "of 4 shards and one of 3"),
        (lambda states: [], "no position"),
        (lambda states: [*states, merge(states)], "whole epoch among"),
    ],
)
def test_states_that_do_not_go_together_are_refused(change, text) -> None:
    states = [_begun(Order(0, 4, 2), 0, shard, 3) for shard in range(3)]
    with pytest.raises(Invalid, match=text):
        merge(change(states))


MUTATIONS = [
    lambda state: state.pop("plan"),
    lambda state: state.update(plan=None),
    lambda state: state["plan"].update(stream=5),
    lambda state: state["plan"].update(parts=[[0, 9, 5]]),
    lambda state: state["plan"].update(parts=[[0, 0, 1 << 60]]),
    lambda state: state.update(epoch="1"),
    lambda state: state.update(order=[0, -1, 2]),
    lambda state: state.update(order=[0, 4, 1 << 50]),
    lambda state: state.update(shard=3),
    lambda state: state.update(shards=0),
    lambda state: state.update(next=[1 << 40, 0, 0]),
    lambda state: state.update(next=[0, 0, 0]),
    lambda state: state.update(begun=[None]),
    lambda state: state.update(begun=[[0, 5], [0, 6]]),
    lambda state: state["block"].update(ranges=[[1 << 30, 0, 5]]),
    lambda state: state["block"].update(ranges=[[0, 0, 1 << 50]]),
    lambda state: state["block"].update(emitted=1 << 50),
    lambda state: state["block"].update(key=-5),
    lambda state: state.update(work={"items": [[0, -1], [0, -1]], "blocks": []}),
    lambda state: state.update(work={"items": 5}),
    lambda state: state.update({"sarit-training": 2}),
    lambda state: state.pop("sarit-training"),
]


@pytest.mark.parametrize("number", range(len(MUTATIONS)))
def test_damaged_position_is_refused(number) -> None:
    source = MemorySource({0: [10] * 500})
    reader = batches(source, EpochState(source.plan(), Order(0, 4, 2), 0).shard(0, 1))
    next(reader)
    state = saved(reader)
    decode(state)
    MUTATIONS[number](state)
    with pytest.raises(Invalid):
        decode(state)
