"""`sarit doctor --log` beside real bookies: all of them, too few of them, and none."""

from __future__ import annotations

import json
import subprocess
import time

import pytest

from tests.limits import HANG_SECONDS
from tests.nodes import SARIT

pytestmark = [pytest.mark.long, pytest.mark.timeout(2 * HANG_SECONDS)]


def doctor(url, tmp_path):
    """The finding about BookKeeper."""
    command = [SARIT, "doctor", "--json", "--data-dir", tmp_path, "--controller-port", "0", "--store-port", "0"]
    command += ["--log", url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG_SECONDS)
    assert done.stdout, done.stderr
    (found,) = [found for found in json.loads(done.stdout) if found["check"] == "BookKeeper"]
    return found


def until(level, url, tmp_path):
    """A dead bookie is registered until its session has ended."""
    end = time.monotonic() + HANG_SECONDS
    while (found := doctor(url, tmp_path))["level"] != level:
        assert time.monotonic() < end, found
        time.sleep(0.5)
    return found


def test_doctor_counts_bookies(bookkeeper, tmp_path):
    url = f"bookkeeper://{bookkeeper.zookeeper.hosts}/ledgers?e=3&w=3&a=2"
    found = until("OK", url, tmp_path)
    assert found["text"].startswith(f"{len(bookkeeper.bookies)} bookies can be written")
    spare = bookkeeper.bookies[2:]
    try:
        for bookie in spare:
            bookie.kill()
        found = until("WARN", url, tmp_path)
        assert "a ledger cannot have its whole ensemble" in found["advice"]
        bookkeeper.bookies[1].kill()
        found = until("FAIL", url, tmp_path)
        assert "an acknowledgement needs 2" in found["text"]
    finally:
        for bookie in bookkeeper.bookies[1:]:
            bookie.start().wait()
    until("OK", url, tmp_path)


def test_doctor_says_that_bookkeeper_is_not_there(bookkeeper, tmp_path):
    found = doctor(f"bookkeeper://{bookkeeper.zookeeper.hosts}/nowhere?e=3&w=3&a=2", tmp_path)
    assert found["level"] == "FAIL"
    assert found["advice"] == "start ZooKeeper and BookKeeper, or correct --log"
