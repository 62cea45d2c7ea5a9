"""Two processes with our client and one with the official client, on one stream that scales: they agree on all."""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import count

import pytest

import sarit
from tests.interop.mixed import SECONDS, events_of
from tests.interop.running import ROOT
from tests.nodes import RunningNode

PROCESSES = {"ours-one": "sarit", "ours-two": "sarit", "official": "official"}
COUNTS = (5, 2, 4)


@pytest.fixture(scope="module")
def endpoint(request, tmp_path_factory):
    given = request.config.getoption("--interop-endpoint", default=None)
    if given is not None:
        yield given
        return
    with RunningNode(tmp_path_factory.mktemp("mixed") / "data") as node:
        yield node.controller


def start(kind, endpoint, stream, name):
    command = [sys.executable, "-m", "tests.interop.mixed", kind, endpoint, stream, name, str(len(PROCESSES))]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_both_clients_read_the_same_events(endpoint):
    with sarit.connect(endpoint) as client:
        scope = next(filter(client.create_scope, map("mixed-{}".format, count())))  # a given node may have some
        client.create_stream(f"{scope}/all")
        running = {name: start(kind, endpoint, f"{scope}/all", name) for name, kind in PROCESSES.items()}
        for wanted in COUNTS:
            time.sleep(0.5)  # so that scales happen during writes; not required for the test
            client.stream(f"{scope}/all").scale(wanted)
        read = {}
        for name, process in running.items():
            out, error = process.communicate(timeout=SECONDS + 20)
            assert out.endswith("done\n"), (name, error[-3000:])
            read[name] = [line.split(" ", 2) for line in out.splitlines()[:-1]]
        stored = [(str(segment), str(offset), event) for event, segment, offset in rows(client, f"{scope}/all")]
    everything = sorted(event for name in PROCESSES for event in events_of(name))
    assert sorted(event for _, _, event in stored) == everything
    order = by_key(event for _, _, event in stored)
    for name, lines in read.items():
        assert by_key(event for _, _, event in lines) == order, name
        if PROCESSES[name] == "sarit":
            assert sorted(map(tuple, lines)) == sorted(stored), name


def rows(client, stream):
    for batch in client.reader(stream, end="tail").arrow_batches():
        for event, segment, offset in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield event.decode(), segment, offset


def by_key(events):
    """The numbers of each key in the order they came: each of them once, rising."""
    found = {}
    for event in events:
        key, _, number = event.partition(":")
        found.setdefault(key, []).append(int(number))
    assert all(numbers == sorted(set(numbers)) for numbers in found.values())
    return found
