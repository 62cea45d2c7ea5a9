"""The log on disks that fail, fill up or rot, and after processes that die."""

from __future__ import annotations

import asyncio

import pytest

from sarit.core.errors import Corrupt, Unavailable
from sarit.log.limits import LOG_SPACE_TIMEOUT_SECONDS, LOG_WATERMARK_SECONDS
from sarit.log.local import LocalLogProvider
from tests.limits import examples
from tests.unit.log.world import FILE_BYTES, Machine, append, expected, frames, payload_of, simulate, start


def provider(machine: Machine) -> LocalLogProvider:
    return LocalLogProvider(machine.env(), "/log", FILE_BYTES)


async def write(log, numbers, size=20) -> None:
    for number in numbers:
        await append(log, number, payload_of(number, size))


def names(machine: Machine, kind: str) -> list[str]:
    return [name for name in machine.disk.list("/log/1") if name.endswith(kind)]


@pytest.mark.parametrize("seed", range(examples(30)))
@pytest.mark.parametrize("fault", ["sync_error_in", "write_error_in"])
def test_failed_sync_or_write_ends_the_log_and_recovered_frames_survive(fault, seed) -> None:
    """The page cache shows bytes that the disk never got; the next owner must not trust them."""
    machine = Machine(seed)

    async def main() -> None:
        log = await provider(machine).open(1)
        await write(log, range(1, 6))
        await asyncio.sleep(0.1)  # the reserve is made: the next sync is a group's
        setattr(machine.disk.faults, fault, 1)
        flying = [start(log, number, payload_of(number)) for number in range(6, 10)]
        results = await asyncio.gather(*flying, return_exceptions=True)
        assert any(isinstance(result, Unavailable) for result in results)
        failed = next(at for at, result in enumerate(results) if result is not None)
        assert all(result is not None for result in results[failed:]), "none after the first failure"
        changed: list[str] = []
        machine.disk.listeners.append(changed.append)
        with pytest.raises(Unavailable):
            await append(log, 10, b"late")
        await log.close()
        assert not changed, "nothing is written after a failure"
        machine.disk.listeners.clear()
        log = await provider(machine).open(1)  # the same machine: its page cache is unchanged
        found = await frames(log)
        assert found == expected(range(1, len(found) + 1))
        assert len(found) >= 5 + failed
        number = len(found) + 1
        await append(log, number, payload_of(number))
        machine.disk.evict()
        machine.crash()
        log = await provider(machine).open(1)
        assert await frames(log) == expected(range(1, number + 1))
        await log.close()

    simulate(main)


@pytest.mark.parametrize("seed", range(examples(30)))
def test_frames_recovered_after_kill_survive_power_cut(seed) -> None:
    machine = Machine(seed)

    async def main() -> None:
        log = await provider(machine).open(1)
        await write(log, range(1, 4))
        for number in range(4, 8):
            start(log, number, payload_of(number))
        await asyncio.sleep(machine.rng.random() * 0.003)
        machine.kill()
        log = await provider(machine).open(1)
        found = await frames(log)
        assert found == expected(range(1, len(found) + 1))
        machine.crash()
        log = await provider(machine).open(1)
        assert await frames(log) == found
        await log.close()

    simulate(main)


def test_failure_of_each_sync_in_turn_loses_nothing() -> None:
    """The sync of a group, of a new file's header, of a reserved file: no failure loses acknowledged frames."""

    async def main(after: int) -> None:
        machine = Machine(after)
        acked = 0
        log = await provider(machine).open(1)
        machine.disk.faults.sync_error_in = after
        try:
            for number in range(1, 30):
                await append(log, number, payload_of(number, 3000))
                acked = number
                log.truncate(number - 8)
        except Unavailable:
            pass
        await log.close()
        fired.append(not machine.disk.faults.sync_error_in)
        machine.disk.faults.sync_error_in = 0
        machine.disk.evict()
        machine.crash()
        log = await provider(machine).open(1)
        found = await frames(log, after=max(0, acked - 9))
        first = max(1, acked - 8)
        assert found == expected(range(first, first + len(found)), 3000)
        assert first + len(found) > acked
        await append(log, first + len(found), b"")
        await log.close()

    fired: list[bool] = []
    for after in range(1, 45):
        simulate(lambda after=after: main(after))
    assert sum(fired) > 30


