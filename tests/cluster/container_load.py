"""A writer and a reader for each container of a cluster, and what each of them saw.

A stream of one segment lies in one container.  So the pause of its writer is the pause of that container.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING, Any

from sarit.client import aio
from sarit.core.names import SegmentId, StreamName
from sarit.store.store import container_of

if TYPE_CHECKING:
    from collections.abc import Sequence

SCOPE = "failover"
RETRY_SECONDS = 120.0
READ_SECONDS = 120.0


def streams_by_container(containers: int, scope: str = SCOPE) -> list[StreamName]:
    """For each container, the name of a stream whose first segment lies in it."""
    found: dict[int, StreamName] = {}
    for number in itertools.count():
        name = StreamName(scope, f"s{number}")
        container = container_of(name.segment(SegmentId(0, 0)), containers)
        found.setdefault(container, name)
        if len(found) == containers:
            return [found[each] for each in range(containers)]
    raise AssertionError


class ContainerStream:
    """One stream: its events are numbered from 0."""

    def __init__(self, container: int, name: StreamName) -> None:
        self.container = container
        self.name = name
        self.written = 0
        # Moments of time.monotonic(): a flush was asked for, and answered.
        self.acknowledged: list[float] = []
        self.read = 0
        self.problem = ""

    def __repr__(self) -> str:
        return f"<ContainerStream {self.name} of {self.container}, {self.written} written, {self.read} read>"

    def wait_since(self, moment: float) -> float:
        """The longest time without an acknowledgement that ended after a moment, from that moment on, in seconds."""
        times = [moment, *(at for at in self.acknowledged[-20_000:] if at > moment)]
        gaps = [(after - before, after) for before, after in itertools.pairwise(times)]
        return max(gaps)[1] - moment if gaps and max(gaps)[0] > 0 else 0.0

    def pause_since(self, moment: float) -> float:
        """The longest time between two acknowledgements after a moment, in seconds."""
        times = [moment, *(at for at in self.acknowledged[-20_000:] if at > moment)]
        return max((after - before for before, after in itertools.pairwise(times)), default=0.0)


def check_numbers(name: StreamName, found: Sequence[bytes], first: int) -> str:
    """What is wrong with events that should be numbered from `first` on; "" when nothing is."""
    for expected, event in enumerate(found, first):
        number = int(event.partition(b" ")[0])
        if number != expected:
            what = "missing" if number > expected else "doubled or out of order"
            return f"{name}: event {number} where {expected} was expected: {what}"
    return ""


class ContainerLoad:
    """Writers and readers of all containers, on one event loop, until `finish`."""

    def __init__(
        self, controller: str, containers: int, *, events: int, event_bytes: int, pause_seconds: float
    ) -> None:
        """`events` of `event_bytes` are flushed at once, with a pause after that."""
        self.streams = [ContainerStream(n, name) for n, name in enumerate(streams_by_container(containers))]
        self._controller = controller
        self._events = events
        self._padding = b" " + b"x" * event_bytes
        self._pause = pause_seconds
        self._stopping = asyncio.Event()
        self._client: Any = None
        self._writing: list[asyncio.Task[None]] = []
        self._reading: list[asyncio.Task[None]] = []

    async def start(self) -> ContainerLoad:
        """Make the streams; all writers were acknowledged when this returns."""
        self._client = await aio.connect(self._controller, retry_timeout=RETRY_SECONDS)
        await self._client.create_scope(SCOPE)
        for stream in self.streams:
            await self._client.create_stream(stream.name)
        self._writing = [asyncio.create_task(self._write(stream)) for stream in self.streams]
        self._reading = [asyncio.create_task(self._read(stream)) for stream in self.streams]
        await self.more(3)
        return self

    async def more(self, flushes: int = 3) -> None:
        """Wait until each writer was acknowledged so many times more."""
        wanted = {stream.container: len(stream.acknowledged) + flushes for stream in self.streams}
        while any(len(stream.acknowledged) < wanted[stream.container] for stream in self.streams):
            self.check()
            await asyncio.sleep(0.02)

    def check(self) -> None:
        """Raises what ended a writer or a reader, AssertionError for what a reader found."""
        for task in (*self._writing, *self._reading):
            if task.done() and not task.cancelled():
                task.result()
        problems = [stream.problem for stream in self.streams if stream.problem]
        assert not problems, problems

    async def finish(self) -> int:
        """End it, and read all streams again; the number of events.  Raises AssertionError when one is wrong."""
        self._stopping.set()
        await asyncio.gather(*self._writing)
        end = time.monotonic() + READ_SECONDS
        while any(stream.read < stream.written for stream in self.streams):
            self.check()
            assert time.monotonic() < end, [stream for stream in self.streams if stream.read < stream.written]
            await asyncio.sleep(0.02)
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)
        self.check()
        for stream in self.streams:
            async with self._client.reader(stream.name, end="tail") as reader:
                found = [event async for event in reader]
            problem = check_numbers(stream.name, found, 0)
            assert not problem, problem
            assert len(found) == stream.written, f"{stream.name}: {stream.written} written, {len(found)} found"
        await self._client.close()
        return sum(stream.written for stream in self.streams)

    async def _write(self, stream: ContainerStream) -> None:
        async with self._client.writer(stream.name) as writer:
            while not self._stopping.is_set():
                for _ in range(self._events):
                    writer.write(b"%d" % stream.written + self._padding)
                    stream.written += 1
                await writer.flush()
                stream.acknowledged.append(time.monotonic())
                await asyncio.sleep(self._pause)

    async def _read(self, stream: ContainerStream) -> None:
        async with self._client.reader(stream.name) as reader:
            while True:
                found = await reader.read_events(timeout=1.0)
                stream.problem = stream.problem or check_numbers(stream.name, found, stream.read)
                stream.read += len(found)
