"""What a log on BookKeeper does when something of it fails: the table of docs/operations.md."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from sarit.core.errors import Corrupt, Fenced, Unavailable
from sarit.log.bookkeeper.limits import (
    LEDGER_DELETION_SECONDS,
    LEDGER_LONG_RETIRED_SECONDS,
)
from sarit.log.bookkeeper.metadata import LedgerState
from sarit.log.bookkeeper.open_log import BookKeeperLog
from sarit.log.bookkeeper.port import Code, EntryReply, LedgerSettings
from sarit.log.port import LogHistory
from tests.unit.log.bookkeeper.world import BookKeeperWorld
from tests.unit.log.world import SimulatedClock, append, expected, frames, payload_of, simulate, start


def run(main, bookies: int = 3):
    """Run `main(world)` in virtual time."""

    async def around():
        async with asyncio.timeout(3600):
            await main(BookKeeperWorld(bookies))

    simulate(around)


async def written(world, first: int, last: int, log=None):
    """A log with these frames, each acknowledged."""
    log = log or await world.provider().open(1)
    for number in range(first, last + 1):
        await append(log, number, payload_of(number))
    return log


async def reopened(world, numbers):
    """The next owner finds these frames."""
    log = await world.provider().open(1)
    assert await frames(log) == expected(numbers)
    return log


def seconds():
    return asyncio.get_running_loop().time()


def test_killed_bookie_is_replaced_by_a_spare_one():
    async def main(world):
        log = await written(world, 1, 5)
        gone = log._writer.metadata.ensembles[-1][1][0]
        world.bookies.bookies[gone].crash()
        began = seconds()
        await written(world, 6, 10, log)
        assert seconds() < began + 0.1
        await asyncio.sleep(1)
        ensembles = world.metadata(log._writer.ledger).ensembles
        assert len(ensembles) == 2
        assert gone not in ensembles[1][1]
        await written(world, 11, 12, log)
        world.kill()
        await reopened(world, range(1, 13))

    run(main, bookies=4)


def test_two_of_three_bookies_are_enough_to_open_and_to_append():
    async def main(world):
        await written(world, 1, 5)
        world.kill()
        world.bookies[0].crash()
        log = await reopened(world, range(1, 6))
        await written(world, 6, 9, log)
        world.kill()
        await reopened(world, range(1, 10))

    run(main)


def test_bookie_that_is_back_gets_entries_again():
    async def main(world):
        log = await written(world, 1, 2)
        world.bookies[0].crash()
        await written(world, 3, 4, log)
        world.bookies[0].start()
        await asyncio.sleep(10)
        world.bookies[1].crash()
        await written(world, 5, 6, log)  # needs the first one
        world.kill()
        world.bookies[1].start()
        await reopened(world, range(1, 7))

    run(main)


def test_bookie_that_is_back_is_used_at_once_when_it_is_needed():
    async def main(world):
        log = await written(world, 1, 2)
        for number, (dead, back) in enumerate([(0, None), (1, 0), (2, 1), (0, 2)], 3):
            if back is not None:
                world.bookies[back].start()
                await asyncio.sleep(1)  # nobody has needed it yet
            world.bookies[dead].crash()
            began = seconds()
            await written(world, number, number, log)
            assert seconds() < began + 1.5, number
        world.kill()
        world.bookies[0].start()
        await reopened(world, range(1, 7))

    run(main)


def test_stopped_bookie_is_replaced_after_two_seconds():
    async def main(world):
        log = await written(world, 1, 2)
        slow = log._writer.metadata.ensembles[-1][1][1]
        world.bookies.bookies[slow].stopped = True
        await written(world, 3, 4, log)
        assert slow in log._writer.metadata.ensembles[-1][1]
        await asyncio.sleep(4)
        assert slow not in log._writer.metadata.ensembles[-1][1]

    run(main, bookies=4)


def test_read_only_bookie_is_replaced_and_read():
    async def main(world):
        log = await written(world, 1, 2)
        full = log._writer.metadata.ensembles[-1][1][2]
        world.bookies.bookies[full].read_only = True
        await written(world, 3, 4, log)
        await asyncio.sleep(1)
        assert full not in log._writer.metadata.ensembles[-1][1]
        world.kill()
        others = [bookie for name, bookie in world.bookies.bookies.items() if name != full]
        others[0].crash()
        await reopened(world, range(1, 5))

    run(main, bookies=4)


def test_busy_bookies_are_asked_again():
    async def main(world):
        for bookie in world.bookies.bookies.values():
            bookie.busy = 4
        began = seconds()
        log = await written(world, 1, 3)
        assert log._writer.changes == 0
        assert {bookie.busy for bookie in world.bookies.bookies.values()} == {0}, "they were asked again"
        assert seconds() < began + 1, "the ledger was not left"

    run(main)


def test_without_a_quorum_nothing_is_acknowledged_until_two_bookies_are_back():
    async def main(world):
        log = await written(world, 1, 2)
        for at in (0, 1):
            world.bookies[at].crash()
        flying = [start(log, number, payload_of(number)) for number in range(3, 7)]
        await asyncio.sleep(8)
        assert not any(future.done() for future in flying)
        world.bookies[0].start()
        await asyncio.gather(*flying)
        first = world.chain().ledgers[0].ledger
        assert log._writer.ledger != first or log._writer.changes == 0
        world.kill()
        await reopened(world, range(1, 7))

    run(main)


def test_frames_of_a_ledger_without_quorum_go_to_the_next_one():
    async def main(world):
        log = await written(world, 1, 2)
        first = log._writer.ledger
        for at in (0, 1):
            world.bookies[at].crash()
        flying = [start(log, number, payload_of(number)) for number in range(3, 7)]
        await asyncio.sleep(11)  # the ledger is given up
        for at in (0, 1):
            world.bookies[at].start()
        await asyncio.gather(*flying)
        assert log._writer.ledger != first
        assert world.metadata(first).state is LedgerState.CLOSED
        world.kill()
        await reopened(world, range(1, 7))

    run(main)


def test_log_ends_when_no_quorum_comes_back():
    async def main(world):
        log = await written(world, 1, 2)
        for at in (0, 1):
            world.bookies[at].crash()
        with pytest.raises(Unavailable):
            await append(log, 3, b"x")
        with pytest.raises(Unavailable):
            await append(log, 4, b"x")
        await log.close()
        for at in (0, 1):
            world.bookies[at].start()
        found = await frames(await world.provider().open(1))
        assert found[:2] == expected([1, 2])

    run(main)


def test_ledger_is_not_closed_while_its_end_is_not_known():
    async def main(world):
        log = await written(world, 1, 3)
        ledger = log._writer.ledger
        world.kill()
        for at in (0, 1):
            world.bookies[at].crash()
        with pytest.raises(Unavailable, match="too few bookies can be fenced"):
            await world.provider().open(1)
        assert world.metadata(ledger).state is not LedgerState.CLOSED
        world.bookies[1].start()
        await reopened(world, range(1, 4))

    run(main)


def test_coordination_away_stops_no_append():
    async def main(world):
        log = await written(world, 1, 2)
        world.faults.unavailable = True
        await written(world, 3, 20, log)
        world.bookies[2].crash()
        await written(world, 21, 30, log)
        world.faults.unavailable = False
        world.bookies[2].start()
        await log.close()
        await reopened(world, range(1, 31))

    run(main)


def test_lost_replies_of_coordination_change_nothing():
    async def main(world):
        log = await world.provider().open(1)
        calls = iter(range(10**9))
        world.faults.fault = lambda: "applied" if next(calls) % 3 == 0 else ""
        for number in range(1, 101):
            await append(log, number, payload_of(number, 1000))
        await log.close()
        world.faults.fault = lambda: ""
        log = await world.provider().open(1)
        assert await frames(log) == expected(range(1, 101), 1000)
        assert len(world.chain().ledgers) > 3

    run(main)


@pytest.mark.parametrize("call", range(12))
def test_opening_of_which_a_change_was_not_stored_is_not_called_done(call):
    async def main(world):
        await (await written(world, 1, 5)).close()
        claim = await world.provider().claim(1)
        calls = itertools.count()
        world.faults.fault = lambda: "refused" if next(calls) == call else ""
        try:
            log = await claim.open(None)
        except Unavailable:
            return
        finally:
            world.faults.fault = lambda: ""
        assert world.chain().epoch == log.epoch
        assert world.chain().open_ledgers, "the ledger that it writes to"
        await append(log, 6, payload_of(6))
        await reopened(world, range(1, 7))

    run(main)


def test_damaged_entries_are_read_from_another_bookie():
    async def main(world):
        log = await written(world, 1, 5)
        await log.close()
        world.bookies[0].damaged = True
        await reopened(world, range(1, 6))
        for bookie in world.bookies.bookies.values():
            bookie.damaged = True
        with pytest.raises((Corrupt, Unavailable)):
            await frames(await world.provider().open(1))

    run(main)


def test_retired_ledgers_are_deleted_after_the_pause_and_not_before():
    async def main(world):
        log = await world.provider().open(1)
        for number in range(1, 101):
            await append(log, number, payload_of(number, 1000))
        await asyncio.sleep(1)
        closed = [each.ledger for each in world.chain().ledgers if each.closed]
        assert len(closed) > 3
        log.truncate(101)
        await asyncio.sleep(LEDGER_DELETION_SECONDS - 60)
        chain = world.chain()
        assert not set(closed) & {each.ledger for each in chain.ledgers}
        for ledger in closed:
            assert world.metadata(ledger)
        await asyncio.sleep(120)
        for ledger in closed:
            assert world.coordination.get(f"ledgers/{ledger}") is None
        assert world.chain().retired == ()
        await written(world, 101, 102, log)

    run(main)


def test_owners_that_die_soon_leave_ledgers_that_are_deleted_after_a_day(monkeypatch):
    """None of them lives as long as the pause.  One dies between two steps of its opening, each time another one."""

    async def main(world):
        await written(world, 1, 3)
        for steps in range(40):
            world.kill()
            opening = asyncio.ensure_future(world.provider().open(1))
            await asyncio.sleep(0.0005 * steps)
            opening.cancel()
            for log in await asyncio.gather(opening, return_exceptions=True):
                if isinstance(log, BookKeeperLog):
                    log._ticking.cancel()
        world.kill()
        log = await reopened(world, range(1, 4))
        made = range(1, world.bookies.next_ledger)
        existing = {ledger for ledger in made if world.coordination.get(f"ledgers/{ledger}")}
        chain = world.chain()
        assert existing <= {each.ledger for each in chain.ledgers} | {ledger for ledger, _ in chain.retired}
        assert len(existing) > 10
        await log.close()
        plain = SimulatedClock.wall_ms
        day = int(LEDGER_LONG_RETIRED_SECONDS * 1000) + 60_000
        monkeypatch.setattr(SimulatedClock, "wall_ms", lambda clock: plain(clock) + day)
        log = await reopened(world, range(1, 4))
        await asyncio.sleep(5)
        existing = {ledger for ledger in made if world.coordination.get(f"ledgers/{ledger}")}
        assert existing <= {each.ledger for each in world.chain().ledgers}
        await written(world, 4, 5, log)

    run(main)


def test_next_ledger_gets_nothing_while_frames_of_the_one_before_are_under_way():
    async def main(world):
        log = await world.provider().open(1)
        first = log._writer.ledger
        for bookie in world.bookies.bookies.values():
            bookie.sync = lambda: 0.5
        flying = [start(log, number, payload_of(number, 3000)) for number in range(1, 9)]
        await asyncio.sleep(0.3)
        written_to = {ledger for bookie in world.bookies.bookies.values() for ledger in bookie.ledgers}
        assert written_to == {first}
        await asyncio.gather(*flying)
        assert log._writer.ledger != first

    run(main)


def test_of_two_openers_one_is_fenced():
    async def main(world):
        await written(world, 1, 3)
        claims = [await world.provider().claim(1) for _ in range(2)]
        results = await asyncio.gather(*(claim.open(None) for claim in claims), return_exceptions=True)
        assert sum(isinstance(result, Fenced) for result in results) == 1
        (log,) = [result for result in results if not isinstance(result, BaseException)]
        assert await frames(log) == expected(range(1, 4))
        await written(world, 4, 5, log)

    run(main)


def test_opening_outlasts_an_owner_that_rolls_over_meanwhile():
    async def main(world):
        old = await written(world, 1, 3)
        claim = await world.provider().claim(1)
        await old._chain.change(
            lambda chain: chain.__class__(chain.identity, chain.epoch, chain.reached + 1, chain.ledgers, chain.retired)
        )
        log = await claim.open(None)
        assert await frames(log) == expected(range(1, 4))

    run(main)


@pytest.mark.parametrize(
    ("history", "reason"),
    [
        (LogHistory(None, 0, 0), "the index has never seen one"),
        (LogHistory(b"x" * 16, 1, 1), "of another history"),
        (LogHistory(b"", 9, 1), "an older copy"),
        (LogHistory(b"", 1, 9), "an older copy"),
    ],
)
def test_log_that_the_index_does_not_know_is_refused(history, reason):
    async def main(world):
        log = await written(world, 1, 3)
        await log.close()
        known = LogHistory(log.identity if history.identity == b"" else history.identity, history.epoch, history.frame)
        claim = await world.provider().claim(1)
        with pytest.raises(Corrupt, match=reason):
            await claim.open(known)
        await claim.open(LogHistory(log.identity, log.epoch, 3))

    run(main)


def test_missing_log_is_refused():
    async def main(world):
        claim = await world.provider().claim(1)
        with pytest.raises(Corrupt, match="is missing in BookKeeper"):
            await claim.open(LogHistory(b"x" * 16, 3, 10))
        await claim.open(LogHistory(None, 0, 0))

    run(main)


def test_too_few_bookies_say_how_many_are_needed():
    async def main(world):
        with pytest.raises(Unavailable, match="2 bookies are registered as writable, and a ledger needs 3"):
            await world.provider().open(1)

    run(main, bookies=2)


def test_late_bookie_is_fenced_by_the_reads_of_a_recovery():
    """The writer has one copy of an entry, and another is on its way to a bookie that the first fence did not reach."""

    async def main(world):
        log = await written(world, 1, 2)
        first, second, third = (world.bookies.bookies[name] for name in log._writer.metadata.ensembles[-1][1])
        client = world.clients[-1]
        plain = client.add
        # The writer does not reach the second one, which is fenced and would say so.
        client.add = lambda bookie, *rest: None if bookie == second.name else plain(bookie, *rest)
        third.delay = lambda: 3.0
        late = start(log, 3, payload_of(3))
        await asyncio.sleep(0.1)
        third.delay = lambda: 0.0002
        provider = world.provider()
        right = provider.bookies.read

        def read(bookie, ledger, entry, *, fence, done):
            if (bookie, entry == -1) in ((third.name, True), (first.name, False)):
                asyncio.get_running_loop().call_soon(done, EntryReply(Code.LOST))
            else:
                right(bookie, ledger, entry, fence=fence, done=done)

        provider.bookies.read = read
        await provider.claim(1)
        with pytest.raises(Unavailable, match="a store that is about to open it"):
            await late

    run(main)


def test_replay_reads_little_of_what_lies_below_the_checkpoint():
    """Frames of one part and of several, and entries without a frame between them."""

    async def main(world):
        provider = world.provider(LedgerSettings(entry_bytes=64))
        log = await provider.open(1)
        last = 60
        for number in range(1, last + 1):
            await append(log, number, payload_of(number, 1 + number * 37 % 200))
            if number % 20 == 0:
                await asyncio.sleep(1)  # an entry without a frame
        world.kill()
        for after in range(last + 1):
            log = await world.provider().open(1)
            reads, client = [], world.clients[-1]
            plain = client.read

            def counted(bookie, ledger, entry, *, fence, done, plain=plain, reads=reads):
                reads.append(entry)
                plain(bookie, ledger, entry, fence=fence, done=done)

            client.read = counted
            found = await frames(log, after)
            assert found == [
                (number, payload_of(number, 1 + number * 37 % 200)) for number in range(after + 1, last + 1)
            ]
            if after == last - 1:
                assert len(reads) < 20, reads
            world.kill()

    run(main)
