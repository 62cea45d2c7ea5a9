"""The workload during faults: writers and a reader of the Python client, a writer of the official one.

All record into one `LogHistory`.  A writer's events share a routing key; in which segment they are is known once they
are read, so sends are recorded when the run is over.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Final

from checkers.log import ANY_SEGMENT, TORN, LogHistory, Violation
from sarit.client.aio import connect
from sarit.core.errors import SaritError
from simulation.events import parse
from tests.chaos.elastic import Elastic
from tests.chaos.events import OFFICIAL_WRITER, ROOT, SCOPE, STREAM, event, key, stored_bytes
from tests.chaos.group import GroupReaders
from tests.chaos.parts import Pulse, now
from tests.chaos.shared import SynchronizerUsers, TableUsers

if TYPE_CHECKING:
    import random

    from sarit.client.aio import Client
    from tests.chaos.parts import Part

NAME: Final = f"{SCOPE}/{STREAM}"
TAIL_READER: Final = 0
END_SECONDS: Final = 300.0  # a busy machine reads all data several times
_MAX_BATCH: Final = 40
_THINK_SECONDS: Final = 0.1
_SHOWN: Final = 3


class Writer:
    """What one writer has sent, and what was acknowledged."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.sends: list[tuple[int, float]] = []
        self.acks: list[tuple[int, float]] = []
        self.acked = 0

    @property
    def made(self) -> int:
        """The last event passed to the client."""
        return self.sends[-1][0] if self.sends else 0

    def sending(self, last: int) -> None:
        """Events up to `last` will be passed to the client."""
        self.sends.append((last, now()))

    def acknowledged(self, last: int) -> None:
        """Events up to `last` are durable."""
        if last > self.acked:
            self.acked = last
            self.acks.append((last, now()))

    def record(self, history: LogHistory, segment: int) -> None:
        """Into the history; `segment`: where its events are."""
        number = 1
        for last, at in self.sends:
            while number <= last:
                history.sent(self.number, number, segment, stored_bytes(self.number, number), at)
                number += 1
        for last, at in self.acks:
            history.acked(self.number, last, segment, -1, at)


class PythonWriter(Writer):
    """Through our client: always some events in flight."""

    def __init__(self, client: Client, number: int, rng: random.Random) -> None:
        super().__init__(number)
        self._client = client
        self._rng = rng
        self.stopping = asyncio.Event()

    async def run(self) -> None:
        """Until `stopping`; then until all is acknowledged."""
        writer = self._client.writer(NAME)
        number = 1
        while not self.stopping.is_set():
            last = number + self._rng.randrange(_MAX_BATCH)
            self.sending(last)
            for one in range(number, last + 1):
                writer.write(event(self.number, one), key=key(self.number))
            number = last + 1
            mark = writer.flush_barrier()
            mark.add_done_callback(lambda done, last=last: self._marked(done, last))  # type: ignore[misc]
            await writer.drain()
            await asyncio.sleep(self._rng.random() * 2 * _THINK_SECONDS)
        await writer.flush()
        self.acknowledged(number - 1)
        await writer.close()

    def _marked(self, done: asyncio.Future[None], last: int) -> None:
        if not done.cancelled() and done.exception() is None:
            self.acknowledged(last)