async def _some_history(machine: Machine) -> None:
    """Frames 1-9 over several files and two epochs, closed with a watermark."""
    log = await provider(machine).open(1)
    await write(log, range(1, 6), 5000)
    await log.close()
    log = await provider(machine).open(1)
    await write(log, range(6, 10), 5000)
    await log.close()


async def _read_all(machine: Machine) -> list[tuple[int, bytes]]:
    log = await provider(machine).open(1)
    try:
        return await frames(log)
    finally:
        await log.close()


@pytest.mark.parametrize("seed", range(3))
def test_rot_is_corrupt_or_harmless_and_never_loses_frames(seed) -> None:
    caught = 0

    async def main() -> None:
        nonlocal caught
        machine = Machine(seed)
        await _some_history(machine)
        for name in names(machine, ".log"):
            content = machine.disk.content(f"/log/1/{name}")
            places = [at for at in range(len(content)) if content[at]]
            for at in machine.rng.sample(places, min(40, len(places))):
                damaged = Machine(seed)
                damaged.disk = machine.disk.image(lambda _: True)
                damaged.disk.flip(f"/log/1/{name}", at, machine.rng.randrange(8))
                try:
                    found = await _read_all(damaged)
                except Corrupt:
                    caught += 1
                else:
                    assert found == expected(range(1, 10), 5000), (name, at)

    simulate(main)
    assert caught > 100


def test_watermark_of_idle_log_exposes_rot_in_last_frame() -> None:
    async def main() -> None:
        machine = Machine()
        log = await provider(machine).open(1)
        await write(log, range(1, 3))
        await asyncio.sleep(2 * LOG_WATERMARK_SECONDS + 0.1)
        machine.crash()
        path = f"/log/1/{names(machine, '.log')[0]}"
        machine.disk.flip(path, machine.disk.content(path).index(payload_of(2)))
        with pytest.raises(Corrupt, match="frames 2 to 2"):
            await _read_all(machine)
        before = machine.disk.list("/log/1")
        with pytest.raises(Corrupt):
            await _read_all(machine)
        assert machine.disk.list("/log/1") == before, "nothing is changed"

    simulate(main)


def test_idle_log_writes_one_watermark() -> None:
    async def main() -> None:
        machine = Machine()
        log = await provider(machine).open(1)
        await write(log, [1])
        await asyncio.sleep(10)
        used = log.backlog_bytes()
        await asyncio.sleep(100)
        assert log.backlog_bytes() == used == 2 * 4096
        await log.close()
        assert await _read_all(machine) == expected([1])

    simulate(main)


def test_missing_file_is_corrupt() -> None:
    async def main(at: int) -> None:
        machine = Machine()
        await _some_history(machine)
        machine.disk.remove(f"/log/1/{names(machine, '.log')[at]}")
        with pytest.raises(Corrupt):
            await _read_all(machine)

    for at in range(3):
        simulate(lambda at=at: main(at))


def test_file_of_another_container_or_name_is_corrupt() -> None:
    async def main() -> None:
        machine = Machine()
        await _some_history(machine)
        name = names(machine, ".log")[0]
        machine.disk.rename(f"/log/1/{name}", "/log/1/000000000099.log")
        with pytest.raises(Corrupt, match="says it is file"):
            await _read_all(machine)

    simulate(main)


def test_second_process_cannot_open_the_log() -> None:
    async def main() -> None:
        machine = Machine()
        log = await provider(machine).open(1)
        with pytest.raises(Unavailable, match="another process"):
            await provider(machine).open(1)
        await append(log, 1, b"still the owner")
        await log.close()
        await (await provider(machine).open(1)).close()

    simulate(main)


def test_cancelled_open_releases_the_lock() -> None:
    async def main() -> None:
        machine = Machine()
        logs = provider(machine)
        for delay in (0.0, 0.0005, 0.001, 0.002):
            opening = asyncio.ensure_future(logs.open(1))
            await asyncio.sleep(delay)
            opening.cancel()
            await asyncio.wait([opening])
            if not opening.cancelled():
                await (await opening).close()
            await asyncio.sleep(1)
            other = await provider(machine).open(1)
            await other.close()

    simulate(main)


