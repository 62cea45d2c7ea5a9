"""The parent of several processes: what each gets, what it does when one ends, and how it says so."""

from __future__ import annotations

import asyncio
import json
import logging
import os

import pytest

from sarit.core.errors import Corrupt, Invalid, Unavailable
from sarit.core.limits import MIB
from sarit.env.real import real_env
from sarit.process import supervisor as processes
from sarit.process.child import ChildSpec, Parent, owned_by, read_line
from sarit.process.observation.health import Health
from sarit.process.observation.logs import LogSettings
from sarit.process.observation.process_health import describe_exit
from sarit.process.settings import NodeConfig, default_processes
from sarit.process.supervisor import Child
from tests.limits import HANG_SECONDS


def config(**options):
    return NodeConfig("/data", **options).validated()


def spec():
    return ChildSpec("store-0", 0, 2, config(processes=2), b"secret", "0", LogSettings())


# -- what each process gets -----------------------------------------------------------------------


@pytest.mark.parametrize(("containers", "count"), [(4, 2), (4, 3), (16, 8), (5, 5)])
def test_parts_have_all_containers_and_no_more_than_the_memory(containers, count):
    parts = config(containers=containers, processes=count, memory_bytes=2048 * MIB).divided(64 << 30, 1 << 16)
    owned = [number for part in range(count) for number in owned_by(part, count, containers)]
    assert sorted(owned) == list(range(containers))
    assert [part.store_port for part in parts] == [12345 + number for number in range(count)]
    assert sum(part.limits.max_dirty_bytes for part in parts) <= 2048 * MIB * 12 // 32
    assert all(part.limits.containers == containers for part in parts)
    assert sum(part.limits.scrub_bytes_per_second for part in parts) <= config().scrub_bytes_per_second
    metadata = sum(
        part.limits.container.metadata_bytes * len(owned_by(number, count, containers))
        for number, part in enumerate(parts)
    )
    assert metadata <= 2048 * MIB * 4 // 32


def test_memory_of_the_programs_comes_out_of_the_machine():
    wanted = config(processes=2, memory_bytes=1024 * MIB)
    assert wanted.divided(1024 * MIB + 3 * 128 * MIB, 1 << 16)
    with pytest.raises(
        Invalid,
        match=r"is too much: .* the programs of 2 stores and the controller take up to 384M: choose at most 896M",
    ):
        wanted.divided(1024 * MIB + 2 * 128 * MIB, 1 << 16)


def test_default_memory_suffices_for_every_process():
    assert config(containers=16, processes=16).divided(8 << 30, 1 << 16)[0].memory_bytes == 16 * 128 * MIB


def test_few_open_files_are_refused_for_each_process():
    with pytest.raises(Invalid, match="raise the limit"):
        config(processes=2).divided(64 << 30, 100)


@pytest.mark.parametrize(
    ("cores", "containers", "expected"), [(1, 4, 1), (2, 4, 1), (4, 4, 2), (8, 4, 4), (16, 4, 4), (64, 32, 8)]
)
def test_auto_is_one_process_for_two_cores(cores, containers, expected):
    assert default_processes(cores, containers) == expected


# -- the pipe -------------------------------------------------------------------------------------


def test_description_comes_through_a_pipe_and_commands_stay_in_it():
    reader, writer = os.pipe()
    os.write(writer, b"one\ntwo\nthr")
    assert [read_line(reader), read_line(reader)] == [b"one", b"two"]
    os.close(writer)
    assert read_line(reader) == b""  # a line that was cut is none
    os.close(reader)
    assert spec().encode().count(b"\n") == 1


# -- a child that ends ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "failure", "expected"),
    [
        (-9, None, "was ended by signal 9 (SIGKILL)"),
        (-99, None, "was ended by signal 99"),
        (3, None, "ended with code 3"),
        (1, Corrupt("bytes"), "failed (bytes)"),
    ],
)
def test_end_of_a_process_is_described(code, failure, expected):
    assert describe_exit(code, failure) == expected


class Scripted:
    """A `Spare` whose processes are shell scripts, one after the other; the last one repeats."""

    def __init__(self, *scripts):
        self.scripts = list(scripts)
        self.taken = 0

    async def take(self):
        self.taken += 1
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        if isinstance(script, OSError):
            raise script
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec("sh", "-c", "read spec; " + script, stdin=pipe, stdout=pipe)

    async def prepare(self):
        return


def say(**report):
    return f"echo '{json.dumps(report)}'; "


SERVE = say(kind="opened") + "read serve; " + say(kind="ready", port=5)


def run(test):
    async def main():
        async with asyncio.timeout(HANG_SECONDS):
            await test()

    asyncio.run(main())


def test_child_that_cannot_start_reports_its_error_and_is_not_started_again():
    async def test():
        spare = Scripted(say(kind="failed", error="Corrupt", text="container 1 is damaged") + "exit 1")
        child = Child("store-0", "store-0", real_env(), spare, spec)
        child.start()
        with pytest.raises(Corrupt, match="container 1 is damaged"):
            await child.wait(child.opened)
        await child.stop()
        assert spare.taken == 1

    run(test)


