"""The proof: a stream scales under full load, writers and readers are killed, and every acknowledged event is read
exactly once, in order per key, by every reader.

1. Writers write at full speed; each reader reads the whole stream, and the members of a reader group read it together.
   The stream scales without a pause; now and then a writer or a reader is killed with -9 and restarted.
2. When enough is acknowledged the writers end, the stream is sealed, and the readers read on to its end.
3. `judge.py` compares the events stored by the readers with the acknowledgements of the writers.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from checkers.log import Violation
from sarit.client.aio import connect
from sarit.core.errors import Conflict
from tests.scale.judge import Life, Written, judge
from tests.scale.node import LoadedNode
from tests.scale.records import END, EVENT_BYTES, recovered, said, together

if TYPE_CHECKING:
    from sarit.client.aio import Client

ROOT: Final = Path(__file__).resolve().parents[2]
STREAM: Final = "proof/events"
GROUP: Final = "proof/together"
MOST_SEGMENTS: Final = 16
POLL_SECONDS: Final = 0.2
STANDSTILL_SECONDS: Final = 90.0
END_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a run; `kill_seconds` and `scale_seconds`: mean pauses between two of them."""

    events: int
    seed: int
    writers: int = 2
    readers: int = 2
    members: int = 2
    kill_seconds: float = 2.0
    scale_seconds: float = 0.3


@dataclass(slots=True)
class Result:
    """The result of a run."""

    violations: list[Violation] = field(default_factory=list)
    acked: int = 0
    read: list[int] = field(default_factory=list)
    writing_seconds: float = 0.0
    reading_seconds: float = 0.0
    judging_seconds: float = 0.0
    scales: int = 0
    segments: int = 0
    writers_killed: int = 0
    readers_killed: int = 0
    alarms: list[str] = field(default_factory=list)


class Broken(Exception):
    """The run cannot continue: a process failed, or there is no progress."""