def test_frames_wait_for_space_until_truncation_recycles_files() -> None:
    async def main() -> None:
        machine = Machine(capacity_bytes=5 * FILE_BYTES)
        log = await provider(machine).open(1)
        flying = [start(log, number, payload_of(number, 6000)) for number in range(1, 21)]
        rounds = acked = 0
        while acked < 20:
            await asyncio.sleep(LOG_SPACE_TIMEOUT_SECONDS / 2)
            acked = sum(future.done() for future in flying)
            rounds += 1
            log.truncate(acked)
        assert all(future.exception() is None for future in flying)
        assert rounds >= 3
        await log.close()
        machine.disk.capacity_bytes *= 2
        log = await provider(machine).open(1)
        assert await frames(log, after=18) == expected(range(19, 21), 6000)
        await log.close()

    simulate(main)


def test_full_disk_fails_appends_after_timeout_and_log_opens_on_reserve() -> None:
    async def main() -> None:
        machine = Machine(capacity_bytes=6 * FILE_BYTES)
        log = await provider(machine).open(1)
        await write(log, range(1, 3), 6000)
        machine.disk.capacity_bytes = machine.disk.used_bytes()  # another process took the rest
        acked, full = 2, None
        while full is None:
            try:
                await append(log, acked + 1, payload_of(acked + 1, 6000))
                acked += 1
            except Unavailable as error:
                full = error
        assert "the disk is full" in str(full)
        await log.close()
        log = await provider(machine).open(1)  # on its reserve
        assert await frames(log) == expected(range(1, acked + 1), 6000)
        acked += 1
        await append(log, acked, b"a small one fits")
        await log.close()
        for _ in range(3):
            with pytest.raises(Unavailable, match="No space"):
                await provider(machine).open(1)
        machine.disk.capacity_bytes *= 10
        log = await provider(machine).open(1)
        assert await frames(log) == [*expected(range(1, acked), 6000), (acked, b"a small one fits")]
        await write(log, range(acked + 1, acked + 10), 6000)
        await log.close()

    simulate(main)


@pytest.mark.parametrize("how", ["close", "fence"])
def test_close_or_fence_fails_frames_that_wait_for_space(how) -> None:
    async def main() -> None:
        machine = Machine(capacity_bytes=3 * FILE_BYTES)
        logs = provider(machine)
        log = await logs.open(1)
        flying = [start(log, number, payload_of(number, 6000)) for number in range(1, 13)]
        await asyncio.sleep(1)
        acked = sum(future.done() for future in flying)
        assert 0 < acked < 12
        begun = asyncio.get_running_loop().time()
        other = await logs.open(1) if how == "fence" else await log.close()
        assert asyncio.get_running_loop().time() - begun < 1
        results = await asyncio.gather(*flying, return_exceptions=True)
        assert [result is None for result in results] == [True] * acked + [False] * (12 - acked)
        log = other or await logs.open(1)
        assert await frames(log) == expected(range(1, acked + 1), 6000)
        await log.close()

    simulate(main)


def test_recycled_files_are_bounded_and_reused() -> None:
    async def main() -> None:
        machine = Machine()
        log = await provider(machine).open(1)
        for number in range(1, 401):
            await append(log, number, payload_of(number, 5000))
            if number % 100 == 0:
                log.truncate(number)
        await asyncio.sleep(1)
        assert 1 <= len(names(machine, ".spare")) <= 16
        for number in range(401, 801):
            await append(log, number, payload_of(number, 5000))
            log.truncate(number - 20)
        await asyncio.sleep(1)
        assert 1 <= len(names(machine, ".spare")) <= 16
        assert len(names(machine, ".log")) < 25
        await log.close()
        assert (await _read_tail(machine, 790)) == expected(range(791, 801), 5000)

    async def _read_tail(machine: Machine, after: int) -> list[tuple[int, bytes]]:
        log = await provider(machine).open(1)
        try:
            return await frames(log, after)
        finally:
            await log.close()

    simulate(main)


def test_failing_callback_does_not_block_other_callbacks() -> None:
    async def main() -> None:
        machine = Machine()
        log = await provider(machine).open(1)
        bugs: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: bugs.append(context))

        def bad(error: object) -> None:
            raise ValueError("a bug of the owner")

        log.append(1, [b"1"], bad)
        log.append(2, [b"2"], bad)
        await append(log, 3, b"3")
        assert bugs
        await log.close()

    simulate(main)


def test_append_out_of_order_fails_an_assertion() -> None:
    async def main() -> None:
        log = await provider(Machine()).open(1)
        await append(log, 1, b"")
        for number in (1, 0, 3):
            with pytest.raises(AssertionError, match=f"frame {number} after 1"):
                start(log, number)
        await append(log, 2, b"")
        await log.close()

    simulate(main)
