"""The audit log: cut, bounded, written off the loop, and honest about what it lost."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace

import pytest

from sarit.env.real import real_env
from sarit.security import audit
from sarit.security.audit import AuditLog
from sarit.security.limits import AUDIT_REPEATED_SECONDS, MAX_AUDIT_CHARACTERS, MAX_AUDIT_REASONS


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now * 1000)


class File:
    """Keeps lines; `fails`: the next writes raise."""

    def __init__(self) -> None:
        self.data = b""
        self.fails = 0
        self.threads: set[int] = set()
        self.begun = threading.Event()
        self.may_write = threading.Event()
        self.may_write.set()
        self.closed = False

    def append(self, lines: bytes) -> None:
        self.threads.add(threading.get_ident())
        self.begun.set()
        self.may_write.wait(30)
        if self.fails:
            self.fails -= 1
            raise OSError(28, "No space left on device")
        self.data += lines

    def close(self) -> None:
        self.closed = True

    def lines(self) -> list[dict]:
        return [json.loads(line) for line in self.data.splitlines()]


def _run(main, file=None, clock=None):
    file = file or File()

    async def inner():
        log = AuditLog(replace(real_env(), clock=clock or Clock()), file)
        try:
            await main(log)
        finally:
            await log.close()

    asyncio.run(inner())
    return file.lines()


def _note(log, who="", what="createScope", resource="", peer="1.1.1.1:1", allowed=False, why="the log-in is wrong"):
    log.note(who=who, what=what, resource=resource, peer=peer, allowed=allowed, why=why)


def test_fields_are_cut():
    async def main(log):
        _note(log, "w" * 80_000, "x" * 80_000, "\N{SNOWMAN}" * 80_000, "p" * 80_000, why="y" * 80_000)

    (line,) = _run(main)
    assert all(
        MAX_AUDIT_CHARACTERS - 1 <= len(line[name]) <= MAX_AUDIT_CHARACTERS
        for name in ("who", "what", "resource", "from", "why")
    )


def test_refusals_before_a_log_in_are_one_line_a_minute_for_each_host_and_reason():
    clock = Clock()

    async def main(log):
        for number in range(10_000):
            _note(log, what=f"call{number}", resource=f"r{number}", peer=f"1.1.1.1:{number}")
            _note(log, peer=f"2001:db8::{number:x}:1", why=f"too many: try again in {number} s")
        clock.now += AUDIT_REPEATED_SECONDS
        _note(log, peer="1.1.1.1:7")
        log.tick()

    lines = _run(main, clock=clock)
    assert [(line["from"], line.get("left_out")) for line in lines] == [
        ("1.1.1.1:0", None), ("2001:db8::0:1", None), ("1.1.1.1:7", 9999), ("2001:db8::0:1", 9999),
    ]  # fmt: skip


def test_what_was_left_out_is_said_at_the_stop():
    async def main(log):
        for _ in range(3):
            _note(log)

    assert [line.get("left_out") for line in _run(main)] == [None, 2]


def test_refusals_from_ever_new_hosts_are_bounded():
    clock = Clock()

    async def main(log):
        for number in range(10 * MAX_AUDIT_REASONS):
            _note(log, peer=f"10.{number // 65536}.{number // 256 % 256}.{number % 256}:1")
        _note(log, who="alice", resource="prn::/scope:a")  # is not left out for theirs
        clock.now += AUDIT_REPEATED_SECONDS
        log.tick()
        _note(log, peer="9.9.9.9:1")

    lines = _run(main, clock=clock)
    assert len(lines) == MAX_AUDIT_REASONS + 3
    assert lines[MAX_AUDIT_REASONS]["who"] == "alice"
    assert (lines[-2]["from"], lines[-2]["left_out"]) == ("various", 9 * MAX_AUDIT_REASONS)


def test_each_grant_has_a_line_and_each_resource_that_a_user_is_refused():
    async def main(log):
        for number in range(5):
            _note(log, who="alice", allowed=True, why="", resource="prn::/scope:a")
            _note(log, who="alice", resource=f"prn::/scope:{number % 2}")

    lines = _run(main)
    assert [line["resource"] for line in lines if line["allowed"]] == ["prn::/scope:a"] * 5
    refused = [(line["resource"], line.get("left_out")) for line in lines if not line["allowed"]]
    assert refused == [
        ("prn::/scope:0", None), ("prn::/scope:1", None), ("prn::/scope:0", 2), ("prn::/scope:1", 1),
    ]  # fmt: skip


def test_lines_are_written_on_a_thread():
    file = File()

    async def main(log):
        _note(log, allowed=True)

    _run(main, file)
    assert file.threads
    assert threading.get_ident() not in file.threads
    assert file.closed


def test_lines_that_find_no_place_are_counted_and_said(monkeypatch, caplog):
    monkeypatch.setattr(audit, "AUDIT_QUEUE_BYTES", 2000)
    file = File()

    async def main(log):
        file.may_write.clear()
        for number in range(1000):
            _note(log, who="alice", allowed=True, resource=str(number))
        file.may_write.set()

    lines = _run(main, file)
    kept = [line for line in lines if "resource" in line]
    assert 5 < len(kept) < 30
    assert sum(line.get("lost", 0) for line in lines) == 1000 - len(kept)
    assert [record.getMessage() for record in caplog.records if "faster" in record.getMessage()] != []
    assert len(caplog.records) == 1


def test_full_disk_is_named_once_a_minute_and_the_log_goes_on_with_a_count(caplog):
    file = File()
    file.fails = 3

    async def main(log):
        for number in range(4):
            _note(log, who="alice", allowed=True, resource=str(number))
            await log._worker.run(lambda: None)

    lines = _run(main, file)
    assert [(line.get("lost"), line.get("resource")) for line in lines] == [(3, None), (None, "3")]
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert (
        "the audit log cannot be written, 1 lines are lost: [Errno 28] No space left on device" in record.getMessage()
    )


def test_stop_writes_what_waits_and_does_not_wait_for_a_disk_that_stands_still(monkeypatch, caplog):
    monkeypatch.setattr(audit, "AUDIT_CLOSE_SECONDS", 0.05)
    file = File()

    async def main(log):
        file.may_write.clear()
        _note(log, who="alice", allowed=True)
        _note(log, who="alice", allowed=True)
        assert await asyncio.to_thread(file.begun.wait, 20)
        (thread,) = (each for each in threading.enumerate() if each.ident in file.threads)
        await log.close()
        _note(log, who="alice", allowed=True)
        file.may_write.set()
        await asyncio.to_thread(thread.join, 20)
        assert not thread.is_alive(), "the thread ends with its write"

    _run(main, file)
    assert ["stands still" in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.parametrize("size", [0, 255, 256])
def test_short_fields_are_whole(size):
    async def main(log):
        _note(log, who="w" * size)

    (line,) = _run(main)
    assert line["who"] == "w" * size