def test_child_that_dies_before_it_is_ready_is_unavailable():
    async def test():
        child = Child("store-0", "store-0", real_env(), Scripted("exit 7"), spec)
        child.start()
        with pytest.raises(Unavailable, match="store-0 ended before it was ready"):
            await child.wait(child.ready)
        await child.stop()

    run(test)


def test_child_starts_again_after_every_end_with_growing_pauses(caplog, monkeypatch):
    monkeypatch.setattr(processes, "CHILD_RESTART_SECONDS", 0.01)
    caplog.set_level(logging.INFO)

    async def test():
        spare = Scripted(SERVE + "kill -9 $$", OSError("no memory"), SERVE + "exit 3", SERVE + "read stop; exit 0")
        child = Child("store-0", "store-0 (containers 0)", real_env(), spare, spec)
        child.start()
        child.serve()
        await child.wait(child.ready)
        while not (spare.taken == 4 and child.ready.is_set()):
            await asyncio.sleep(0.001)
        assert child.port == 5
        await child.stop()
        assert spare.taken == 4

    run(test)
    lines = [record.message for record in caplog.records if record.name == "sarit.process"]
    assert [line for line in lines if "serves again" not in line] == [
        "store-0 (containers 0) was ended by signal 9 (SIGKILL); it starts again in 0.01 s",
        "store-0 (containers 0) failed (it cannot be started: no memory); it starts again in 0.02 s",
        "store-0 (containers 0) ended with code 3; it starts again in 0.04 s",
    ]
    assert len([line for line in lines if line.startswith("store-0 serves again after")]) == 2


def test_child_that_does_not_stop_is_killed(caplog, monkeypatch):
    monkeypatch.setattr(processes, "CHILD_STOP_SECONDS", 0.05)

    async def test():
        child = Child("store-0", "store-0", real_env(), Scripted(SERVE + "exec sleep 1000"), spec)
        child.start()
        child.serve()
        await child.wait(child.ready)
        await child.stop()
        assert child.process.returncode == -9

    run(test)
    assert "store-0 did not stop within 0.05 s and is killed" in caplog.text


BEAT = say(kind="alive")


@pytest.mark.parametrize("stands_still", ["kill -STOP $$; read stop", "exec sleep 1000"])
def test_child_that_stands_still_is_killed_and_starts_again(stands_still, caplog, monkeypatch):
    monkeypatch.setattr(processes, "CHILD_RESTART_SECONDS", 0.01)
    monkeypatch.setattr(processes, "CHILD_HEARTBEAT_SECONDS", 0.02)
    monkeypatch.setattr(processes, "CHILD_SILENT_SECONDS", 0.1)

    async def test():
        # The second one has no heartbeat yet: it may be loading.
        spare = Scripted(SERVE + BEAT + stands_still, SERVE + "read stop; exit 0")
        child = Child("store-0", "store-0 (containers 0)", real_env(), spare, spec)
        child.start()
        child.serve()
        while not (spare.taken == 2 and child.ready.is_set()):
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.2)
        await child.stop()
        assert (spare.taken, child.process.returncode) == (2, 0)

    run(test)
    assert "store-0 (containers 0) stands still: no heartbeat for 0.1 s; it is killed" in caplog.text
    assert "store-0 (containers 0) was ended by signal 9 (SIGKILL); it starts again in 0.01 s" in caplog.text


def test_child_that_works_is_not_killed(caplog, monkeypatch):
    monkeypatch.setattr(processes, "CHILD_HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(processes, "CHILD_SILENT_SECONDS", 0.5)

    async def test():
        beats = "for n in $(seq 40); do " + BEAT + "sleep 0.02; done; exec sleep 1000"
        child = Child("store-0", "store-0", real_env(), Scripted(SERVE + beats), spec)
        clock, report, times = real_env().clock.monotonic, child._report, [0.0]

        def noted(line) -> None:
            times.append(clock())
            report(line)

        monkeypatch.setattr(child, "_report", noted)
        child.start()
        child.serve()
        await child.wait(child.ready)
        while "stands still" not in caplog.text:
            await asyncio.sleep(0.01)
        # It was silent from the last beat that came on, not from its start.
        assert clock() - times[-1] > 0.4
        await child.stop()

    run(test)


def test_heartbeat_does_not_wait_for_a_parent_that_reads_nothing():
    async def test():
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        with pytest.raises(BlockingIOError):
            while True:
                os.write(writer, b"x" * 512)
        os.set_blocking(writer, True)
        alive = asyncio.ensure_future(Parent(reader, writer).keep_alive(Health("store-0", real_env().clock)))
        await asyncio.sleep(0)  # it would never return
        alive.cancel()
        await asyncio.gather(alive, return_exceptions=True)
        os.close(reader)
        os.close(writer)

    run(test)
