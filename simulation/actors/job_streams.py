"""A stream that a background job reads, and the parts that all actors of such jobs share: the writer, the scales, the
wait for the job after the faults, and the events as a client reads them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Unavailable
from simulation.actors.clients import connect_client, retry_forever, scale_now_and_then
from simulation.actors.controllers import running_controller
from simulation.events import body
from simulation.world import now

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from sarit.client.aio import Client
    from sarit.core.names import StreamName
    from simulation.cluster import Cluster

EVENTS: Final = 120
_KEYS: Final = 5
_PAUSE_SECONDS: Final = 2.0
_CONVERGE_SECONDS: Final = 120.0


class JobStream:
    """The stream of one job: its clients, and how many events its writer has written."""

    def __init__(
        self, cluster: Cluster, stream: StreamName, who: str, writer: str,
        event: Callable[[int, random.Random], bytes] | None = None, count: int = EVENTS,
    ) -> None:  # fmt: skip
        """`who`, `writer`: name the draws (rng) of the scales and of the writer.

        `event`: makes the event of a number with draws; None: one of drawn length.  `count`: how many there are."""
        self.acked_events = 0
        self._event = event or self._any_event
        self._count = count
        self._cluster = cluster
        self._stream = stream
        self._who = who
        self._writer = writer

    def __repr__(self) -> str:
        return f"<JobStream {self._stream}, {self.acked_events} events>"

    def start(self, create: Callable[[Client], Awaitable[object]]) -> list[asyncio.Task[Any]]:
        """Tasks that end by themselves: the job is made with `create`, events are written, the stream is scaled."""
        spawn = self._cluster.spawn
        return [
            spawn(self._create(create), f"job of {self._who} events"), spawn(self._write(), self._writer),
            spawn(self._scale(), f"scaler of {self._who} events"),
        ]  # fmt: skip

    async def client(self) -> Client:
        """A new client; the stream exists."""
        client = await connect_client(self._cluster)
        await retry_forever(lambda: client.create_stream(self._stream, segments=2))
        return client

    async def _create(self, create: Callable[[Client], Awaitable[object]]) -> None:
        client = await self.client()
        await retry_forever(lambda: create(client))
        await client.close()

    async def _write(self) -> None:
        client = await self.client()
        rng = self._cluster.rng(self._writer)
        writer = client.writer(self._stream)
        for number in range(1, self._count + 1):
            writer.write(self._event(number, rng), f"key-{rng.randrange(_KEYS)}")
            if rng.randrange(6) == 0 or number == self._count:
                await retry_forever(writer.flush)
                self.acked_events = number
                await asyncio.sleep(rng.random() * _PAUSE_SECONDS)
        await writer.close()
        await client.close()

    def _any_event(self, number: int, rng: random.Random) -> bytes:
        return body(1, number, rng.randrange(self._cluster.options.event_bytes))

    async def _scale(self) -> None:
        client = await self.client()
        await scale_now_and_then(
            self._cluster, client, self._stream, self._who, times=(0, 1, 2), pause=4, segments=(1, 4)
        )
        await client.close()

    # -- after the faults -------------------------------------------------------------------------------

    async def wait(self, client: Client, reached: Callable[[], Awaitable[bool]], what: str) -> None:
        """Wait until `reached`; when that takes longer than _CONVERGE_SECONDS, note a failure of the run: `what`."""
        until = now() + _CONVERGE_SECONDS
        while now() < until:
            if await reached():
                return
            await asyncio.sleep(1.0)
        jobs = await retry_forever(client.stream(self._stream).jobs)
        self._cluster.failures.append(f"liveness: {what}: {jobs}")

    async def end(self, client: Client, what: str) -> None:
        """Seal the stream, and wait until its jobs are done; `what`: as of `wait`."""
        await retry_forever(lambda: client.seal_stream(self._stream))

        async def done() -> bool:
            return all(job.done for job in await retry_forever(client.stream(self._stream).jobs))

        await self.wait(client, done, what)

    async def events(self, client: Client) -> dict[tuple[int, int], bytes]:
        """Read all events, by their packed segment and offset."""
        batch = await client.stream(self._stream).batch("head", "tail")
        return {
            (row["segment"], row["offset"]): row["event"]
            async for found in batch.arrow_batches()
            for row in found.to_pylist()
        }

    async def ranges(self, rng: random.Random) -> dict[int, tuple[float, float]]:
        """Return the range of the key space of each segment.  Raises Unavailable: no controller runs.

        `rng`: draws the controller."""
        place = running_controller(self._cluster, rng)
        if place is None:
            raise Unavailable("no controller runs")
        catalog = place[1].catalog
        record = (await catalog.require(self._stream)).record
        epochs = await catalog.epochs(self._stream, record, 0)
        return {each.segment: (each.low, each.high) for epoch in epochs for each in epoch.segments}


__all__ = ["EVENTS", "JobStream"]
