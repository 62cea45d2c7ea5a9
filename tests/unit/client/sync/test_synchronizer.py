"""The state synchronizer: all processes have the same state, decisions use the newest state, and history is
compacted."""

import asyncio
import gc
import itertools
from types import SimpleNamespace

import pytest

from sarit.client.sync.revisioned_stream import Revision
from sarit.client.sync.synchronizer import (
    COMPACT_AFTER_UPDATES,
    StateFollower,
    StateSynchronizer,
    decode_entry,
    encode_initial,
    encode_updates,
)
from sarit.core.errors import Corrupt, Invalid, NotFound
from tests.limits import HANG_SECONDS
from tests.unit.client.nodes import on_node


def apply(state: tuple[str, ...], update: bytes, revision: Revision) -> tuple[str, ...]:
    if update == b"poison":
        raise ValueError("poison")
    return (*state, f"{update.decode()}@{revision.offset}.{revision.index}")


def initial(data: bytes) -> tuple[str, ...]:
    return tuple(data.decode().split(",")) if data else ()


def snapshot(state: tuple[str, ...]) -> bytes:
    return ",".join(state).encode()


async def opened(made, **options) -> StateSynchronizer[tuple[str, ...]]:
    return await made.client.coordination.synchronizer("s/state", initial, apply, **options)


async def counter(made, **options) -> StateSynchronizer[int]:
    return await made.client.coordination.synchronizer(
        "s/counter",
        lambda data: int(data),
        lambda state, update, _: state + int(update),
        snapshot=lambda state: b"%d" % state,
        **options,
    )


def test_entries_have_the_bytes_of_java() -> None:
    assert encode_initial(b"ab") == bytes.fromhex("00000001 6162")
    assert encode_updates([b"a", b"", b"bcd"]) == bytes.fromhex("00000002 00000001 61 00000000 00000003 626364")
    assert decode_entry(bytes.fromhex("00000001 6162")) == b"ab"
    assert decode_entry(bytes.fromhex("00000002 00000001 61 00000000")) == [b"a", b""]
    for broken in ("", "000001", "00000003 61", "00000002 00000002 61", "00000002 000000", "00000002 ffffffff"):
        with pytest.raises(Corrupt):
            decode_entry(bytes.fromhex(broken))


@on_node
async def test_all_copies_converge(made) -> None:
    one, two = await opened(made), await opened(made)
    assert not one.known
    with pytest.raises(NotFound):
        _ = one.state
    with pytest.raises(NotFound):
        await one.update(lambda _: [b"x"])
    assert await one.initialize(b"begin")
    assert not await two.initialize(b"other")
    assert two.state == ("begin",)
    assert await one.update(lambda _: [b"a", b"b"])
    await two.update_unconditionally([b"c"])
    assert not await two.update(lambda state: [] if len(state) == 4 else [b"wrong"])
    await one.fetch()
    assert one.state == two.state == ("begin", "a@39.0", "b@39.1", "c@56.0")
    assert one.revision == two.revision == Revision(56)


@on_node
async def test_one_of_many_initializers_succeeds(made) -> None:
    copies = [await opened(made) for _ in range(6)]
    done = await asyncio.gather(*(copy.initialize(b"%d" % n) for n, copy in enumerate(copies)))
    assert done.count(True) == 1
    assert {copy.state for copy in copies} == {(str(done.index(True)),)}


@on_node
async def test_update_is_decided_from_the_newest_state(made) -> None:
    """Counters that read, add one and write: none is lost, though all conflict and connections break."""
    copies = [await counter(made, compact_after_bytes=500) for _ in range(6)]
    await copies[0].initialize(b"0")
    seen: list[int] = []

    async def count(copy: StateSynchronizer[int]) -> None:
        for _ in range(40):
            decided = []
            await copy.update(lambda state, decided=decided: [decided.append(state) or b"1"])
            seen.append(decided[-1])

    async def cut() -> None:
        while True:
            await asyncio.sleep(0.02)
            made.cut_connections()

    cutting = asyncio.ensure_future(cut())
    await asyncio.gather(*map(count, copies))
    cutting.cancel()
    await copies[0].fetch()
    assert copies[0].state == 240
    assert sorted(seen) == list(range(240))
    assert (await copies[0].stream.oldest()).offset > 0, "it was never compacted"
    assert (await counter(made)).state == 240


@on_node
async def test_continuous_writer_does_not_starve_others(made) -> None:
    busy, other = await counter(made), await counter(made)
    await busy.initialize(b"0")
    ended = False

    async def hammer() -> int:
        count = 0
        while not ended:
            await busy.update(lambda _: [b"1"])
            count += 1
        return count

    hammering = asyncio.ensure_future(hammer())
    async with asyncio.timeout(HANG_SECONDS):
        for _ in range(5):
            before = busy.state
            await other.update(lambda _: [b"1000000"])
            while busy.state == before:
                await asyncio.sleep(0)
    ended = True
    count = await hammering
    await other.fetch()
    assert other.state == 5_000_000 + count


@on_node
async def test_decision_to_write_nothing_uses_the_newest_state(made) -> None:
    one, two = await opened(made), await opened(made)
    await one.initialize(b"")
    await two.fetch()
    await one.update(lambda _: [b"a"])
    assert await two.update(lambda state: [b"b"] if state else [])
    assert [value.partition("@")[0] for value in two.state] == ["a", "b"]


