"""A process that has confined itself can compute, and nothing else."""

from __future__ import annotations

import json
import platform
import signal
import struct
import subprocess
import sys

import pytest

from sarit.env.confinement import ARCHITECTURES, program
from tests.limits import HANG_SECONDS

CONFINES = """
import json, os, resource, signal, socket, sys, threading
from sarit.env.confinement import confine, end_with_parent, limit_memory, yield_to_others

end_with_parent()
yield_to_others()
limit_memory(256 << 20)
parent, found = os.getppid(), {}
found["guard"] = confine(3, 5)

def refused(name, attempt):
    try:
        attempt()
        found[name] = "done"
    except (OSError, ValueError, MemoryError) as error:
        found[name] = type(error).__name__

refused("reads a file", lambda: open("/etc/passwd"))
refused("reads of itself", lambda: open("/proc/self/environ"))
refused("writes a file", lambda: open(sys.argv[1], "w"))
refused("removes a file", lambda: os.unlink(sys.argv[1]))
refused("lists a directory", lambda: os.listdir("/"))
refused("looks at a file", lambda: os.stat("/"))
refused("connects", lambda: socket.socket())
refused("makes a pipe", lambda: os.pipe())
refused("forks", lambda: os.fork())
refused("starts a program", lambda: os.execv("/bin/true", ["true"]))
refused("signals another", lambda: os.kill(parent, 0))
refused("raises a limit", lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 62, 1 << 62)))
refused("takes memory", lambda: bytearray(512 << 20))
thread = threading.Thread(target=lambda: refused("computes", lambda: bytearray(1 << 20)))
thread.start()
thread.join()
os.write(1, json.dumps(found).encode())
"""
ALLOWED = {"computes", "guard"}


def confined(path):
    return subprocess.run(
        [sys.executable, "-c", CONFINES, str(path)], input=b"", capture_output=True, check=False, timeout=HANG_SECONDS
    )  # fmt: skip


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ARCHITECTURES,
    reason="system calls are filtered on Linux alone",
)
def test_nothing_is_reached(tmp_path):
    kept = tmp_path / "kept"
    kept.write_text("as it was")
    done = confined(kept)
    found = json.loads(done.stdout)
    assert found["guard"] == "system calls"
    assert found["computes"] == "done"
    assert {name: how for name, how in found.items() if name not in ALLOWED and how == "done"} == {}
    assert len(found) == 15
    assert kept.read_text() == "as it was"


def test_processor_time_ends():
    done = subprocess.run(
        [sys.executable, "-c", "from sarit.env.confinement import confine\nconfine(3, 0)\nwhile True: pass"],
        stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=HANG_SECONDS,
    )  # fmt: skip
    assert done.returncode == -signal.SIGXCPU


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_filter_allows_what_it_lists(name):
    """The filter is run by a small machine of its own: each call with its arguments is allowed or refused."""
    found = ARCHITECTURES[name]
    lines = list(struct.iter_unpack("=HBBI", program(found, 4711)))

    def answer(number, *arguments, audit=found.audit):
        words = {0: number, 4: audit, **{16 + 8 * place: value for place, value in enumerate(arguments)}}
        at = held = 0
        while True:
            code, yes, no, value = lines[at]
            at += 1
            if code == 0x20:
                held = words[value]
            elif code == 0x06:
                return value
            else:
                holds = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
                at += yes if holds else no

    allowed, refused = 0x7FFF0000, 0x00050001
    assert {answer(number) for number in found.allowed.values()} == {allowed}
    assert answer(found.allowed["read"], audit=found.audit ^ 1) == refused
    assert answer(found.allowed["read"] | 0x40000000) == refused
    assert answer(found.clone, 0x00010000) == allowed
    assert answer(found.clone, 0x11) == refused
    assert answer(found.clone3) == 0x00050026
    assert answer(found.mmap, 0, 0, 3) == allowed
    assert answer(found.mmap, 0, 0, 7) == answer(found.mprotect, 0, 0, 5) == refused
    assert answer(found.tgkill, 4711) == allowed
    assert answer(found.tgkill, 1) == refused
    listed = {*found.allowed.values(), found.clone, found.clone3, found.mmap, found.mprotect, found.tgkill}
    assert {answer(number, 1, 1, 1) for number in range(500) if number not in listed} == {refused}
