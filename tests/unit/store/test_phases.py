"""The seconds of phases, and the lines that operators read about a container that opens and closes."""

import asyncio
import re

import pytest

from sarit.store.hosting.phases import Phases
from tests.limits import HANG_SECONDS
from tests.unit.store.harness import World
from tests.unit.store.placements import RecordedPlacement
from tests.unit.store.test_ownership import store_of


class Ticks:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


def test_phases_are_added_up_by_name_also_when_one_raises():
    clock = Ticks()
    phases = Phases(clock)
    with phases.phase("read"):
        clock.now += 1.5
    clock.now += 0.25
    with pytest.raises(ZeroDivisionError), phases.phase("read"):
        clock.now += 0.5
        raise ZeroDivisionError
    with phases.phase("write"):
        clock.now += 0.125
    assert str(phases) == "2.375 s (read 2.000, write 0.125)"


def test_a_line_in_the_log_says_how_long_each_phase_of_an_opening_and_of_a_closing_took(caplog):
    caplog.set_level("INFO", logger="sarit.store")

    async def main():
        store = store_of(World())
        await store.start()
        released = asyncio.Event()
        store.placement = RecordedPlacement(released=lambda number: released.set())
        store.own(0, 1)
        async with asyncio.timeout(HANG_SECONDS):
            while not store.serving():
                await asyncio.sleep(0)
            store.release(0, graceful=True)
            await released.wait()
        await store.stop()

    asyncio.run(main())
    text = caplog.text
    number = r"\d+\.\d{3}"
    phases = (
        "wait for others, fence the log, open the index, read the checkpoint, begin the epoch, replay, record the epoch"
    )
    opened = ", ".join(f"{name} {number}" for name in phases.split(", "))
    assert re.search(rf"container 0: opened in {number} s \({opened}, .*\); epoch 1, 0 frames replayed, 0 bytes", text)
    assert re.search(rf"container 0: leaves after {number} s \(flush {number}\): 0 bytes to replay, 0 before", text)
    assert re.search(rf"container 0: closed in {number} s \(.*close the log {number}, close the index {number}\)", text)
