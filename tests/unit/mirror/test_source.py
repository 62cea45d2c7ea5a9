"""Facts, offers and bytes of a source, on fakes: with commits, scales, rolls and truncations under way."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from sarit.controller import keys
from sarit.controller.calls.identity import IdentityCalls
from sarit.controller.calls.properties import PropertyCalls
from sarit.controller.model.cuts import is_cut
from sarit.controller.model.epochs import known_segments
from sarit.core.errors import Conflict, Invalid, Truncated
from sarit.core.keyspace import KeyRange
from sarit.core.names import SegmentId, StreamName, transaction_segment
from sarit.core.policies import StreamConfig
from sarit.mirror.limits import MAX_MIRROR_STREAMS_PER_CALL, MIRROR_BATCH_BYTES
from sarit.mirror.source import LocalSource
from sarit.mirror.values import FROM_HEAD, FROM_TAIL, Offer, Position, Range
from sarit.rpc.generated import sarit_pb2 as pb
from tests.unit.controller.fakes import Faults
from tests.unit.controller.world import STREAM, World, config, halves, quiet, run, segment, stream_with

if TYPE_CHECKING:
    from sarit.controller.assembly import Controller

A_LOT = 1 << 40


async def started(segments: int = 1) -> tuple[World, Controller, LocalSource]:
    world = World()
    c = await world.controller()
    await stream_with(c, segments)
    return world, c, source_of(world, c)


def source_of(world: World, c: Controller) -> LocalSource:
    return LocalSource(c.catalog, c.streams, c.segments, world.env, "here")


def sid(number: int, epoch: int = 0) -> int:
    return SegmentId(epoch, number).packed


def beginning(count: int = 1) -> Position:
    return Position(STREAM, 0, {sid(n): 0 for n in range(count)})


async def offer(source: LocalSource, position: Position, limit: int = A_LOT) -> Offer:
    (found,) = await source.offers("s", [position], limit)
    assert found is not None
    return found


def reached(position: Position, found: Offer) -> Position:
    """The position at the end of an offer."""
    if not found.epochs:
        return Position(position.name, position.epoch, {s: found.lengths[s] for s in position.lengths})
    last = found.epochs[-1]
    return Position(position.name, last.number, {s: found.lengths[s] for s in last.ids if s in found.lengths})


def test_the_facts_of_a_stream() -> None:
    async def main() -> None:
        world, c, source = await started(2)
        (facts,) = await source.facts("s", [STREAM], FROM_HEAD)
        assert facts is not None
        request = pb.CreationIdRequest(scope="s", stream="t")
        assert facts.creation_id == (await IdentityCalls(c.catalog).creationId(request)).creationId
        assert (facts.name, facts.first_number, facts.sealed, facts.fenced) == (STREAM, 0, False, False)
        assert facts.head == {sid(0): 0, sid(1): 0}
        assert facts.first.number == 0
        assert facts.first.ids == facts.head.keys()
        assert facts.config == config(2)
        assert facts.properties == {}
        assert facts.path == ("here",)
        change = pb.ChangeStreamPropertiesRequest(scope="s", stream="t", properties={"example.com.team": "red"})
        await PropertyCalls(c.catalog).changeStreamProperties(change)
        (changed,) = await source.facts("s", [STREAM], FROM_HEAD)
        assert changed is not None
        assert changed.properties == {"example.com.team": "red"}
        assert changed.version > facts.version
        # Commits write the record again, and change no fact.
        txn, _ = await c.transactions.create(STREAM, 10_000)
        await c.transactions.commit(STREAM, txn, "", 0)
        await quiet(c)
        (same,) = await source.facts("s", [STREAM], FROM_HEAD)
        assert same == changed
        world.segments.append(segment(0), "aa", 10)
        assert (await offer(source, beginning(2))).version == same.version
        await c.streams.truncate(STREAM, {sid(0): 10, sid(1): 0})
        await c.streams.seal(STREAM)
        (sealed,) = await source.facts("s", [STREAM], FROM_HEAD)
        assert sealed is not None
        assert sealed.sealed
        assert sealed.version > same.version
        assert sealed.head == {sid(0): 10, sid(1): 0}

    run(main())


def test_a_source_lists_the_streams_that_links_copy() -> None:
    async def main() -> None:
        world, c, source = await started()
        for name in ("b", "c", "_RGg"):
            await c.streams.create(StreamName("s", name), StreamConfig())
        await c.streams.seal(StreamName("s", "b"))
        await c.streams.delete(StreamName("s", "b"))
        found: list[str] = []
        while page := await source.streams("s", found[-1] if found else ""):
            found += [one.name.stream for one in page]
        assert found == ["_MARKc", "_MARKt", "c", "t"]
        assert await source.streams("nowhere", "") == []
        gone = [StreamName("s", "b"), StreamName("s", "t")]
        assert [one and one.name.stream for one in await source.facts("s", gone, FROM_HEAD)] == [None, "t"]
        assert await source.scopes("") == ["s"]
        assert await source.scopes("s") == []
        assert await source.offers("s", [Position(gone[0], 0, {0: 0})], 1) == [None]

    run(main())


def test_an_offer_leads_through_scales_to_the_end() -> None:
    async def main() -> None:
        world, c, source = await started()
        world.segments.append(segment(0), "aa", 10)
        first = await offer(source, beginning())
        assert (first.lengths, first.epochs, first.sealed, first.more) == ({0: 10}, (), frozenset(), False)
        assert first.behind == 10
        assert first.oldest_ms <= world.env.clock.wall_ms()
        await c.streams.scale(STREAM, [0], halves(0.0, 1.0))
        world.segments.append(segment(1, 1), "bb", 20)
        await c.streams.scale(STREAM, [sid(1, 1), sid(2, 1)], [KeyRange(0.0, 1.0)])
        world.segments.append(segment(3, 2), "cc", 5)
        found = await offer(source, beginning())
        assert found.lengths == {0: 10, sid(1, 1): 20, sid(2, 1): 0, sid(3, 2): 5}
        assert found.behind == 35
        assert [epoch.number for epoch in found.epochs] == [1, 2]
        assert found.sealed == {0, sid(1, 1), sid(2, 1)}
        assert not found.more
        assert found.starts == {}
        end = reached(beginning(), found)
        assert end == Position(STREAM, 2, {sid(3, 2): 5})
        last = await offer(source, end)
        assert last.behind == 0
        assert last.oldest_ms == 0
        assert last.lengths == end.lengths
        await c.streams.seal(STREAM)
        assert (await offer(source, end)).sealed == {sid(3, 2)}

    run(main())


def test_what_is_no_position_gets_an_offer_without_lengths() -> None:
    async def main() -> None:
        world, c, source = await started()
        world.segments.append(segment(0), "aa", 10)
        for epoch, lengths in ((0, {0: 11}), (0, {5: 0}), (0, {}), (1, {0: 0}), (-1, {0: 0}), (0, {0: -1})):
            assert (await offer(source, Position(STREAM, epoch, lengths))).lengths == {}, (epoch, lengths)
        many = [beginning()] * (MAX_MIRROR_STREAMS_PER_CALL + 1)
        for scope, positions in (("s", many), ("x", [beginning()]), ("_system", [])):
            with pytest.raises(Invalid):
                await source.offers(scope, positions, 1)
        for name in ("_RGg", "a/b", "_link-x", ""):
            with pytest.raises(Invalid):
                await source.facts("s", [StreamName("s", name)], FROM_HEAD)

    run(main())


def test_a_truncated_stream_says_where_it_begins() -> None:
    async def main() -> None:
        world, c, source = await started(2)
        for number in range(2):
            world.segments.append(segment(number), "aa", 100)
        await c.streams.scale(STREAM, [sid(0)], halves(0.0, 0.5))
        world.segments.append(segment(2, 1), "bb", 50)
        await c.streams.truncate(STREAM, {sid(2, 1): 30, sid(3, 1): 0, sid(1): 40})
        found = await offer(source, beginning(2))
        # Segment 0 is gone, so the mirror at its beginning cannot go on: it is missing.
        assert sid(0) not in found.lengths
        assert found.starts == {sid(2, 1): 30, sid(1): 40}
        assert found.lengths == {sid(1): 100, sid(2, 1): 50, sid(3, 1): 0}
        (facts,) = await source.facts("s", [STREAM], FROM_HEAD)
        assert facts is not None
        assert facts.first.number == 0
        # A mirror that began at this head has no segment 0 at all.
        begun = Position(STREAM, 0, {sid(1): 40})
        assert (await offer(source, begun)).lengths == found.lengths
        assert (await offer(source, begun)).behind == 80

    run(main())


def test_a_stream_of_one_segment_is_offered_in_pieces() -> None:
    async def main() -> None:
        world, c, source = await started()
        world.segments.append(segment(0), "aa", 100)
        await c.streams.update(STREAM, config(1))
        await c.streams.scale(STREAM, [0], [KeyRange(0.0, 1.0)])
        world.segments.append(segment(1, 1), "bb", 60)
        found = await offer(source, beginning(), 100)
        assert found.lengths == {0: 100}
        assert found.more
        assert found.epochs == ()
        assert found.behind == 160
        found = await offer(source, Position(STREAM, 0, {0: 100}), 100)
        assert found.lengths == {0: 100, sid(1, 1): 60}
        assert not found.more
        assert found.sealed == {0}
        world.segments.append(segment(1, 1), "bb", 60)
        found = await offer(source, Position(STREAM, 1, {sid(1, 1): 0}), 10)
        assert found.lengths == {sid(1, 1): 60}
        assert found.more
        # With two segments a piece could end inside of a transaction.
        await c.streams.scale(STREAM, [sid(1, 1)], halves(0.0, 1.0))
        world.segments.append(segment(2, 2), "cc", 500)
        found = await offer(source, Position(STREAM, 1, {sid(1, 1): 120}), 10)
        assert found.behind == 500
        assert not found.more

    run(main())


def test_a_stream_of_several_segments_is_offered_from_one_clean_cut_to_the_next() -> None:
    async def main() -> None:
        world, c, source = await started(2)
        low, high, wide = sid(2, 1), sid(3, 1), sid(4, 2)
        for number in range(4):
            world.segments.append(segment(0), "aa", 100)
            world.segments.append(segment(1), "bb", 50)
            world.pass_time(60)
            if number != 2:  # no cut was recorded for a while
                await c.timeline.record(STREAM)
        await c.streams.scale(STREAM, [sid(0)], halves(0.0, 0.5))
        world.segments.append(segment(2, 1), "cc", 70)
        world.pass_time(60)
        await c.timeline.record(STREAM)
        world.segments.append(segment(2, 1), "cc", 30)
        await c.streams.update(STREAM, config(1))
        await c.streams.scale(STREAM, [low, high, sid(1)], [KeyRange(0.0, 1.0)])
        world.segments.append(segment(4, 2), "dd", 10)
        position, found = beginning(2), []
        for _ in range(6):
            one = await offer(source, position, 100)
            position = reached(position, one)
            found.append((one.lengths, len(one.epochs), one.sealed, one.more))
        assert found == [
            ({0: 100, 1: 50}, 0, frozenset(), True),
            ({0: 200, 1: 100}, 0, frozenset(), True),
            ({0: 400, 1: 200}, 0, frozenset(), True),  # longer than asked for: no cut is in between
            ({0: 400, low: 70, high: 0, 1: 200}, 1, frozenset({0}), True),
            ({low: 100, high: 0, 1: 200, wide: 10}, 1, frozenset({low, high, 1}), False),
            ({wide: 10}, 0, frozenset(), False),
        ]
        # Together they are within the limit.
        assert (await offer(source, beginning(2), 300)).lengths == {0: 200, 1: 100}
        assert (await offer(source, beginning(2), 1000)).behind == 710
        assert not (await offer(source, beginning(2), 1000)).more
        # A mirror that is somewhere in between goes on to the next cut that is nowhere before it.
        between = Position(STREAM, 0, {0: 120, 1: 0})
        assert (await offer(source, between, 10)).lengths == {0: 200, 1: 100}

    run(main())


def test_a_cut_at_which_a_transaction_is_half_merged_is_not_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        world, c, source = await started(2)
        monkeypatch.setattr(c.transactions.workers, "schedule", lambda _: None)

        async def recorded() -> list[dict[int, int]]:
            world.pass_time(1)
            await c.timeline.record(STREAM)
            return await c.timeline.clean_cuts(STREAM)

        world.segments.append(segment(0), "aa", 5)
        clean = [{0: 5, 1: 0}]
        assert await recorded() == clean
        _, parts = await begun_transaction(world, c)
        assert await recorded() == clean * 2  # it has not begun to be merged
        await world.segments.merge(segment(0), parts[:1])
        assert await recorded() == clean * 2
        await world.segments.merge(segment(1), parts[1:])
        assert await recorded() == clean * 2  # another part of it could have been read before
        assert len(await c.catalog.stream_records(STREAM, keys.TIMELINE)) == 4
        position = beginning(2)
        assert (await offer(source, position, 1)).lengths == {0: 5, 1: 0}

    run(main())


def test_a_source_reads_bytes_within_a_bound() -> None:
    async def main() -> None:
        world, c, source = await started(2)
        await world.segments.write(segment(0), b"abcdefghij", 0)
        await world.segments.write(segment(1), b"0123", 0)
        wanted = [Range(STREAM, 0, 2, 5), Range(STREAM, 1, 0, 4)]
        assert await source.read("s", wanted) == [b"cdefg", b"0123"]
        assert await source.read("s", [Range(STREAM, 0, 8, 5), Range(STREAM, 1, 0, 4)]) == [b"ij"]
        await world.segments.write(segment(1), bytes(MIRROR_BATCH_BYTES), 4)
        long = [Range(STREAM, 0, 0, 10), Range(STREAM, 1, 0, A_LOT), Range(STREAM, 0, 0, 10)]
        assert [len(part) for part in await source.read("s", long)] == [10, MIRROR_BATCH_BYTES - 10]
        await c.streams.truncate(STREAM, {0: 5, 1: 0})
        with pytest.raises(Truncated):
            await source.read("s", wanted)
        for bad in (Range(STREAM, -1, 0, 1), Range(STREAM, 0, -1, 1), Range(STREAM, 0, 0, -1)):
            with pytest.raises(Invalid):
                await source.read("s", [bad])

    run(main())


def test_a_mirror_may_begin_at_the_end_or_at_a_time() -> None:
    async def main() -> None:
        world, c, source = await started(2)
        world.segments.append(segment(0), "aa", 10)
        world.pass_time(60)
        await c.timeline.run_round()
        time = world.env.clock.wall_ms() + 1
        world.pass_time(60)
        world.segments.append(segment(1), "bb", 7)
        await c.streams.scale(STREAM, [sid(0)], halves(0.0, 0.5))
        (at_time,) = await source.facts("s", [STREAM], time)
        (at_end,) = await source.facts("s", [STREAM], FROM_TAIL)
        assert at_time is not None
        assert at_time.head == {sid(0): 10, sid(1): 0}
        assert at_time.first.number == 0
        assert at_end is not None
        assert at_end.head == {sid(1): 7, sid(2, 1): 0, sid(3, 1): 0}

    run(main())


def test_how_long_a_mirror_is_behind_is_read_in_the_timeline() -> None:
    async def main() -> None:
        world, c, source = await started()
        recorded = []
        for _ in range(5):
            world.segments.append(segment(0), "aa", 10)
            world.pass_time(60)
            await c.timeline.run_round()
            recorded.append(world.env.clock.wall_ms() + 1)
        for length, expected in ((0, recorded[0]), (25, recorded[2]), (50, None)):
            position = Position(STREAM, 0, {0: length})
            assert await source._lags.recorded_behind(*await measured(source, position)) == expected

    run(main())


async def measured(source: LocalSource, position: Position):
    moment = (await source._moments.at("s", {STREAM: position.epoch}))[STREAM]
    assert moment is not None
    return position, moment


def transactions_below(world: World, lengths: dict[int, int]) -> dict[int, frozenset[str]]:
    """For each segment the transactions that have a part below its length in `lengths`."""
    out = {}
    for packed, length in lengths.items():
        found, at = set(), 0
        for what, size in world.segments.segments[STREAM.segment(SegmentId.unpack(packed))].parts:
            assert at >= length or at + size <= length, "an event is offered in part"
            if at < length:
                found |= {what} if what.startswith("t") else set()
            at += size
        out[packed] = frozenset(found)
    return out


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("late", [False, True], ids=["beside the commits", "in pieces, behind them"])
def test_no_offer_has_part_of_a_transaction(seed: int, late: bool) -> None:
    """Offers while transactions commit, the stream scales, and calls take their time: each transaction, which has a
    part in every segment of its epoch, is in an offer wholly or not at all.

    `late`: cuts are recorded meanwhile, and the offers come afterwards, in pieces."""

    async def main() -> None:
        world, c, source = await started(3)
        rng = random.Random(seed)

        async def slowly(_: int) -> None:
            for _ in range(rng.randrange(6)):
                await asyncio.sleep(0)

        world.arm(Faults(gate=slowly))
        written: dict[str, int] = {}

        async def write() -> None:
            for number in range(12):
                txn, parts = await c.transactions.create(STREAM, 10_000)
                for part in parts:
                    parent = STREAM.segment(SegmentId.unpack(part.segment))
                    world.segments.append(transaction_segment(parent, txn), f"t{number}", rng.randrange(1, 50))
                written[f"t{number}"] = len(parts)
                if rng.random() < 0.25:  # the stream scales while the transaction is open: it is rolled in
                    gone = rng.choice((await c.streams.ready(STREAM)).current.segments)
                    with suppress(Conflict):  # it was rolled meanwhile
                        await c.streams.scale(STREAM, [gone.segment], halves(gone.low, gone.high))
                await c.transactions.commit(STREAM, txn, "", 0)

        async def record() -> None:
            while True:
                world.pass_time(1)
                await c.timeline.record(STREAM)
                await asyncio.sleep(0)

        writer = asyncio.ensure_future(write())
        recorder = asyncio.ensure_future(record())
        position, seen, pieces = beginning(3), 0, 0
        if late:
            await asyncio.wait([writer])
            while c.transactions.workers._workers:
                await asyncio.sleep(0)
            assert len(await c.timeline.clean_cuts(STREAM)) > 3
        everything: dict[int, int] = dict.fromkeys(position.lengths, 0)
        while True:
            done = writer.done()
            found = await offer(source, position, 40 if late else A_LOT)
            if found.lengths and found.version:
                pieces += 1
                position, everything = reached(position, found), everything | found.lengths
                below = transactions_below(world, everything)
                count = {
                    what: sum(what in one for one in below.values()) for what in frozenset().union(*below.values())
                }
                assert all(written[what] == parts for what, parts in count.items()), count
                seen = max(seen, len(count))
            if done and not c.transactions.workers._workers:
                await writer
                if seen == 12:
                    break
            await asyncio.sleep(0)
        recorder.cancel()
        await asyncio.gather(recorder, return_exceptions=True)
        known = known_segments((await c.catalog.require(STREAM)).record.epochs)
        assert is_cut(known, position.lengths)
        assert pieces > 1 or not late

    run(main())


async def begun_transaction(world: World, c: Controller) -> tuple[int, list[str]]:
    """A transaction with bytes in each part, whose commit is decided and not carried out."""
    txn, found = await c.transactions.create(STREAM, 10_000)
    parts = [transaction_segment(STREAM.segment(SegmentId.unpack(part.segment)), txn) for part in found]
    for part in parts:
        world.segments.append(part, "t", 10)
    await c.transactions.commit(STREAM, txn, "", 0)
    return txn, parts


def test_a_commit_that_has_not_begun_or_is_merged_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        world, c, source = await started(2)
        monkeypatch.setattr(c.transactions.workers, "schedule", lambda _: None)
        _, parts = await begun_transaction(world, c)
        world.segments.append(segment(0), "aa", 5)
        position = beginning(2)
        found = await offer(source, position)
        assert found.lengths == {0: 5, 1: 0}
        assert found.version
        # Half of it is merged: there is no clean moment, and nothing is offered.
        await world.segments.merge(segment(0), parts[:1])
        found = await offer(source, position)
        assert (found.lengths, found.more, found.version) == (position.lengths, True, 0)
        await world.segments.merge(segment(1), parts[1:])
        found = await offer(source, position)
        assert found.lengths == {0: 15, 1: 10}
        # The next one has not begun, and the first one is merged and has not ended.
        await begun_transaction(world, c)
        found = await offer(source, position)
        assert (found.lengths, found.more) == ({0: 15, 1: 10}, False)

    run(main())


def test_offers_go_on_while_one_commit_follows_another() -> None:
    async def main() -> None:
        world, c, source = await started(2)
        ended = False

        async def write() -> None:
            while not ended:
                txn, _ = await begun_transaction(world, c)
                await c.transactions.outcome(STREAM, txn, 10)

        writers = [asyncio.ensure_future(write()) for _ in range(4)]
        position, offered = beginning(2), 0
        for _ in range(20):
            found = await offer(source, position)
            offered += found.version != 0
            position = reached(position, found)
            below = set(transactions_below(world, position.lengths).values())
            assert position.lengths[0] == position.lengths[1], below
        ended = True
        await asyncio.gather(*writers)
        assert offered >= 15
        assert position.lengths[0] > 0

    run(main())
