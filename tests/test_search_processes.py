"""The index of a stream of a node in several processes: a search finds each event once, whichever process is killed."""

from __future__ import annotations

import os
import signal
import time

import sarit
from sarit.search.settings import SEARCH_JOB, SEARCH_KIND, SearchSettings
from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode
from tests.test_processes import children

SETTINGS = SearchSettings(interval_seconds=1).encode()


def write(client, first: int, count: int) -> None:
    with client.writer("s/t") as writer:
        for number in range(first, first + count):
            writer.write(b"payment %d failed" % number, f"key {number}")


def found(client, query: str, total: int) -> list[bytes]:
    """Wait until a search finds so many events, or more, and return them all."""
    end = time.monotonic() + HANG_SECONDS
    while (result := client.search("s/t", query, limit=100)).total < total:
        assert time.monotonic() < end, result
        time.sleep(0.1)
    events = [hit.event for hit in result.hits]
    while result.page:
        result = client.search("s/t", query, limit=100, page=result.page)
        events += [hit.event for hit in result.hits]
    return events


def test_search_finds_each_event_once_whichever_process_is_killed(tmp_path) -> None:
    with (
        RunningNode(tmp_path / "data", "--processes", "2", "--containers", "2") as node,
        sarit.connect(node.controller) as client,
    ):
        client.create_scope("s")
        client.create_stream("s/t", segments=2)
        client.stream("s/t").create_job(SEARCH_KIND, SETTINGS, SEARCH_JOB)
        count = 0
        for process in ("controller", "store 0", "controller"):
            write(client, count, 100)
            count += 100
            found(client, "payment", count - 60)  # so that some of them are not in a commit yet
            named = children(node)
            os.kill(named[next(name for name in named if name.startswith(process[:5]))], signal.SIGKILL)
        write(client, count, 10)
        events = found(client, "payment", count + 10)
        assert len(events) == count + 10
        assert sorted(events) == sorted(b"payment %d failed" % number for number in range(count + 10))
        assert found(client, '"payment 7 failed"', 1) == [b"payment 7 failed"]