class Child:
    """A writer or reader, and its current process."""

    def __init__(self, module: str, options: dict[str, Any], errors: Path) -> None:
        self._module, self._options, self._errors = module, options, errors
        self._process = self._begin()

    def _begin(self) -> subprocess.Popen[bytes]:
        with self._errors.open("ab") as err:
            return subprocess.Popen(
                [sys.executable, "-m", f"tests.scale.{self._module}", json.dumps(self._options)],
                stdin=subprocess.DEVNULL, stdout=err, stderr=err, cwd=ROOT,
            )  # fmt: skip

    def again(self, **options: Any) -> None:
        """kill -9, and start it again."""
        self.kill()
        self._options |= options
        self._process = self._begin()

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Ask it to end."""
        self._process.send_signal(signal.SIGTERM)

    def ended(self) -> bool:
        """Whether it has ended well.  Raises Broken when it has not ended well."""
        code = self._process.poll()
        if code:
            words = self._errors.read_text(errors="replace")[-2000:]
            raise Broken(f"a {self._module} ended with {code}: {words}")
        return code is not None


class Run:
    """One run under way."""

    def __init__(self, directory: Path, plan: Plan, client: Client, controller: str) -> None:
        self.plan, self.result = plan, Result()
        self._directory, self._client, self._controller = directory, client, controller
        self._rng = random.Random(plan.seed)
        self._lives: dict[int, int] = {}
        self.writers = [Child("writer", self._next_life(writer), self._errors) for writer in range(plan.writers)]
        self.readers = [Child("reader", self._reading(reader), self._errors) for reader in range(plan.readers)]
        self.readers += [Child("group_reader", self._member(member), self._errors) for member in range(plan.members)]

    @property
    def _errors(self) -> Path:
        return self._directory / "children.log"

    def _next_life(self, writer: int) -> dict[str, Any]:
        life = len(self._lives)
        self._lives[life] = writer
        side = str(self._directory / f"life-{life}")
        return {"controller": self._controller, "stream": STREAM, "writer": writer, "life": life, "side": side}

    def _reading(self, reader: int) -> dict[str, Any]:
        file = str(self._directory / f"reader-{reader}")
        return {"controller": self._controller, "stream": STREAM, "file": file}

    def _member(self, member: int) -> dict[str, Any]:
        file = str(self._directory / f"member-{member}")
        return {"controller": self._controller, "group": GROUP, "name": f"member-{member}", "file": file}

    def lives(self) -> dict[int, Life]:
        """The reports of the writers."""
        return {life: Life(writer, *said(self._directory / f"life-{life}")) for life, writer in self._lives.items()}

    # -- concurrent tasks ------------------------------------------------------------

    async def write(self) -> None:
        """Until enough is acknowledged.  Raises Broken."""
        begun = moved = time.monotonic()
        before = 0
        scaling, killing = asyncio.ensure_future(self._scale()), asyncio.ensure_future(self._kill())
        try:
            while (acked := sum(life.acked for life in self.lives().values())) < self.plan.events:
                if acked > before:
                    before, moved = acked, time.monotonic()
                elif time.monotonic() - moved > STANDSTILL_SECONDS:
                    raise Broken(f"nothing was acknowledged for {STANDSTILL_SECONDS:.0f} s, after {acked} events")
                for task in (scaling, killing):
                    if task.done():
                        task.result()
                for child in self.writers:
                    if child.ended():
                        raise Broken("a writer ended by itself")
                await asyncio.sleep(POLL_SECONDS)
        finally:
            for task in (scaling, killing):
                task.cancel()
            await asyncio.gather(scaling, killing, return_exceptions=True)
        for child in self.writers:
            child.stop()
        await self._until_ended(self.writers)
        self.result.writing_seconds = time.monotonic() - begun

    async def _scale(self) -> None:
        stream = self._client.stream(STREAM)
        while True:
            with suppress(Conflict):
                self.result.scales += await stream.scale(self._rng.randrange(1, MOST_SEGMENTS + 1))
            await asyncio.sleep(self._rng.expovariate(1 / self.plan.scale_seconds))

    async def _kill(self) -> None:
        while True:
            await asyncio.sleep(self._rng.expovariate(1 / self.plan.kill_seconds))
            if self._rng.random() < 0.5:
                writer = self._rng.randrange(len(self.writers))
                self.writers[writer].again(**self._next_life(writer))
                self.result.writers_killed += 1
            else:
                self._rng.choice(self.readers).again()
                self.result.readers_killed += 1

    async def read_on(self) -> None:
        """Seal, kill every reader once more, and let them end.  Raises Broken."""
        begun = time.monotonic()
        await self._client.seal_stream(STREAM)
        for reader in self.readers:
            reader.again()
            self.result.readers_killed += 1
        await self._until_ended(self.readers)
        self.result.reading_seconds = time.monotonic() - begun

    async def _until_ended(self, children: list[Child]) -> None:
        end = time.monotonic() + END_SECONDS
        while not all([child.ended() for child in children]):
            if time.monotonic() > end:
                raise Broken(f"a process has not ended after {END_SECONDS:.0f} s")
            await asyncio.sleep(POLL_SECONDS)

    # -- the verdict ------------------------------------------------------------------------------

    async def judge(self) -> None:
        """Compare."""
        written = Written(self.lives())
        await self._learn_segments(written)
        self.result.acked = written.acked
        begun = time.monotonic()
        for reader in range(self.plan.readers):
            found = recovered(self._directory / f"reader-{reader}")
            if found.position != END:
                self.result.violations.append(Violation("lost", f"reader {reader} has not come to the end"))
            columns = found.columns()
            self.result.read.append(len(columns[0]))
            self.result.violations += judge(written, reader, columns)
        if self.plan.members:
            found = together([recovered(self._directory / f"member-{member}") for member in range(self.plan.members)])
            columns = found.columns()
            self.result.read.append(len(columns[0]))
            self.result.violations += judge(written, self.plan.readers, columns, keep_order=False)
        self.result.judging_seconds = time.monotonic() - begun

    async def _learn_segments(self, written: Written) -> None:
        epochs = await self._client.stream(STREAM).epochs()
        for epoch in epochs:
            written.active.append([(found.low, found.high) for found in epoch.segments])
        self.result.segments = len({found.segment for epoch in epochs for found in epoch.segments})
        for before, after in pairwise(epochs):
            remaining = {found.segment for found in before.segments}
            for new in after.segments:
                if new.segment not in remaining:
                    written.predecessors[new.segment.packed] = [
                        old.segment.packed for old in before.segments if old.low < new.high and new.low < old.high
                    ]

    def end(self) -> None:
        """Stop all processes."""
        for child in (*self.writers, *self.readers):
            child.kill()


async def _run(directory: Path, plan: Plan, controller: str) -> Result:
    async with await connect(controller) as client:
        await client.create_scope(STREAM.partition("/")[0])
        await client.create_stream(STREAM)
        await client.reader_groups.create(GROUP, STREAM, automatic_checkpoint=None)
        run = Run(directory, plan, client, controller)
        try:
            await run.write()
            await run.read_on()
            await run.judge()
        except Broken as error:
            run.result.violations.append(Violation("liveness", str(error)))
        finally:
            run.end()
        return run.result


def run_proof(directory: Path, plan: Plan) -> Result:
    """Execute a plan in a directory of its own."""
    with LoadedNode(directory / "node") as node:
        result = asyncio.run(_run(directory, plan, node.controller))
        result.alarms = node.alarms()
    return result


def summary(result: Result) -> str:
    """For people."""
    rate = result.acked / max(result.writing_seconds, 1e-9)
    lines = [
        f"{result.acked} events ({result.acked * EVENT_BYTES / 1e9:.1f} GB) acknowledged in "
        f"{result.writing_seconds:.0f} s ({rate:.0f}/s), read on for {result.reading_seconds:.0f} s, "
        f"judged in {result.judging_seconds:.0f} s",
        f"{result.scales} scales, {result.segments} segments; {result.writers_killed} writers and "
        f"{result.readers_killed} readers killed; the readers, and the group, read {result.read} events",
        f"{len(result.violations)} violations",
    ]
    lines += [f"  {violation}" for violation in result.violations[:10]]
    lines += [f"  node: {alarm}" for alarm in result.alarms[:5]]
    return "\n".join(lines)
