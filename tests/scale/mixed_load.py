"""One process of the mixed load: `python -m tests.scale.mixed_load '{"controller": ..., "seed": ...}'`.

It runs the actors of `actors.py`, each with its own client, replaced now and then, until its standard input ends.  Then
it finishes the current rounds and prints its counts as one line of JSON.  `say` on a line of its standard input makes
it print its progress.  A process that is killed instead abandons its connections, transactions and readers.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import traceback
from collections import Counter
from typing import Any, Final

from sarit.client.aio import connect
from tests.scale.actors import ACTORS, Turn
from tests.scale.node import held_by

ROUNDS_PER_CLIENT: Final = 8
END_SECONDS: Final = 60.0
_SHOWN: Final = 5


class Load:
    """The actors under way."""

    def __init__(self, controller: str, seed: int) -> None:
        self._controller = controller
        self._seed = seed
        self.stopping = asyncio.Event()
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []

    async def act(self, name: str) -> None:
        """Run one actor, round after round.  A failed round is recorded, and the next begins."""
        rng = random.Random(f"{self._seed} {name}")
        while not self.stopping.is_set():
            try:
                async with await connect(self._controller) as client:
                    for _ in range(rng.randrange(1, ROUNDS_PER_CLIENT)):
                        if self.stopping.is_set():
                            break
                        await self._round(name, Turn(client, rng))
            except Exception as error:
                await self._failed(name, error)

    async def _failed(self, name: str, error: Exception) -> None:
        self.failures.append(f"{name}: {type(error).__name__}: {error}")
        if len(self.failures) <= _SHOWN:
            traceback.print_exception(error)
        await asyncio.sleep(1)

    async def _round(self, name: str, turn: Turn) -> None:
        try:
            await ACTORS[name](turn)
        except Exception as error:
            await self._failed(name, error)
        self.counts.update(turn.counts)
        self.counts["rounds"] += 1

    def report(self) -> dict[str, Any]:
        """What was done."""
        held = held_by(os.getpid())
        return {
            "counts": dict(sorted(self.counts.items())),
            "failures": len(self.failures),
            "first_failures": self.failures[:_SHOWN],
            "memory_bytes": held.memory_bytes,
            "open_files": held.open_files,
        }


async def _listen(load: Load) -> None:
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while (await lines.readline()).strip() == b"say":
        print(json.dumps(load.report()), flush=True)
    load.stopping.set()


async def run(options: dict[str, Any]) -> dict[str, Any]:
    """The actors until standard input ends."""
    load = Load(options["controller"], int(options["seed"]))
    async with asyncio.TaskGroup() as group:
        for name in options.get("actors") or ACTORS:
            group.create_task(load.act(name))
        await _listen(load)
    return load.report()


if __name__ == "__main__":
    import uvloop

    print(json.dumps(uvloop.run(run(json.loads(sys.argv[1])))), flush=True)