class OfficialWriter(Writer):
    """Through the official client, in a process of its own."""

    def __init__(self, address: str) -> None:
        super().__init__(OFFICIAL_WRITER)
        self._address = address
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> None:
        """Until `stop`; then until all is acknowledged.  Raises AssertionError when it fails."""
        process = self._process = await official("write", self._address, 1, stdin=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        done = False
        async for line in process.stdout:
            what, _, number = line.decode().strip().partition(" ")
            if what == "sending":
                self.sending(int(number))
            elif what == "acked":
                self.acknowledged(int(number))
            done = done or what == "done"
        assert done, f"the official client ended with {await process.wait()}"

    def stop(self) -> None:
        """Write no more."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(b"\n")

    def kill(self) -> None:
        """Abandon it."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()


async def official(
    what: str, address: str, number: int, stdin: int = asyncio.subprocess.DEVNULL
) -> asyncio.subprocess.Process:
    """Start the official client."""
    return await asyncio.create_subprocess_exec(
        sys.executable, "-u", "-m", "tests.chaos.official", what, address, str(number),
        cwd=ROOT, stdin=stdin, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip


class Reader:
    """Reads the stream into the history, each event with its place."""

    def __init__(self, history: LogHistory, number: int) -> None:
        self._history = history
        self.number = number
        self._seen: set[int] = set()
        self.events = 0
        self.places: dict[int, set[int]] = {}
        self.order: dict[int, list[int]] = {}

    async def run(self, client: Client, end: str | None) -> None:
        """To the tail as of now ("tail"), or on and on (None)."""
        async with client.reader(NAME, end=end) as reader:
            while True:
                begun = now()
                batch = await reader.read_arrow()
                if batch is None:
                    return
                self._take(*(column.to_pylist() for column in batch.columns), begun)

    def _take(self, events: list[bytes], segments: list[int], offsets: list[int], begun: float) -> None:
        ended = now()
        for one, segment, offset in zip(events, segments, offsets, strict=True):
            writer, number = parse(one) or (TORN, 0)
            fresh = segment not in self._seen
            self._seen.add(segment)
            self._history.read(
                self.number, (segment, offset), (writer, number, len(one) + 8), fresh=fresh, begun=begun, ended=ended
            )
            self.places.setdefault(writer, set()).add(segment)
            self.order.setdefault(writer, []).append(number)
            self.events += 1


class Workload:
    """All tasks, and their checks."""

    def __init__(self, address: str, rng: random.Random, writers: int, with_official: bool, with_parts: bool) -> None:
        self._address = address
        self._rng = rng
        self._count = writers
        self.history = LogHistory()
        self.tail = Reader(self.history, TAIL_READER)
        self.official = OfficialWriter(address) if with_official else None
        self.python: list[PythonWriter] = []
        self.violations: list[Violation] = []
        self.elastic = Elastic(address, rng)
        self.group = GroupReaders(self.elastic)
        self.parts: list[Part] = []
        if with_parts:
            self.parts = [self.elastic, self.group, TableUsers(address, rng), SynchronizerUsers(address, rng)]
        self._client: Client | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._pulses: dict[str, Pulse] = {}
        self._scans: list[Reader] = []

    @property
    def writers(self) -> list[Writer]:
        """All of them."""
        return [*self.python, *([self.official] if self.official else [])]

    @property
    def acked_events(self) -> int:
        """Over all writers."""
        return sum(writer.acked for writer in self.writers) + self.elastic.acked_events

    @property
    def reader_kills(self) -> int:
        """The number of reader processes that were killed and restarted at their position."""
        return self.elastic.kills + self.group.kills

    async def start(self) -> None:
        """Create the stream and begin."""
        client = self._client = await connect(self._address)
        await client.create_scope(SCOPE)
        await client.create_stream(NAME, segments=3)
        self.python = [PythonWriter(client, number, self._rng) for number in range(1, self._count + 1)]
        for writer in self.writers:
            self._tasks[f"writer {writer.number}"] = asyncio.ensure_future(writer.run())  # type: ignore[attr-defined]
        for part in self.parts:
            await part.create(client)
            for name, work in part.work(client).items():
                self._tasks[name] = asyncio.ensure_future(work)
                self._pulses[name] = part.pulse
        self._tasks["tail reader"] = asyncio.ensure_future(self.tail.run(client, None))

    async def progress(self, seconds: float, after: str) -> None:
        """Wait until every writer has a new acknowledgement and every part made progress.  Raises Stopped."""
        goal = {writer.number: writer.made for writer in self.writers}
        steps = {name: pulse.steps[name] for name, pulse in self._pulses.items()}
        end = now() + seconds
        while True:
            missing: list[object] = [
                w.number for w in self.writers if w.acked < goal[w.number] or w.made <= goal[w.number]
            ]
            # Two steps: the first may have started before.
            missing += [name for name, pulse in self._pulses.items() if pulse.steps[name] < steps[name] + 2]
            for name, task in self._tasks.items():
                if task.done():
                    raise Stopped(f"{name} ended after {after}: {task.exception()!r}")
            if not missing:
                return
            if now() > end:
                raise Stopped(f"{missing} (writers by number) got nothing done in {seconds:.0f} s after {after}")
            await asyncio.sleep(0.05)

    async def stop(self) -> None:
        """End the writers; all they wrote is acknowledged then.  Raises Stopped."""
        for writer in self.python:
            writer.stopping.set()
        if self.official:
            self.official.stop()
        for part in self.parts:
            part.pulse.stopping.set()
        writers = {task for name, task in self._tasks.items() if not name.endswith("reader")}
        done, pending = await asyncio.wait(writers, timeout=END_SECONDS)
        if pending:
            left = sorted(name for name, task in self._tasks.items() if task in pending)
            raise Stopped(f"{left} did not end in {END_SECONDS:.0f} s")
        for task in done:
            task.result()

    async def scan(self) -> None:
        """Read everything from the head; the tail reader must have read as much."""
        reader = Reader(self.history, len(self._scans) + 1)
        async with asyncio.timeout(END_SECONDS):
            async with await connect(self._address) as client:
                head, tail = await client.stream_cut_head(NAME), await client.stream_cut_tail(NAME)
                await reader.run(client, "tail")
                for part in self.parts:
                    await part.scan(client)
            if not self._scans:
                while self.tail.events < reader.events:
                    await asyncio.sleep(0.05)
        for segment, end in tail.positions.items():
            self.history.scanned(reader.number, segment.packed, head.positions[segment], end)
        self._scans.append(reader)

    async def referee(self) -> None:
        """The official client reads everything: the same events, each writer's in order."""
        assert self._scans
        process = await official("read", self._address, self._scans[-1].events)
        out, _ = await process.communicate()
        order: dict[int, list[int]] = {}
        lines = out.decode().split("\n")
        for line in lines:
            if line.startswith("got "):
                writer, number = map(int, line.split()[1:])
                order.setdefault(writer, []).append(number)
        if "done" not in lines:
            raise Stopped(f"the official client ended with {process.returncode} while it read")
        for writer in sorted({*order, *self._scans[-1].order}):
            got, stored = order.get(writer, []), self._scans[-1].order.get(writer, [])
            if got != stored:
                at = next((n for n, (a, b) in enumerate(zip(got, stored, strict=False)) if a != b), None)
                self.violations.append(
                    Violation("referee", f"writer {writer}: it read {len(got)}, stored are {len(stored)}, first {at}")
                )

    def verdict(self) -> LogHistory:
        """The history, complete."""
        for writer in self.writers:
            places = sorted(self._scans[-1].places.get(writer.number, ())) if self._scans else []
            writer.record(self.history, places[0] if len(places) == 1 else ANY_SEGMENT)
            if len(places) > 1:
                self.violations.append(Violation("misplaced", f"writer {writer.number}: events in {places[:_SHOWN]}"))
        return self.history

    async def close(self) -> None:
        """Stop what still runs."""
        if self.official:
            self.official.kill()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if self._client is not None:
            try:
                await self._client.close()
            except SaritError as error:
                self.violations.append(Violation("close", json.dumps(str(error))))


class Stopped(Exception):
    """No progress any more: liveness is broken."""
