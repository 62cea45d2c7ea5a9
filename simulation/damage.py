"""Damage of long-term storage: a container whose chunks are damaged while it works.

The fault model of the other runs excludes it, because a single copy that is damaged cannot be read.  So this run
checks another guarantee: a read returns the bytes that were written, or it is refused.  Nothing turns damaged bytes
into others that look right, above all not compaction; and what is not damaged is served.

The workload is that of `crashes/container.py`: appends, truncations, merges, with checkpoints, compaction and garbage
collection in the background.  Meanwhile chunks get a flipped bit, lose their end, or disappear.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sarit.core.errors import Corrupt
from sarit.index.memory import MemoryIndexes
from sarit.storage.checksums import DamagedChunk
from sarit.storage.directory import SUFFIX
from sarit.storage.names import is_pack
from sarit.storage.verified_reads import verify_extent
from sarit.store.container.reads import ChunkReader, Reads
from simulation.crashes.container import LIMITS, open_on
from simulation.crashes.machine import Machine, simulate
from simulation.crashes.model import Model
from simulation.crashes.workload import ATTRIBUTES, KEYS, Workload

if TYPE_CHECKING:
    from sarit.storage.layout import Extent
    from sarit.store.hosting.container_opening import Opened
    from simulation.crashes.model import ModelSegment
    from simulation.disk import SimulatedDisk

_ROOT = "/chunks"
_STEP_BYTES = 97  # from a refused read to the next one


@dataclass(slots=True)
class Damage:
    """What a run did and saw: damaged chunks (some of them removed), bytes that were read, reads that were refused."""

    chunks: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    read_bytes: int = 0
    refused: int = 0


def _chunks(disk: SimulatedDisk, folder: str = _ROOT) -> list[str]:
    found: list[str] = []
    for entry in disk.list(folder):
        path = f"{folder}/{entry}"
        if entry.endswith(SUFFIX):
            found.append(path)
        elif not entry.startswith("."):
            found += _chunks(disk, path)
    return found


def _damage_one(disk: SimulatedDisk, rng: random.Random, damage: Damage) -> None:
    """Damage a chunk that is whole, if there is one."""
    whole = [path for path in _chunks(disk) if _name(path) not in damage.chunks and disk.content(path)]
    if not whole:
        return
    path = rng.choice(whole)
    damage.chunks.add(_name(path))
    size = len(disk.content(path))
    kind = rng.random()
    if kind < 0.8:
        disk.flip(path, rng.randrange(size), rng.randrange(8))
    elif kind < 0.9:
        disk.remove(path)
        damage.removed.add(_name(path))
    else:
        file = disk.open(path, "write")
        file.truncate(rng.randrange(size))
        file.close()


def _name(path: str) -> str:
    return path.removeprefix(f"{_ROOT}/").removesuffix(SUFFIX)


async def _rot(disk: SimulatedDisk, rng: random.Random, damage: Damage) -> None:
    while True:
        await asyncio.sleep(rng.random() * 0.2)
        _damage_one(disk, rng, damage)


async def _read(opened: Opened, reads: Reads, name: str, expected: ModelSegment, damage: Damage) -> None:
    """Read all of a segment; a refused read must be of a damaged chunk."""
    container = opened.container
    segment = await container.metadata.require(name)
    extents = await container.metadata.extents.load_all(segment.id)
    at = segment.start
    while at < segment.length:
        try:
            found = reads.from_memory(segment, at, 700) or await reads.from_chunks(segment, at, 700)
        except Corrupt as error:
            chunk = _holding(extents, at)
            if chunk not in damage.chunks:
                raise AssertionError(f"{name} is refused at {at}, in {chunk}, which is whole") from error
            damage.refused += 1
            at += _STEP_BYTES
            continue
        data = b"".join(bytes(part) for part in found.parts)
        assert data, f"{name} at {at} of {segment.length}: nothing"
        assert data == expected.data[at : at + len(data)], f"{name}: other data between {at} and {at + len(data)}"
        damage.read_bytes += len(data)
        at += len(data)


def _holding(extents: list[Extent], at: int) -> str:
    (found,) = [extent for extent in extents if extent.start <= at < extent.end]
    return found.chunk


async def _verify(opened: Opened, damage: Damage) -> None:
    """The scrub finds damaged chunks, and reports no others."""
    container = opened.container
    for segment in container.state.segments.values():
        for extent in await container.metadata.extents.load_all(segment.id):
            try:
                await verify_extent(container.storage, extent)
            except DamagedChunk as error:
                if extent.chunk not in damage.chunks:
                    raise AssertionError(f"{extent} is whole, and reported") from error
            else:
                # A part of the chunk may be whole; storage may have a file open that was removed.
                found = extent.chunk in damage.chunks - damage.removed
                sums = extent.checksums  # None: inlined
                part = sums is None or extent.length < sums.length or is_pack(extent.chunk)
                assert not found or part, f"{extent} is damaged, and verified"


def damaged_storage(seed: int) -> Damage:
    """One run.  Raises AssertionError when damage is served, spreads, or is not found."""
    machine, rng, damage = Machine(seed), random.Random(f"damage {seed}"), Damage()
    model = Model(ATTRIBUTES, KEYS)

    async def main() -> None:
        opened, storage = await open_on(machine.env(), MemoryIndexes(), replace(LIMITS, packs=seed % 2 == 1))
        flusher = asyncio.ensure_future(opened.flusher.run())
        rot = asyncio.ensure_future(_rot(machine.disk, rng, damage))
        for life in range(2):
            await Workload(opened.container, model, rng, life).run()
        await opened.container.group_commit.wait_durable()
        rot.cancel()
        with suppress(asyncio.CancelledError):
            await rot
        opened.flusher.finish()
        await flusher
        # The rest goes to chunks, which may be damaged, too; then compaction meets all of them.
        await opened.flusher.checkpoint()
        _damage_one(machine.disk, rng, damage)
        await opened.flusher._compact()
        assert opened.container.failure is None, opened.container.failure
        reads = Reads(opened.container, ChunkReader(storage, 1, opened.container.rate_limiters.read))
        for name, expected in model.segments.items():
            if not expected.table:
                await _read(opened, reads, name, expected, damage)
        await _verify(opened, damage)
        await opened.container.log.close()
        await opened.container.index.close()
        await storage.close()

    simulate(main)
    return damage
