"""A process that owns a log: `python log_child.py DIRECTORY`; killed, or given failing syncs, from outside.

Prints `open END` when it has replayed and checked the log, `acked NUMBER` for each durable frame, and
`dead` when the log failed; then it recovers by opening again, as a container does.  With TWO_STEPS in its environment
it writes and syncs in two calls, as where the system has none that does both.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys

from sarit.core.errors import Unavailable
from sarit.env import real_files
from sarit.env.real import real_env
from sarit.log.local import LocalLog, LocalLogProvider

FILE_BYTES = 1 << 18
KEPT_FRAMES = 200


def payload_of(number: int) -> bytes:
    rng = random.Random(number)
    return rng.randbytes(rng.choice((10, 500, 5000, 40_000)))


def say(*words: object) -> None:
    print(*words, flush=True)


async def recover(provider: LocalLogProvider) -> tuple[LocalLog, int]:
    log = await provider.open(0)
    number: int | None = None
    async for frame in log.replay(int(sys.argv[2]) if len(sys.argv) > 2 else 0):
        assert number is None or frame.number == number + 1
        number = frame.number
        assert frame.payload == payload_of(number), f"frame {number} has other bytes"
    say("open", number or 0)
    return log, number or 0


async def own(log: LocalLog, number: int) -> None:
    """Append, two frames in flight, until the log fails."""
    in_flight = asyncio.Semaphore(2)
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(frame: int, error: BaseException | None) -> None:
        in_flight.release()
        if error is None:
            say("acked", frame)
        elif not failed.done():
            failed.set_exception(error)

    while not failed.done():
        await in_flight.acquire()
        number += 1
        log.append(number, [payload_of(number)], lambda error, frame=number: done(frame, error))
    await failed


async def main() -> None:
    if os.environ.get("TWO_STEPS"):
        real_files._WRITE_AND_SYNC = 0
    provider = LocalLogProvider(real_env(), sys.argv[1], FILE_BYTES)
    while True:
        try:
            log, number = await recover(provider)
        except Unavailable:
            say("dead")  # the sync that fails is one of opening
            continue
        try:
            await own(log, number)
        except Unavailable:
            say("dead")
        finally:
            await log.close()


if __name__ == "__main__":
    asyncio.run(main())
