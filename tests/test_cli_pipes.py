"""`read` and `write`, ended by Ctrl-C, closed pipes and full disks: what they say is what happened."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from sarit.process.limits import REPEATED_SIGNAL_SECONDS
from tests import fork_server
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT, RunningNode, hears_signals

EVENTS = 60_000


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("node") / "data") as node:
        events = "".join(f"event {number:06d}\n" for number in range(EVENTS)).encode()
        assert run(node, "write", "pipes/many", "--create", input=events).returncode == 0
        yield node


def environment(node):
    return {**os.environ, "SARIT_CONTROLLER": node.controller}


def run(node, *words, **options):
    return fork_server.run([SARIT, *words], timeout=HANG_SECONDS, check=False, env=environment(node), **options)


def begin(node, *words, **options):
    return fork_server.start([SARIT, *words], stderr=subprocess.PIPE, env=environment(node), **options)


def test_the_cut_of_an_interrupted_read_covers_what_was_printed(node):
    """Nobody takes the output: it stands still in the middle of it."""
    read = begin(node, "read", "pipes/many", "--print-cut", stdout=subprocess.PIPE)
    first = os.read(read.stdout.fileno(), 1)  # it prints
    read.send_signal(signal.SIGINT)
    read.send_signal(signal.SIGINT)
    cut = read.stderr.readline().decode().strip()  # it ends although nobody takes the rest
    printed = (first + read.stdout.read()).splitlines(keepends=True)
    assert read.wait(60) == 130
    whole = [line for line in printed if line.endswith(b"\n")]
    assert 0 < len(whole) < EVENTS
    rest = run(node, "read", "pipes/many", "--from", cut, "--limit", "1").stdout
    assert rest == f"event {len(whole):06d}\n".encode()


def test_read_ends_cleanly_on_closed_pipe_with_cut_of_printed_events(node):
    read = begin(node, "read", "pipes/many", "--print-cut", stdout=subprocess.PIPE)
    os.read(read.stdout.fileno(), 100)
    read.stdout.close()
    cut = read.stderr.read().decode().strip()
    assert read.wait(60) == 0
    rest = run(node, "read", "pipes/many", "--from", cut).stdout.splitlines()
    assert 0 < len(rest) < EVENTS
    assert rest[-1] == f"event {EVENTS - 1:06d}".encode()
    listing = begin(node, "scope", "list", stdout=subprocess.PIPE)
    listing.stdout.close()
    assert listing.wait(60) == 0
    assert listing.stderr.read() == b""


def test_full_disk_is_reported_with_cut(node):
    with open("/dev/full", "wb") as full:
        read = begin(node, "read", "pipes/many", "--print-cut", stdout=full)
        cut, error = read.stderr.read().decode().splitlines()
    assert read.wait(60) == 1
    assert os.strerror(errno.ENOSPC) in error
    assert run(node, "read", "pipes/many", "--from", cut, "--limit", "1").stdout == b"event 000000\n"


@pytest.mark.parametrize("form", ["text", "json"])
def test_non_blocking_pipes_lose_nothing(node, form):
    out, theirs = os.pipe()
    fcntl.fcntl(theirs, fcntl.F_SETFL, os.O_NONBLOCK)
    read = begin(node, "read", "pipes/many", "--format", form, stdout=theirs)
    os.close(theirs)
    with os.fdopen(out, "rb") as source:
        printed = source.read().splitlines()
    assert read.wait(60) == 0
    if form == "json":
        printed = [json.loads(line)["event"].encode() for line in printed]
    assert printed == [f"event {number:06d}".encode() for number in range(EVENTS)]
    theirs, into = os.pipe()
    fcntl.fcntl(theirs, fcntl.F_SETFL, os.O_NONBLOCK)
    write = begin(node, "write", f"pipes/{form}", "--create", stdin=theirs, stdout=subprocess.PIPE)
    os.close(theirs)
    with os.fdopen(into, "wb") as sink:
        for number in range(3):
            sink.write(b"line %d\n" % number)
            sink.flush()
        sink.write(b"x" * 200_000 + b"\n\nlast")
    assert write.stdout.read() == f"6 events written to pipes/{form}\n".encode()
    assert write.wait(60) == 0
    lines = run(node, "read", f"pipes/{form}").stdout.split(b"\n")
    assert lines == [b"line 0", b"line 1", b"line 2", b"x" * 200_000, b"", b"last", b""]


def test_write_failure_is_reported_when_output_is_closed(node):
    for form in ("text", "json"):
        write = begin(
            node, "write", "pipes/failed", "--create", "--key-separator", ":", "--format", form, "--input", "lines",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        write.stdout.close()
        write.stdin.write(b"key:event\n\xff:event\n")
        write.stdin.close()
        reported = write.stderr.read()
        assert write.wait(60) == 1
        assert reported == b"sarit: line 2: its key is not UTF-8; the lines before it are written\n"


def test_interrupted_write_reports_durable_events(node):
    for round_ in range(4):
        stream = f"pipes/interrupted{round_}"
        write = begin(
            node, "write", stream, "--create", "--format", "json", "--input", "lines",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        write.stdin.write(b"one\n")
        write.stdin.flush()
        while not run(node, "read", stream).stdout:
            pass  # until it has connected and written
        fed = subprocess.Popen(["yes"], stdout=write.stdin)
        write.send_signal(signal.SIGINT)  # a wrapper sends it twice: the next test, on a clock of its own
        reported = json.loads(write.stdout.read())
        assert write.wait(60) == 130
        write.stdin.close()
        fed.kill()
        fed.wait()
        assert reported == {"stream": stream, "events": len(run(node, "read", stream).stdout.splitlines())}


def test_late_forwarded_interrupt_does_not_change_exit_code():
    """A wrapper's second SIGINT came after the first was handled: the process died of it."""
    late = """
import os, signal
from sarit.cli.pipes import Interrupts
from sarit.process.limits import REPEATED_SIGNAL_SECONDS
class Clock:
    now = 100.0
    def monotonic(self):
        return self.now
clock = Clock()
with Interrupts() as interrupts:
    interrupts._clock = clock
    os.kill(os.getpid(), signal.SIGINT)
os.kill(os.getpid(), signal.SIGINT)
print("goes on")
clock.now += REPEATED_SIGNAL_SECONDS
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    print("heard")
with Interrupts():
    pass
print(signal.getsignal(signal.SIGINT) == interrupts._on_signal)
"""
    ended = subprocess.run(
        [sys.executable, "-c", late],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
        preexec_fn=hears_signals,
    )
    assert (ended.returncode, ended.stdout) == (0, "goes on\nheard\nTrue\n"), ended.stderr


