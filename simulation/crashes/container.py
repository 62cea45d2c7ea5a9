"""Crash states of a container: a workload of appends, attributes, seals, truncations, merges, deletions and tables,
while chunks are written, compacted and collected, checkpoints committed and the log truncated.

Log and chunks are on one simulated disk.  Before every change of the disk, and around every commit of the index
(applied or not), the power "fails".  For each legal subset of the unsynced changes, the container is opened on the
resulting disk and read completely: every byte of every segment, attributes, table entries, lengths, seals.  The content
must be that of the first N operations, with N between the number acknowledged and the number submitted.  Some images
are recovered twice, with the same result.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Final, cast

from sarit.env.ports import Env
from sarit.index.memory import MemoryIndexes
from sarit.index.port import WriteBatch
from sarit.log.local import LocalLogProvider
from sarit.storage.directory import open_directory
from sarit.store.container.container import ContainerLimits
from sarit.store.container.reads import ChunkReader, Reads
from sarit.store.container.tables import Tables
from sarit.store.flow_control.memory_budget import MemoryBudget
from sarit.store.flow_control.read_limiter import ReadRateLimiter
from sarit.store.flow_control.write_limiter import FlushRateLimiter, RateLimiters
from sarit.store.hosting.container_opening import open_container
from sarit.store.tiering.checkpoint import FlushLimits
from simulation.crashes.machine import DirectThreads, Machine, NestedLoop, SimulatedClock, SimulatedRandom, simulate
from simulation.crashes.model import Model, Seen
from simulation.crashes.states import States, subsets
from simulation.crashes.workload import ATTRIBUTES, KEYS, Workload

if TYPE_CHECKING:
    from sarit.index.port import Index
    from sarit.store.hosting.container_opening import Opened
    from simulation.disk import SimulatedDisk

FILE_BYTES: Final = 16 * 1024
_LIVES: Final = 3
_BUDGET_BYTES: Final = 1 << 30
LIMITS: Final = FlushLimits(
    interval_seconds=0.03,
    trigger_bytes=4000,
    chunk_bytes=1500,
    inline_below_bytes=150,
    small_extent_bytes=2500,
    checksum_block_bytes=512,
)
_NEVER: Final = FlushLimits(interval_seconds=1e9, trigger_bytes=1 << 40)


class ObservedIndexes:
    """`IndexProvider` that notifies the judge of commits."""

    def __init__(self, indexes: MemoryIndexes, judge: ContainerJudge) -> None:
        self._indexes = indexes
        self._judge = judge

    async def open(self, container: int) -> Index:
        """See `IndexProvider`."""
        return cast("Index", _ObservedIndex(await self._indexes.open(container), self._judge))


class _ObservedIndex:
    def __init__(self, index: Any, judge: ContainerJudge) -> None:
        self._index = index
        self._judge = judge

    def __getattr__(self, name: str) -> Any:
        return getattr(self._index, name)

    async def commit(self, batch: WriteBatch) -> None:
        self._judge.committing = batch
        self._judge.on_change("commit")
        await self._index.commit(batch)
        self._judge.committing = None
        self._judge.on_change("committed")


class ContainerJudge:
    """Checks what a power cut could leave at each step: at most `most_per_step` images, drawn from all."""

    def __init__(self, machine: Machine, seed: int, most_per_step: int) -> None:
        self.machine = machine
        self.rng = random.Random(f"judge {seed}")
        self.states = States()
        self.model = Model(ATTRIBUTES, KEYS)
        self.indexes = MemoryIndexes()
        self.committing: WriteBatch | None = None
        self.nested_loop = NestedLoop()
        self._most_per_step = most_per_step
        machine.disk.listeners.append(self.on_change)

    def __repr__(self) -> str:
        return f"<ContainerJudge {self.model!r}, {self.states}>"

    def on_change(self, what: str) -> None:
        """Called before the disk or the index changes."""
        disk = self.machine.disk
        self.states.steps[what] += 1
        chosen = list(subsets(len(disk.pending()), self.rng))
        if len(chosen) > self._most_per_step:
            chosen = self.rng.sample(chosen, self._most_per_step)
        rows = self.indexes.snapshot(0)
        for subset in chosen:
            done = self.committing is not None and self.rng.random() < 0.5
            self.judge(disk.image(subset), rows, self.committing if done else None, what)

    def judge(self, image: SimulatedDisk, rows: dict[bytes, bytes], batch: WriteBatch | None, what: str) -> None:
        """Check one disk and index.  Raises AssertionError."""
        self.states.count += 1
        seen = self.nested_loop.run(lambda: recover(image, rows, batch, self.model.names))
        number = self.model.matching(seen)
        assert number is not None, f"before {what}: {self.model!r}: {self.model.difference(seen)}"
        self.states.torn += number < len(self.model.states) - 1
        self.states.ahead += number > self.model.acked
        if self.states.count % 7 == 0:
            self.states.twice += 1
            again = self.nested_loop.run(lambda: recover(image, rows, batch, self.model.names))
            assert again == seen, f"recovered twice: {self.model.difference(again)}"


async def recover(disk: SimulatedDisk, rows: dict[bytes, bytes], batch: WriteBatch | None, names: list[str]) -> Seen:
    """Open the container on an image, read all of it, and close it."""
    rng = random.Random(1)
    env = Env(SimulatedClock(), SimulatedRandom(rng), disk, DirectThreads(), cast("Any", None))
    indexes = MemoryIndexes()
    index = await indexes.open(0)
    await index.commit(WriteBatch(puts=rows))
    if batch is not None:
        await index.commit(batch)
    await index.close()
    opened, storage = await open_on(env, indexes, _NEVER)
    try:
        return await read_all(opened, ChunkReader(storage, 1, opened.container.rate_limiters.read), names)
    finally:
        await opened.container.log.close()
        await opened.container.index.close()
        await storage.close()
        disk.kill()


async def open_on(env: Env, indexes: Any, limits: FlushLimits) -> tuple[Opened, Any]:
    """An open container, and its long-term storage."""
    storage = await open_directory("/chunks", env, writers=1, readers=1)
    budget = MemoryBudget(_BUDGET_BYTES, 0)
    logs = LocalLogProvider(env, "/log", FILE_BYTES)
    rate_limiters = RateLimiters(FlushRateLimiter(env.clock, budget), ReadRateLimiter(env.clock))
    opened = await open_container(
        0, env, logs, indexes, storage, budget, rate_limiters, ContainerLimits(max_segments=4), limits,
        lambda _container, _error: None,
    )  # fmt: skip
    return opened, storage


async def read_all(opened: Opened, chunks: ChunkReader, names: list[str]) -> Seen:
    """The readable content of the segments of these names."""
    container = opened.container
    reads, tables = Reads(container, chunks), Tables(container)
    seen: Seen = {}
    for name in names:
        segment = await container.metadata.find(name)
        if segment is None:
            continue
        if segment.is_table:
            entries = await tables.get(name, KEYS)
            values = tuple(None if e is None else e.value for e in entries)
            seen[name] = (segment.start, 0, segment.sealed, b"", (), values, segment.mirror)
            continue
        attributes = [await container.get_attribute(name, key) for key in ATTRIBUTES]
        data = b""
        while segment.start + len(data) < segment.length:
            at = segment.start + len(data)
            found = reads.from_memory(segment, at, 4096) or await reads.from_chunks(segment, at, 4096)
            assert found.length, f"{name} at {at} of {segment.length}: nothing"
            data += b"".join(bytes(part) for part in found.parts)
        seen[name] = (segment.start, segment.length, segment.sealed, data, tuple(attributes), (), segment.mirror)
    return seen


async def _life(machine: Machine, judge: ContainerJudge, rng: random.Random, number: int) -> None:
    env, model = machine.env(), judge.model
    opened, storage = await open_on(env, ObservedIndexes(judge.indexes, judge), LIMITS)
    seen = await read_all(opened, ChunkReader(storage, 1, opened.container.rate_limiters.read), model.names)
    begun = model.matching(seen)
    assert begun is not None, f"life {number}: {model.difference(seen)}"
    model.go_on_from(begun)
    tasks = [asyncio.ensure_future(opened.flusher.run()), asyncio.ensure_future(opened.orphan_sweep.run())]
    await Workload(opened.container, model, rng, number).run()
    if number % 2:  # the process dies
        machine.kill()
        judge.indexes.crash()
        judge.committing = None
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        return
    opened.flusher.finish()
    await asyncio.wait(tasks)
    for task in tasks:
        task.result()
    await opened.flusher.checkpoint()
    await opened.flusher.garbage.collect()
    await opened.container.log.close()
    await opened.container.index.close()
    await storage.close()


def crash_container(seed: int, most_per_step: int = 12) -> States:
    """All crash states of one workload.  Raises AssertionError."""
    machine = Machine(seed)
    judge = ContainerJudge(machine, seed, most_per_step)
    rng = random.Random(f"container {seed}")

    async def main() -> None:
        for number in range(_LIVES):
            await _life(machine, judge, rng, number)

    try:
        simulate(main)
    finally:
        judge.nested_loop.close()
    return judge.states
