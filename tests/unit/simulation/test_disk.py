"""The simulated disk has exactly the faults of its fault model."""

from __future__ import annotations

import asyncio
import errno
import random

import pytest

from simulation.disk import PAGE_BYTES, SECTOR_BYTES, SimulatedDisk
from simulation.threads import SimulatedThreads
from tests.unit.log.world import simulate


def disk_of(seed: int = 0, **options) -> SimulatedDisk:
    disk = SimulatedDisk(random.Random(seed), **options)
    disk.make_dirs("/d")
    return disk


def synced(disk: SimulatedDisk, content: bytes, name: str = "/d/a"):
    file = disk.open(name, "create")
    file.pwrite([content], 0)
    file.datasync()
    disk.sync_dir("/d")
    return file


def test_synced_data_survives_every_crash() -> None:
    for seed in range(50):
        disk = disk_of(seed)
        synced(disk, b"x" * 3000).pwrite([b"y" * 3000], 3000)
        assert disk.crash().content("/d/a")[:3000] == b"x" * 3000


def test_unsynced_sectors_survive_in_any_subset_and_never_torn() -> None:
    seen = set()
    for seed in range(1000):
        disk = disk_of(seed)
        file = synced(disk, bytes(4 * SECTOR_BYTES))
        file.pwrite([b"n" * 4 * SECTOR_BYTES], 0)
        content = disk.crash().content("/d/a")
        sectors = [content[at : at + SECTOR_BYTES] for at in range(0, len(content), SECTOR_BYTES)]
        assert all(sector in (bytes(SECTOR_BYTES), b"n" * SECTOR_BYTES) for sector in sectors)
        seen.add(tuple(any(sector) for sector in sectors))
    assert len(seen) == 16


def test_sector_written_twice_is_old_or_new_after_crash() -> None:
    seen = set()
    for seed in range(100):
        disk = disk_of(seed)
        file = synced(disk, b"0")
        file.pwrite([b"1"], 0)
        file.pwrite([b"2"], 0)
        seen.add(disk.crash().content("/d/a"))
    assert seen == {b"0", b"1", b"2"}


def test_entries_need_directory_sync_and_rename_is_atomic() -> None:
    seen = set()
    for seed in range(200):
        disk = disk_of(seed)
        synced(disk, b"a")
        file = disk.open("/d/b", "create")
        file.pwrite([b"b"], 0)
        file.datasync()
        disk.rename("/d/b", "/d/a")
        after = disk.crash()
        names = tuple(after.list("/d"))
        seen.add((names, *(after.content(f"/d/{name}") for name in names)))
    assert seen == {(("a",), b"a"), (("a", "b"), b"a", b"b"), (("a",), b"b")}


def test_removed_file_may_return_without_directory_sync() -> None:
    seen = set()
    for seed in range(50):
        disk = disk_of(seed)
        synced(disk, b"a")
        disk.remove("/d/a")
        seen.add(tuple(disk.crash().list("/d")))
    assert seen == {(), ("a",)}
    disk = disk_of()
    synced(disk, b"a")
    disk.remove("/d/a")
    disk.sync_dir("/d")
    assert disk.crash().list("/d") == []


def test_unsynced_length_may_be_lost() -> None:
    lengths = set()
    for seed in range(50):
        disk = disk_of(seed)
        synced(disk, b"a").allocate(1000)
        lengths.add(len(disk.crash().content("/d/a")))
    assert lengths == {1, 1000}


def test_failed_sync_leaves_pages_undefined_and_next_sync_succeeds() -> None:
    seen = set()
    for seed in range(100):
        disk = disk_of(seed)
        file = synced(disk, b"o" * 2 * PAGE_BYTES)
        file.pwrite([b"n"], 10)
        disk.faults.sync_error_in = 1
        with pytest.raises(OSError, check=lambda error: error.errno == errno.EIO):
            file.datasync()
        assert file.pread(1, 10) == b"n", "the cache shows the new bytes"
        file.datasync()  # succeeds, and does nothing
        content = disk.crash().content("/d/a")
        assert content[PAGE_BYTES:] == b"o" * PAGE_BYTES, "a page that was clean is untouched"
        seen.add(content[9:11])
    assert seen == {b"oo", b"on", b"\0\0"}


def test_page_cache_survives_kill_but_not_power_cut() -> None:
    disk = disk_of(3)
    file = synced(disk, b"old")
    file.pwrite([b"new"], 0)
    assert disk.open("/d", "read").lock()
    disk.kill()
    with pytest.raises(OSError):
        file.pread(1, 0)
    assert disk.open("/d", "read").lock()
    assert disk.content("/d/a") == b"new"
    assert disk.image(lambda _: False).content("/d/a") == b"old"


def test_full_disk_raises_enospc() -> None:
    disk = disk_of(capacity_bytes=1000)
    file = synced(disk, b"x" * 600)
    for call in (lambda: file.allocate(1001), lambda: file.pwrite([b"x"], 1000), lambda: file.truncate(1001)):
        with pytest.raises(OSError, check=lambda error: error.errno == errno.ENOSPC):
            call()
    file.pwrite([b"over"], 0)
    assert disk.free_bytes("/d") == 400
    disk.remove("/d/a")
    assert disk.free_bytes("/d") == 1000


def test_same_seed_gives_same_crash() -> None:
    def run() -> bytes:
        disk = disk_of(7)
        synced(disk, b"").pwrite([random.Random(1).randbytes(20_000)], 0)
        return disk.crash().content("/d/a")

    assert run() == run()


def test_worker_keeps_order_with_other_events_between() -> None:
    async def main() -> None:
        rng = random.Random(0)
        worker = SimulatedThreads(lambda: rng.random()).worker("w")
        loop = asyncio.get_running_loop()
        seen: list[object] = []
        for n in range(3):
            worker.submit(lambda n=n: seen.append(("run", n)), lambda _, error, n=n: seen.append(("done", n)))
        loop.call_later(0.0001, seen.append, "before")
        assert await worker.run(lambda: 42) == 42
        await worker.close()
        assert seen == ["before", *((what, n) for n in range(3) for what in ("run", "done"))]
        with pytest.raises(RuntimeError):
            worker.submit(int, lambda _, error: None)

    simulate(main)


def test_worker_reports_errors_and_halt_stops_it() -> None:
    async def main() -> None:
        threads = SimulatedThreads(lambda: 0.01)
        worker = threads.worker("w")
        with pytest.raises(ZeroDivisionError):
            await worker.run(lambda: 1 // 0)
        seen: list[int] = []
        worker.submit(lambda: seen.append(1), lambda _, error: seen.append(2))
        worker.submit(lambda: seen.append(3), lambda _, error: seen.append(4))
        await asyncio.sleep(0.015)
        threads.halt()
        await asyncio.sleep(1)
        assert seen == [1]

    simulate(main)
