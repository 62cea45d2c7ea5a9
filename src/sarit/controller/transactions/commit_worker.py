"""What is known of the background task that ends the transactions of one stream (`transactions.py`)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sarit.controller.model.records import TxnState

# The transactions that a batch has ended, with how.
Ended = dict[int, "TxnState"]


@dataclass(slots=True)
class CommitWorker:
    """The background task of one stream.

    `again`: something came while it ran; `hints`: to what has ended; `ended`: what the batch under way has ended so
    far; `turn`: done with all of that when it is over; `waiting`: calls that wait for an outcome."""

    task: asyncio.Task[None]
    rerun: bool = False
    ended_entries: list[bytes] = field(default_factory=list)
    ended: Ended = field(default_factory=dict)
    waiting: int = 0
    turn: asyncio.Future[Ended] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    async def wait_for_batch(self, seconds: float) -> Ended:
        """What the batch under way has ended; nothing when that takes longer."""
        turn = self.turn
        self.waiting += 1
        try:
            await asyncio.wait([turn], timeout=seconds)
        finally:
            self.waiting -= 1
        return turn.result() if turn.done() else {}

    def batch_ended(self) -> None:
        """A batch is over."""
        done, self.turn = self.turn, asyncio.get_running_loop().create_future()
        ended, self.ended = self.ended, {}
        done.set_result(ended)
