"""Health of real nodes, as probes see it."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest

import sarit
from benchmarks.peers.ports import free_ports
from tests import fork_server
from tests.faults.damaged_chunks import DAMAGED, damage, write_both
from tests.faults.test_failed_container import holds_tables
from tests.faults.test_full_disk import small_disk  # noqa: F401 - a fixture
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT, RunningNode
from tests.test_processes import children


def get(address, path):
    connection = http.client.HTTPConnection(address, timeout=HANG_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read().decode()
        return answer.status, json.loads(body) if body.startswith("{") else body
    finally:
        connection.close()


def test_node_that_serves_is_alive_and_ready(tmp_path):
    with RunningNode(tmp_path / "data", "--http-port", "0") as node:
        assert get(node.http, "/livez") == (200, "ok\n")
        assert get(node.http, "/ping") == (200, "ok\n")
        assert get(node.http, "/readyz") == (200, {"status": "ready", "reasons": []})
        status, found = get(node.http, "/healthz")
        assert (status, found["state"], found["ready"]) == (200, "ready", True)
        assert [entry["state"] for entry in found["containers"]] == ["serving"] * 4
        assert get(node.http, "/nothing")[0] == 404


def test_http_port_that_is_taken_is_named_with_its_option(tmp_path):
    with RunningNode(tmp_path / "data", "--http-port", "0") as node:
        port = node.http.rpartition(":")[2]
        command = [SARIT, "standalone", "--data-dir", str(tmp_path / "other"), "--controller-port", "0"]
        command += ["--store-port", "0", "--http-port", port]
        done = fork_server.run(command, text=True, timeout=HANG_SECONDS, check=False)
        assert done.returncode == 1
        assert f"port {port} of 127.0.0.1 is taken (--http-port)" in done.stderr


def codes(found):
    return {reason["code"] for reason in found["reasons"]}


def until(address, holds):
    """Poll /readyz until it is so; its status and what it says."""
    end = time.monotonic() + HANG_SECONDS
    while True:
        status, found = get(address, "/readyz")
        if holds(status, found):
            return status, found
        assert time.monotonic() < end, found
        time.sleep(0.05)


def with_code(code, status):
    return lambda got, found: got == status and (code is None or code in codes(found))


class Probe:
    """Asks a node that starts, over and over, and notes what it says."""

    def __init__(self, address) -> None:
        self.said: set[str] = set()
        self.parts: set[str] = set()
        self.progress: set[str] = set()
        self._address = address
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                assert get(self._address, "/livez") == (200, "ok\n")
                status, found = get(self._address, "/readyz")
                assert status == (503 if found["reasons"] else 200)
                self.said |= codes(found)
                self.parts |= {reason["part"] for reason in found["reasons"]}
                containers = get(self._address, "/healthz")[1].get("containers", ())
                self.progress |= {container["progress"] for container in containers}
            except OSError:  # it does not listen yet
                time.sleep(0.002)

    def end(self) -> None:
        self._ended.set()
        self._thread.join(HANG_SECONDS)


def hold_stores(node, until) -> None:
    """Stop each store that starts `until` it is so: nothing is seen of one that is ready before anybody has asked."""
    held: set[int] = set()
    end = time.monotonic() + HANG_SECONDS
    while not until():
        assert time.monotonic() < end, "stores that start are not named"
        with suppress(AssertionError, OSError):  # the node is about to start
            for pid in {pid for name, pid in children(node).items() if name != "controller"} - held:
                os.kill(pid, signal.SIGSTOP)
                held.add(pid)
        time.sleep(0.002)
    for pid in held:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


# Of one process, and of several, whose controller answers for all.
PROCESSES = pytest.mark.parametrize("processes", [(), pytest.param(("--processes", "2"), marks=pytest.mark.long)])


def test_port_of_several_processes_answers_from_the_start_and_names_a_store_that_is_away(tmp_path):
    port, *_ = free_ports(3)  # each store has one behind that of the controller
    node = RunningNode(tmp_path / "data", "--http-port", str(port), "--processes", "2", "--containers", "2")
    probe = Probe(f"127.0.0.1:{port}")
    parts = {"store-0", "store-1", "controller"}
    try:
        with ThreadPoolExecutor(1) as thread:
            held = thread.submit(hold_stores, node, lambda: parts <= probe.parts)
            node.start()
            held.result()
        assert get(node.http, "/readyz")[0] == 200
    finally:
        probe.end()
    with ExitStack() as stack:
        stack.callback(node.kill)
        assert get(node.http, "/healthz")[1]["name"] == "controller"
        os.kill(children(node)["store-1"], signal.SIGKILL)
        _, found = until(node.http, with_code("starting", 503))
        assert [(reason["part"], reason["text"]) for reason in found["reasons"]] == [
            ("store-1", "it was ended by signal 9 (SIGKILL); it starts again in 0.1 s")
        ]
        until(node.http, with_code(None, 200))
        assert node.stop() == 0


@pytest.mark.long
def test_store_that_stands_still_takes_its_node_out_of_service(tmp_path):
    with RunningNode(tmp_path / "data", "--http-port", "0", "--processes", "2", "--containers", "2") as node:
        os.kill(children(node)["store-0"], signal.SIGSTOP)
        _, found = until(node.http, with_code("stands-still", 503))
        assert [reason["part"] for reason in found["reasons"]] == ["store-0"]
        until(node.http, with_code(None, 200))  # it was killed, and its successor serves


@PROCESSES
def test_node_that_starts_says_what_it_does_and_what_it_recovers(tmp_path, processes):
    port, *_ = free_ports(3)  # each store has one behind that of the controller
    node = RunningNode(tmp_path / "data", "--http-port", str(port), "--containers", "16", *processes)
    with node, sarit.connect(node.controller) as client:
        client.create_scope("s")
        client.create_stream("s/t", segments=8)
        with client.writer("s/t") as writer:
            for _ in range(300):
                writer.write(b"x" * 20_000)
        node.kill()
        probe = Probe(f"127.0.0.1:{port}")
        try:
            node.start()
            until(node.http, with_code(None, 200))
        finally:
            probe.end()
    assert {"starting", "recovering"} <= probe.said
    if processes:
        assert any(part.startswith(("store-0, container ", "store-1, container ")) for part in probe.parts), probe.parts
    else:
        assert any("fence the log" in text or "begin the epoch" in text for text in probe.progress), probe.progress


@PROCESSES
def test_full_disk_takes_the_node_out_of_service_until_there_is_space(small_disk, processes):  # noqa: F811
    with RunningNode(small_disk / "data", "--containers", "2", "--http-port", "0", *processes) as node:
        assert get(node.http, "/readyz")[0] == 200
        with (small_disk / "other").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(small_disk).free - (10 << 20))
        _, found = until(node.http, with_code("disk-full", 503))
        assert "the reserve is" in found["reasons"][0]["text"]
        assert get(node.http, "/readyz?exclude=disk-full")[0] == 200
        assert get(node.http, "/livez")[0] == 200
        (small_disk / "other").unlink()
        until(node.http, with_code(None, 200))


@PROCESSES
def test_storage_that_is_away_is_reported_and_so_is_a_stop_that_flushes(tmp_path, processes):
    chunks = tmp_path / "chunks"
    options = ("--containers", "2" if processes else "1", "--http-port", "0", *processes)
    node = RunningNode(tmp_path / "data", "--storage", f"file://{chunks}", *options)
    with node, sarit.connect(node.controller) as client:
        client.create_scope("s")
        client.create_stream("s/t")
        away = chunks.rename(tmp_path / "away")
        chunks.write_text("in its place")  # the superuser may write to any directory
        with client.writer("s/t") as writer:
            writer.write(b"x" * 1_000_000)
        end = time.monotonic() + HANG_SECONDS
        while "storage-away" not in codes(found := get(node.http, "/healthz")[1]):
            assert time.monotonic() < end, found
            time.sleep(0.05)
        # It serves from its log: a short absence is no reason to restart it or to send its clients elsewhere.
        assert get(node.http, "/readyz")[0] == 200
        chunks.unlink()
        away.rename(chunks)
        while "storage-away" in codes(found := get(node.http, "/healthz")[1]):
            assert time.monotonic() < end, found
            time.sleep(0.05)
        chunks.rename(away)
        chunks.write_text("in its place")
        with client.writer("s/t") as writer:
            writer.write(b"x" * 1_000_000)
        os.kill(node.pid, signal.SIGTERM)
        until(node.http, with_code("stopping", 503))
        assert get(node.http, "/livez")[0] == 200
        chunks.unlink()
        away.rename(chunks)
    assert "Traceback" not in node.log()


@PROCESSES
def test_damaged_container_is_reported_and_may_be_left_out(tmp_path, processes):
    options = ("--containers", "8", "--http-port", "0", *processes)
    with RunningNode(tmp_path / "data", *options):
        pass
    lost = next(number for number in range(8) if not holds_tables(tmp_path / "data", number))
    shutil.move(tmp_path / "data" / "log" / str(lost), tmp_path / "log")
    with RunningNode(tmp_path / "data", *options, "--allow-damaged") as node:
        status, found = get(node.http, "/readyz")
        part = f"store-{lost % 2}, container {lost}" if processes else f"container {lost}"
        assert (status, [reason["part"] for reason in found["reasons"]]) == (503, [part])
        assert found["reasons"][0]["code"] == "damaged"
        assert "durable log" in found["reasons"][0]["text"]
        assert get(node.http, "/readyz?exclude=damaged")[0] == 200


def test_damaged_chunk_is_reported_and_the_node_stays_in_service(tmp_path):
    node = RunningNode(tmp_path / "data", "--containers", "1", "--http-port", "0").start()
    write_both(node)
    assert node.stop() == 0
    chunk = damage(tmp_path / "data", "flipped").name.removesuffix(".chunk")
    with node, sarit.connect(node.controller) as client:
        with pytest.raises(sarit.Corrupt):
            list(client.reader(DAMAGED, end="tail"))
        assert get(node.http, "/readyz")[0] == 200
        (reason,) = get(node.http, "/healthz")[1]["reasons"]
        assert (reason["code"], reason["part"]) == ("damaged-pieces", "container 0")
        assert chunk in reason["text"]


@pytest.mark.long
@pytest.mark.parametrize("processes", [(), ("--processes", "2")])
def test_restarts_by_probes_alone_lose_no_request(tmp_path, processes):
    port, *_ = free_ports(3)
    node = RunningNode(tmp_path / "data", "--http-port", str(port), *processes)
    errors: list[Exception] = []
    written = calls = 0
    ended = threading.Event()

    def write(client) -> None:
        nonlocal written
        try:
            with client.writer("s/t") as writer:
                while not ended.wait(0.002):
                    writer.write(b"%d" % written, key="k")
                    written += 1
                writer.flush()
        except Exception as error:
            errors.append(error)

    def call(client) -> None:
        nonlocal calls
        try:
            while not ended.wait(0.05):
                client.stream_info("s/t")
                calls += 1
        except Exception as error:
            errors.append(error)

    with node, sarit.connect(node.controller, retry_timeout=HANG_SECONDS) as client:
        client.create_scope("s")
        client.create_stream("s/t", segments=2)
        threads = [threading.Thread(target=work, args=(client,)) for work in (write, call)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            before = written, calls
            while written < before[0] + 50 or calls < before[1] + 2:
                assert not errors, errors
                time.sleep(0.01)
            assert node.stop() == 0
            node.start()
            until(node.http, with_code(None, 200))
        ended.set()
        for thread in threads:
            thread.join(HANG_SECONDS)
        assert not errors, errors
        assert [int(event) for event in client.reader("s/t", end="tail")] == list(range(written))
    assert "Traceback" not in node.log()
