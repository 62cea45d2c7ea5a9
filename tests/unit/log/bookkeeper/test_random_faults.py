"""Owners that follow and fence each other while bookies and coordination fail, from a seed.

What was acknowledged is found by every later owner, under its number and with its bytes; nothing is found that nobody
wrote; numbers have no gap.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest

from sarit.core.errors import SaritError, Unavailable
from sarit.log.bookkeeper.log import register_of
from sarit.log.bookkeeper.port import LedgerSettings
from tests.limits import examples
from tests.unit.log.bookkeeper.world import BookKeeperWorld
from tests.unit.log.world import simulate, start

SEEDS = 20
OWNERS = 6
TINY = LedgerSettings(entry_bytes=512, ledger_bytes=4000)


class Run:
    """One history.  `acked`: the bytes of each frame that was acknowledged."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = BookKeeperWorld(self.rng.choice([3, 4, 5]), seed)
        self.acked: dict[int, bytes] = {}
        self.sent: dict[int, set[bytes]] = {}
        self.below = 0
        self.ended = False
        self.opened = 0

    def coordination_fault(self) -> str:
        return self.rng.choice(["refused", "applied"]) if self.rng.random() < 0.05 else ""

    async def run(self) -> None:
        self.world.faults.fault = self.coordination_fault
        self.world.faults.delay = lambda: self.rng.random() * 0.003
        nemesis = asyncio.ensure_future(self.fail_bookies())
        owners = []
        for _ in range(OWNERS):
            owners.append(asyncio.ensure_future(self.own()))
            # The next one may begin while this one still writes, and believes to be the owner.
            await asyncio.sleep(self.rng.choice([0.01, 0.3, 2.0, 15.0]))
        await asyncio.gather(*owners)
        self.ended = True
        await nemesis
        self.world.faults.fault = lambda: ""
        await self.check_last()

    async def fail_bookies(self) -> None:
        rng = self.rng
        while not self.ended:
            await asyncio.sleep(rng.choice([0.01, 0.2, 1.0, 5.0]))
            self.check_leaks()
            bookie = rng.choice(list(self.world.bookies.bookies.values()))
            match rng.choice(["crash", "crash", "stop", "read-only", "busy", "slow", "recover"]):
                case "recover":
                    await self.recover()
                case "crash":
                    bookie.crash()
                    await asyncio.sleep(rng.choice([0.0, 0.1, 3.0, 14.0]))
                    bookie.start()
                case "stop":
                    bookie.stopped = True
                    await asyncio.sleep(rng.choice([0.1, 3.0]))
                    bookie.resume()
                case "read-only":
                    bookie.read_only = True
                    await asyncio.sleep(rng.choice([0.1, 3.0]))
                    bookie.read_only = False
                case "busy":
                    bookie.busy = rng.randint(1, 5)
                case "slow":
                    seconds = rng.choice([0.0005, 0.02, 0.4])
                    bookie.sync = lambda seconds=seconds: rng.random() * seconds

    async def recover(self) -> None:
        """BookKeeper's own recovery closes a ledger in use."""
        if self.world.coordination.get(register_of(1)) is None:
            return
        ledgers = self.world.chain().open_ledgers
        with suppress(SaritError):  # too few bookies; its owner closes it, and deletes it
            for ledger in self.rng.sample(ledgers, min(1, len(ledgers))):
                await self.world.close_by_own_recovery(ledger)

    async def own(self) -> None:
        rng, provider = self.rng, self.world.provider(TINY)
        process = len(self.world.processes) - 1
        for _ in range(10):
            try:
                log = await provider.open(1)
                break
            except SaritError:
                await asyncio.sleep(1.0)
        else:
            return
        self.opened += 1
        try:
            last = await self.check(log)
        except Unavailable:
            await log.close()
            return
        flying = []
        for number in range(last + 1, last + 1 + rng.choice([0, 1, 5, 40])):
            payload = b"%d of %d " % (number, log.epoch) + rng.randbytes(rng.choice([0, 10, 300, 1500, 5000]))
            self.sent.setdefault(number, set()).add(payload)
            flying.append(self.append(log, number, payload))
            if rng.random() < 0.5:
                await asyncio.sleep(rng.choice([0.0, 0.002, 0.3]))
            if rng.random() < 0.05 and self.acked:
                # As a checkpoint does: it covers what was acknowledged.
                done = max(self.acked)
                if number > done >= last and not flying[0].cancelled() and flying[0].done():
                    self.below = max(self.below, min(done, number - 1))
                    log.truncate(self.below)
        if rng.random() < 0.4:
            self.world.kill(process)
        else:
            await asyncio.gather(*flying, return_exceptions=True)
            if rng.random() < 0.5:
                await log.close()

    def append(self, log, number: int, payload: bytes) -> asyncio.Future[None]:
        future = start(log, number, payload)

        def done(future: asyncio.Future[None]) -> None:
            if not future.cancelled() and future.exception() is None:
                assert self.acked.get(number, payload) == payload, f"two owners acknowledged frame {number}"
                self.acked[number] = payload

        future.add_done_callback(done)
        return future

    async def check(self, log) -> int:
        """Replay; the last frame."""
        acked = dict(self.acked)
        below = self.below
        found = {frame.number: bytes(frame.payload) async for frame in log.replay(max(0, below - 1))}
        numbers = sorted(found)
        assert numbers == list(range(numbers[0], numbers[-1] + 1)) if numbers else True, numbers
        for number, payload in acked.items():
            if number >= below:
                assert found.get(number) == payload, f"frame {number} was acknowledged and is lost"
        for number, payload in found.items():
            assert payload in self.sent[number], f"nobody wrote frame {number} so"
        return max([*numbers, below - 1, 0])

    def check_leaks(self) -> None:
        """Every ledger that exists is one of the chain, or one that it says is to be deleted."""
        world = self.world
        existing = {
            ledger for ledger in range(1, world.bookies.next_ledger) if world.coordination.get(f"ledgers/{ledger}")
        }  # fmt: skip
        if existing:
            chain = world.chain()
            named = {each.ledger for each in chain.ledgers} | {ledger for ledger, _ in chain.retired}
            assert existing <= named, f"no chain names {existing - named}"

    async def check_last(self) -> None:
        for bookie in self.world.bookies.bookies.values():
            bookie.start()
            bookie.resume()
            bookie.read_only, bookie.busy = False, 0
            bookie.sync = lambda: 0.0005
        provider = self.world.provider(TINY)
        log = await provider.open(1)
        last = await self.check(log)
        # It takes frames again.
        await start(log, last + 1, b"end")
        await log.close()
        self.check_leaks()


@pytest.mark.parametrize("seed", range(examples(SEEDS)))
def test_acknowledged_frames_survive_random_faults(seed):
    runs = []

    async def main():
        runs.append(Run(seed))
        await runs[0].run()

    simulate(main, seed)
    assert runs[0].opened > 0
