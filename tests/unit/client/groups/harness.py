"""Reader group harness: each reader runs in a task, with a store of what it processed and its position."""

import asyncio

from sarit.client.groups.reader import CheckpointEvent, GroupEvent
from sarit.core.errors import Conflict


async def fill(client, stream: str, count: int, first: int = 0, keys: int = 20) -> list[bytes]:
    """Events `key:number`."""
    events = [f"k{number % keys}:{number}" for number in range(first, first + count)]
    async with client.writer(stream) as writer:
        for event in events:
            writer.write(event, key=event.partition(":")[0])
    return [event.encode() for event in events]


class Worker:
    """Reads until the group is at its end, or it is stopped.  `done`: events with the position stored with each."""

    def __init__(self, group, name: str, **options) -> None:
        self.group = group
        self.name = name
        self.options = options
        self.done: list[bytes] = []
        self.checkpoints: list[str] = []
        self.position = None
        self.reader = None
        self.task = None

    async def start(self):
        self.reader = await self.group.reader(self.name, **self.options)
        self.task = asyncio.create_task(self._work())
        return self

    async def _work(self) -> None:
        while True:
            found = await self.reader.read(0.5)
            if isinstance(found, GroupEvent):
                self.done.append(found.event)
                self.position = found.position
            elif isinstance(found, CheckpointEvent):
                self.checkpoints.append(found.name)
                self.position = found.position
            elif self.reader.at_end:
                return

    async def die(self) -> None:
        """Stop between two events without leaving the group."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.reader._stop(Conflict("killed by the test"))

    async def leave(self) -> None:
        """Stop, and close."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.reader.close()


async def until(condition, seconds: float = 30.0) -> None:
    """Wait for `condition()`."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


def total(*workers: Worker) -> list[bytes]:
    """The events that all of them processed."""
    return [event for worker in workers for event in worker.done]