@on_node
async def test_update_that_cannot_be_applied_is_never_written(made) -> None:
    one = await opened(made)
    await one.initialize(b"")
    before = one.revision
    with pytest.raises(ValueError, match="poison"):
        await one.update(lambda _: [b"good", b"poison"])
    with pytest.raises(ZeroDivisionError):
        await one.update(lambda _: [b"%d" % (1 // 0)])
    with pytest.raises(Invalid):
        await one.update(lambda _: [bytes(8_400_000).replace(b"\0", b"x")])
    assert await one.stream.fetch_latest() == before == one.revision
    assert one.state == ()
    await one.update(lambda _: [b"good"])


@on_node
async def test_compaction_truncates_and_slow_readers_recover(made) -> None:
    stays, slow = await opened(made), await opened(made)
    await stays.initialize(b"begin")
    await slow.fetch()
    states = []
    for turn in range(4):
        for n in range(3):
            await stays.update(lambda _, n=n, turn=turn: [b"%d-%d" % (turn, n)])
        await stays.compact(snapshot)
        states.append(stays.state)
        fresh = await opened(made)
        assert fresh.state == stays.state
        assert fresh.revision == stays.revision
    mark, oldest = await stays.stream.get_mark(), await stays.stream.oldest()
    assert Revision(0) < oldest < mark < stays.revision
    kinds = [type(decode_entry(value)) async for _, value in stays.stream.read_from(oldest)]
    assert kinds == [bytes, list, list, list, bytes], "truncated at the mark before"
    await slow.update(lambda state: [] if state == states[-1] else [b"an old state"])
    assert slow.state == stays.state


@on_node
async def test_truncation_without_initial_state_raises_corrupt(made) -> None:
    one, two = await opened(made), await opened(made)
    await one.initialize(b"begin")
    await two.fetch()
    await one.update(lambda _: [b"a"])
    await one.update(lambda _: [b"b"])
    await one.stream.truncate(one.revision)
    with pytest.raises(Corrupt):
        await two.fetch()
    assert two.state == ("begin",)
    assert not (await opened(made)).known
    await one.compact(snapshot)
    await two.fetch()
    assert two.state == one.state


@on_node
async def test_updates_before_the_first_initial_state_are_skipped(made) -> None:
    entries = await made.client.coordination.revisioned("s/state")
    await entries.write_unconditionally(encode_updates([b"early"]))
    one = await opened(made)
    assert not one.known
    await entries.write_unconditionally(encode_initial(b"begin"))
    await one.fetch()
    assert one.state == ("begin",)


@on_node
async def test_foreign_stream_raises_corrupt(made) -> None:
    await made.client.create_stream("s/state")
    async with made.client.writer("s/state") as writer:
        writer.write(b"an event")
    with pytest.raises(Corrupt, match="synchronizer"):
        await opened(made)


@on_node
async def test_compaction_is_random_and_only_when_due(made) -> None:
    draws = itertools.cycle([0.5, 0.01])
    one = await counter(made, compact_after_bytes=100)
    await one.initialize(b"0")
    chance = type("Chance", (), {"random": staticmethod(lambda: next(draws))})
    one.stream.session.env = type("World", (), {"clock": one._clock, "random": chance})
    marks = []
    for _ in range(40):
        await one.update(lambda _: [b"1"])
        marks.append(await one.stream.get_mark())
    changes = sum(a != b for a, b in itertools.pairwise(marks))
    assert 3 <= changes <= 6, "after about every 100 bytes: six updates of 17, then a draw"


@pytest.mark.parametrize(("state", "compacted"), [("1", True), ("1" * 4000, False)])
def test_many_updates_are_compacted_unless_the_state_is_longer(state, compacted, tmp_path) -> None:
    """Who joined a group after 600 short-lived readers replayed 190 kB of updates, for a state of a few hundred."""

    @on_node
    async def check(made) -> None:
        one, two = await counter(made), await counter(made)
        await one.initialize(state.encode())
        chance = type("Chance", (), {"random": staticmethod(lambda: 0.01)})
        one.stream.session.env = type("World", (), {"clock": one._clock, "random": chance})
        begins = []
        for _ in range(3 * COMPACT_AFTER_UPDATES):
            await one.update(lambda _: [b"1"])
            begins.append(await one.stream.get_mark())
        assert len(set(begins)) == (4 if compacted else 1)
        await two.fetch()
        assert two.state == one.state == int(state) + len(begins)
        assert two._history == one._history

    check(tmp_path)


@on_node
async def test_state_is_the_one_before_a_fetch_that_cannot_be_applied(made) -> None:
    """The entries before the one that failed stayed applied."""
    one = await opened(made)
    await one.initialize(b"first")
    two = await opened(made)
    for update in (b"good", b"poison", b"later"):
        await one.update_unconditionally([update])
    before = two.state, two.revision
    for _ in range(2):
        with pytest.raises(ValueError, match="poison"):
            await two.fetch()
        assert (two.state, two.revision) == before


def test_following_that_fails_when_nobody_waits_reports_no_lost_exception() -> None:
    """A reader waits for news for a while only, and may be gone when the store answers that the stream is damaged."""
    reported: list[dict[str, object]] = []

    class Damaged:
        stream = "s/state"

        def __init__(self) -> None:
            self.answer = asyncio.Event()

        async def wait_beyond(self, revision: Revision) -> None:
            await self.answer.wait()
            raise Corrupt("damaged")

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        stream = Damaged()
        follower = StateFollower(SimpleNamespace(stream=stream, revision=Revision(0)))  # type: ignore[arg-type]
        await follower.wait(0.0)
        stream.answer.set()
        for _ in range(3):
            await asyncio.sleep(0)
        assert follower._more is not None
        assert follower._more.done()
        del follower
        gc.collect()

    asyncio.run(main())
    assert reported == []