def test_inherited_ignored_interrupt_stays_ignored(node):
    """A shell starts what runs in the background so, and `nohup` is used with it: Ctrl-C in the terminal is for
    others."""

    def ignores_interrupts():
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    write = subprocess.Popen(
        [SARIT, "write", "pipes/ignored", "--create"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=environment(node), preexec_fn=ignores_interrupts,
    )  # fmt: skip
    write.stdin.write(b"one\n")
    write.stdin.flush()
    while not run(node, "read", "pipes/ignored").stdout:
        pass  # until it has connected and written
    write.send_signal(signal.SIGINT)
    write.stdin.write(b"two\n")
    write.stdin.close()
    assert write.wait(60) == 0
    assert write.stdout.read() == b"2 events written to pipes/ignored\n"


@pytest.mark.parametrize("command", ["read", "write"])
def test_waiting_for_an_absent_node_is_said_and_ends_with_ctrl_c(tmp_path, command):
    with RunningNode(tmp_path / "node") as node:
        run(node, "write", "away/events", "--create", input=b"first\n")
        words = ("read", "away/events", "--follow") if command == "read" else ("write", "away/events")
        process = begin(node, *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if command == "read":
            assert process.stdout.readline() == b"first\n"
        else:
            process.stdin.write(b"second\n")
            process.stdin.flush()
            while len(run(node, "read", "away/events").stdout.splitlines()) < 2:
                pass  # until it has connected and written
        node.kill()
        if command == "write":
            process.stdin.write(b"third\n")
            process.stdin.flush()
        line = process.stderr.readline().decode()
        assert line.startswith(f"sarit: waiting for a node at {node.controller}; gives up in ")
        assert line.endswith("; Ctrl-C ends\n")
        for _ in range(2):  # the second one does not wait for what is not acknowledged
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(2 * REPEATED_SIGNAL_SECONDS)
        assert process.wait(60) == 130
