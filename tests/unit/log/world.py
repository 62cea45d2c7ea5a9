"""Shared by tests of the log: frames to write and to expect, on the simulated machine."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from simulation.crashes.machine import Machine, SimulatedClock, SimulatedRandom, simulate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.env.ports import Buffer
    from sarit.log.port import DurableLog

# A header, three groups, and the block that is for the record that says that a file follows.
FILE_BYTES = 5 * 4096


def start(log: DurableLog, number: int, *payload: Buffer) -> asyncio.Future[None]:
    """Append; the future completes as `done` is called."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(error: BaseException | None) -> None:
        assert not future.done(), f"frame {number} was reported twice"
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    log.append(number, payload, done)
    future.add_done_callback(lambda f: f.cancelled() or f.exception())
    return future


async def append(log: DurableLog, number: int, *payload: Buffer) -> None:
    await start(log, number, *payload)


async def frames(log: DurableLog, after: int = 0) -> list[tuple[int, bytes]]:
    return [(frame.number, bytes(frame.payload)) async for frame in log.replay(after)]


def payload_of(number: int, size: int = 20) -> bytes:
    """Bytes that identify their frame."""
    return random.Random(number).randbytes(size)


def expected(numbers: Sequence[int] | range, size: int = 20) -> list[tuple[int, bytes]]:
    return [(number, payload_of(number, size)) for number in numbers]


__all__ = [
    "FILE_BYTES", "Machine", "SimulatedClock", "SimulatedRandom", "append", "expected", "frames", "payload_of",
    "simulate", "start",
]  # fmt: skip
