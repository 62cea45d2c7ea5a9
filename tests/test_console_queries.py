"""Queries of the console on real nodes: in one process and in several, and what is left of them when a node ends."""

from __future__ import annotations

import json
import platform
import threading
import time
from pathlib import Path

import httpx
import pytest

import sarit
from sarit.env.confinement import ARCHITECTURES
from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode

FOR_EVER = "SELECT count(*) FROM range(1000000) AS a, range(1000000) AS b"
WAYS = {"one process": (), "several processes": ("--processes", "2", "--containers", "2")}


def query(node: RunningNode, sql: str) -> list[dict]:
    """The lines of an answer."""
    with httpx.Client(base_url=f"http://{node.http}", timeout=HANG_SECONDS) as http:
        token = http.get("/console/api/session").json()["token"]
        found = http.post("/console/api/query", json={"sql": sql}, headers={"X-Sarit-Token": token})
        assert found.status_code == 200, found.text
        return [json.loads(line) for line in found.text.splitlines()]


def processes_of_queries(node: RunningNode) -> list[int]:
    """The processes of queries whose parent, or its parent, is the node."""
    parents: dict[int, int] = {}
    queries = []
    for place in Path("/proc").iterdir():
        try:
            pid = int(place.name)
            parents[pid] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if b"sarit.sql.child" in (place / "cmdline").read_bytes():
                queries.append(pid)
        except (ValueError, OSError):
            continue
    return [pid for pid in queries if node.pid in (parents[pid], parents.get(parents[pid]))]


def wait_until(holds) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(("options", "ends"), [(WAYS["one process"], "kill"), (WAYS["several processes"], "stop")])
def test_nodes_answer_queries_and_leave_nothing_behind(tmp_path, options, ends):
    node = RunningNode(tmp_path / "data", "--http-port", "0", *options).start()
    try:
        with sarit.connect(node.controller) as client:
            client.create_scope("shop")
            client.create_stream("shop/orders", segments=2)
            with client.writer("shop/orders") as writer:
                for number in range(100):
                    writer.write(b"%d" % number, key=str(number))
        answer = query(node, "SELECT count(*), count(DISTINCT sarit.segment) FROM shop.orders")
        assert [line["rows"] for line in answer if "rows" in line] == [[[100, 2]]], answer
        assert processes_of_queries(node) == []

        def ask() -> None:
            with pytest.raises(httpx.HTTPError):
                query(node, FOR_EVER)

        asking = threading.Thread(target=ask)
        asking.start()
        wait_until(lambda: processes_of_queries(node))
        (pid,) = processes_of_queries(node)
        if platform.machine() in ARCHITECTURES:
            # The query runs, so its process has confined itself: a filter of system calls (2), for good.
            status = Path(f"/proc/{pid}/status")
            wait_until(lambda: "Seccomp:\t2\n" in status.read_text())
            assert "NoNewPrivs:\t1\n" in status.read_text()
    finally:
        began = time.monotonic()
        getattr(node, ends)()
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert time.monotonic() - began < HANG_SECONDS
    asking.join()
