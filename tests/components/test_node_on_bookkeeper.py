"""A node whose durable log is on real bookies."""

from __future__ import annotations

import json
import subprocess

import pytest

import sarit
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT, RunningNode

pytestmark = [pytest.mark.long, pytest.mark.timeout(2 * HANG_SECONDS)]

EVENTS = 2000


def url(bookkeeper, query: str = "e=3&w=3&a=2") -> str:
    return f"bookkeeper://{bookkeeper.zookeeper.hosts}/ledgers?{query}"


def write(node: RunningNode, events: list[str]) -> None:
    with sarit.connect(node.controller) as client, client.writer("s/events") as writer:
        for event in events:
            writer.write(event.encode(), key=event.split()[0])


def read(node: RunningNode) -> list[str]:
    with sarit.connect(node.controller) as client:
        return [event.decode() for event in client.reader("s/events", end="tail")]


@pytest.mark.parametrize("processes", ["1", "2"])
def test_killed_node_reads_everything_from_its_log(bookkeeper, tmp_path, processes):
    directory = tmp_path / "data"
    node = RunningNode(directory, "--log", url(bookkeeper), "--containers", "2", "--processes", processes)
    node.start()
    with sarit.connect(node.controller) as client:
        client.create_scope("s")
        client.create_stream("s/events", segments=2)
    events = [f"key{number % 7} {number}" for number in range(EVENTS)]
    write(node, events[: EVENTS // 2])
    node.kill()
    # One bookie of three is away: the quorum is two.
    bookkeeper.bookies[0].kill()
    try:
        node.start()
        write(node, events[EVENTS // 2 :])
        node.kill()
    finally:
        bookkeeper.bookies[0].start().wait()
    node.start()
    assert sorted(read(node)) == sorted(events)
    assert node.stop() == 0
    assert not (directory / "log").exists()  # nothing of the log is on the node's disk
    assert json.loads((directory / "meta").read_text())["log"] == "bookkeeper:/ledgers"


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("{hosts}/ledgers?e=3&w=3&a=1", "needed is a > w/2"),
        ("{hosts}/ledgers?e=2&w=3&a=2", "needed is 1 <= a <= w <= e"),
        ("{hosts}/ledgers?x=3", "known are e, w and a"),
        ("127.0.0.1:1/ledgers", "no ZooKeeper answers at 127.0.0.1:1"),
        ("{hosts}/nothing", "no BookKeeper is set up there"),
        ("{hosts}/ledgers?e=9&w=9&a=5", "3 bookies are registered as writable"),
    ],
)
def test_wrong_place_is_refused_with_the_reason(bookkeeper, tmp_path, place, reason):
    log = "bookkeeper://" + place.format(hosts=bookkeeper.zookeeper.hosts)
    done = subprocess.run(
        [SARIT, "standalone", "--data-dir", str(tmp_path / "data"), "--log", log, "--controller-port", "0",
         "--store-port", "0"],
        capture_output=True, text=True, timeout=HANG_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
