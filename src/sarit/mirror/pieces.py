"""The pieces of a long round, on their way: the next ones are read while others are written."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from sarit.controller.runner import gather_all
from sarit.core.errors import Corrupt, Unavailable
from sarit.mirror.limits import MIRROR_PIECES_AT_ONCE
from sarit.mirror.order import charge
from sarit.mirror.values import Range, Write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.mirror.copier_world import CopierWorld
    from sarit.mirror.order import Turn
    from sarit.mirror.ports import MirrorSource
    from sarit.mirror.rounds import Copy


async def read_whole(source: MirrorSource, scope: str, ranges: Sequence[Range]) -> list[bytes]:
    """Return the bytes of all ranges, however short the replies are."""
    found: list[bytes] = []
    begun = b""
    while len(found) < len(ranges):
        first = ranges[len(found)]
        rest = [replace(first, offset=first.offset + len(begun), length=first.length - len(begun))]
        rest += ranges[len(found) + 1 :]
        got = await source.read(scope, rest)
        if not any(got) or len(got) > len(rest):
            raise Unavailable(f"the source sent nothing of {first.name}, of which it has more")
        for wanted, data in zip(rest, got, strict=False):
            if len(data) > wanted.length:
                raise Corrupt(f"the source sent {len(data)} bytes of {wanted.name}, not {wanted.length}")
            begun += data
            if len(begun) < ranges[len(found)].length:
                break
            found.append(begun)
            begun = b""
    return found


class Pieces:
    """The pieces of one long round, on their way."""

    def __init__(self, world: CopierWorld, copy: Copy, turn: Turn) -> None:
        self._world = world
        self._copy = copy
        self._turn = turn
        self._scope = copy.reached.name.scope
        self._refused = False
        self._at_once = asyncio.Semaphore(MIRROR_PIECES_AT_ONCE)

    def __repr__(self) -> str:
        return f"<Pieces of a round of {self._copy.reached.name}>"

    async def copy(self) -> bool:
        """Copy all pieces.  Returns whether the target took them.  Raises what the sides raise."""
        piece = self._world.gate.rate.piece_bytes
        tasks: list[asyncio.Task[None]] = []
        previous: asyncio.Task[None] | None = None
        sent: asyncio.Event | None = None
        try:
            for one in self._copy.ranges:
                for start in range(one.offset, one.offset + one.length, piece):
                    await self._at_once.acquire()
                    if self._refused or any(task.done() and task.exception() for task in tasks):
                        break
                    part = replace(one, offset=start, length=min(piece, one.offset + one.length - start))
                    mine = asyncio.Event()
                    task = asyncio.create_task(self._piece(part, previous, sent, mine))
                    tasks = [*(other for other in tasks if not other.done() or other.exception()), task]
                    previous, sent = task, mine
            await gather_all(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return not self._refused

    async def _piece(
        self, part: Range, previous: asyncio.Task[None] | None, sent: asyncio.Event | None, mine: asyncio.Event
    ) -> None:
        try:
            async with self._world.gate.passing(self._turn, part.length, charge(part.length, 1)):
                data = (await read_whole(self._world.source, self._scope, [part]))[0]
                if sent is not None:  # pieces are sent in order, and not each after the answer to the one before
                    await sent.wait()
                mine.set()
                if not await self._write(part, data):
                    # Another piece may have overtaken this one on its way.
                    if previous is not None:
                        await asyncio.wait([previous])
                    self._refused |= not await self._write(part, data)
        finally:
            mine.set()
            self._at_once.release()

    async def _write(self, part: Range, data: bytes) -> bool:
        world = self._world
        staged = self._copy.round is not None
        write = Write(part.name, part.segment, part.offset, data, staged)
        answers = await world.target.write(world.identity, self._scope, [write])
        if len(answers) != 1:
            raise Unavailable(f"the target answered {len(answers)} writes, and there was one")
        end = part.offset + len(data)
        # Bytes that another copier has written there are as good.
        taken = (not answers[0].refused and not answers[0].reason) or answers[0].end == end
        if taken:
            world.copied_bytes += len(data)
        return taken
