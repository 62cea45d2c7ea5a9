"""Power cuts at every step of chunk writes and deletes, on the simulated disk.

What must hold of every disk image a cut may leave: an acknowledged chunk is there, whole; a chunk that has its name is
whole, acknowledged or not; a deletion that returned stays; nothing unfinished is left after the next opening.
"""

import asyncio
import random
from dataclasses import dataclass, replace

import pytest

from sarit.core.errors import Unavailable
from sarit.env.real import real_env
from sarit.storage import directory
from sarit.storage.directory import open_directory
from simulation.disk import SimulatedDisk
from simulation.threads import SimulatedThreads

ROOT = "/data/chunks"
IMAGES_PER_STEP = 4


@dataclass(frozen=True)
class Cut:
    """A disk after a power cut, and the calls that had returned by then."""

    image: SimulatedDisk
    written: dict[str, bytes]
    deleted: frozenset[str]
    step: str


class Workload:
    """Writes and deletes chunks; saves an image at each change of the disk."""

    def __init__(self, seed: int, sync_error_in: int = 0):
        self.rng = random.Random(seed)
        self.disk = SimulatedDisk(self.rng)
        self.threads = SimulatedThreads()
        self.env = replace(real_env(), files=self.disk, threads=self.threads)
        self.sync_error_in = sync_error_in
        self.content: dict[str, bytes] = {}
        self.written: dict[str, bytes] = {}
        self.deleted: set[str] = set()
        self.failed = 0
        self.cuts: list[Cut] = []

    def keep_images(self, step: str) -> None:
        for at in range(IMAGES_PER_STEP):
            share = (0.0, 1.0)[at] if at < 2 else self.rng.random()
            image = self.disk.image(lambda _, share=share: self.rng.random() < share)
            self.cuts.append(Cut(image, dict(self.written), frozenset(self.deleted), step))

    async def write(self, chunks, name: str) -> None:
        parts = [self.rng.randbytes(self.rng.randrange(6000)) for _ in range(3)]
        self.content[name] = b"".join(parts)
        try:
            await chunks.write(name, parts)
        except Unavailable:
            self.failed += 1
        else:
            self.written[name] = self.content[name]

    async def delete(self, chunks, name: str) -> None:
        content = self.written.pop(name)  # From here on it may be there or not.
        assert await chunks.read(name, 0, len(content)) == content
        await chunks.delete(name)
        self.deleted.add(name)

    async def run(self) -> None:
        chunks = await open_directory(ROOT, self.env, writers=2)
        self.disk.listeners.append(self.keep_images)
        self.disk.faults.sync_error_in = self.sync_error_in
        await asyncio.gather(self.write(chunks, "e1/a"), self.write(chunks, "e1/b"))
        await self.write(chunks, "e2/c")
        if "e1/a" in self.written:
            await asyncio.gather(self.delete(chunks, "e1/a"), self.write(chunks, "e2/d"))
        self.keep_images("end")
        self.disk.listeners.clear()
        await chunks.close()

    async def check(self, cut: Cut) -> None:
        chunks = await open_directory(ROOT, replace(self.env, files=cut.image), writers=1, readers=1)
        found = dict([entry async for entry in chunks.list("")])
        assert set(cut.written) <= set(found), f"an acknowledged chunk is missing after a cut at {cut.step}"
        assert not cut.deleted & set(found), f"a deleted chunk is back after a cut at {cut.step}"
        for name, length in found.items():
            whole = await chunks.read(name, 0, length)
            assert whole == self.content[name], f"{name} is not whole after a cut at {cut.step}"
        await chunks.close()
        left = cut.image.list(f"{ROOT}/.incoming")
        assert left == [], f"left after a cut at {cut.step}"


def run_and_check(workload: Workload) -> None:
    async def main():
        await workload.run()
        for cut in workload.cuts:
            await workload.check(cut)

    asyncio.run(main())


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(directory, "CHUNK_PIECE_BYTES", 4096)


@pytest.mark.parametrize("piece_bytes", [4096, 1 << 20])
@pytest.mark.parametrize("seed", range(12))
def test_power_cuts(seed, piece_bytes, monkeypatch):
    monkeypatch.setattr(directory, "CHUNK_PIECE_BYTES", piece_bytes)
    workload = Workload(seed)
    run_and_check(workload)
    assert workload.failed == 0
    assert len(workload.cuts) > 100
    assert {cut.step for cut in workload.cuts} >= {"create", "pwrite", "datasync", "rename", "sync_dir", "remove"}


@pytest.mark.parametrize("sync", range(1, 9))
def test_power_cuts_after_a_failed_sync(sync):
    workload = Workload(sync, sync_error_in=sync)
    run_and_check(workload)
    assert workload.failed == 1
