"""What is known of the background task that ends the transactions of one stream (`transactions.py`)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass(slots=True)
class Finisher:
    """The background task of one stream; `again`: something came while it ran; `hints`: to what has ended; `turn`: done
    when the batch under way is."""

    task: asyncio.Task[None]
    again: bool = False
    hints: list[bytes] = field(default_factory=list)
    turn: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def turned(self) -> None:
        """A batch is over."""
        done, self.turn = self.turn, asyncio.get_running_loop().create_future()
        done.set_result(None)
