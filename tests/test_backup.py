"""Backups of a real node, and the nodes that are made of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

import sarit
from benchmarks.peers.ports import free_ports
from tests import fork_server
from tests.backups import SEGMENTS, contents_of, interrupt, kept_chunk_bytes, objects_of, same_chunks, write_orders
from tests.contract.s3 import s3_server
from tests.guides.pages import blocks, run_shell
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT, RunningNode
from tests.test_processes import children

KEYS = 8
PADDING = "x" * 2000


def run(*words, code=0):
    done = fork_server.run([SARIT, *words], text=True, timeout=HANG_SECONDS, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stdout + done.stderr


def create(place, node_dir, *options):
    return json.loads(run("backup", "create", place, "--data-dir", node_dir, "--format", "json", *options))


class Load:
    """Writes events with keys, and transactions, until it ends; `acknowledged` and `committed` rise meanwhile."""

    def __init__(self, controller):
        self._controller = controller
        self._ends = threading.Event()
        self.acknowledged = self.committed = 0
        self._threads = [threading.Thread(target=work) for work in (self._write, self._commit)]
        self.failures = []

    def _write(self):
        try:
            with sarit.connect(self._controller) as client, client.writer("shop/orders") as writer:
                number = 0
                while not self._ends.is_set():
                    for _ in range(50):
                        writer.write(f"{number // KEYS} {PADDING}", key=f"k{number % KEYS}")
                        number += 1
                    writer.flush()
                    self.acknowledged = number
        except BaseException as error:
            self.failures.append(error)

    def _commit(self):
        try:
            with sarit.connect(self._controller) as client, client.transactional_writer("shop/sums") as writer:
                number = 0
                while not self._ends.is_set():
                    transaction = writer.begin()
                    for key in range(KEYS):
                        transaction.write(str(number), key=f"k{key}")
                    transaction.commit(wait=True)
                    number += 1
                    self.committed = number
        except BaseException as error:
            self.failures.append(error)

    def __enter__(self):
        with sarit.connect(self._controller) as client:
            client.create_scope("shop")
            client.create_stream("shop/orders", segments=4)
            client.create_stream("shop/sums", segments=4)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error):
        self._ends.set()
        for thread in self._threads:
            thread.join()
        assert not self.failures


def events_of(client, stream):
    return [event.decode() for event in client.reader(stream, end="tail")]


@pytest.mark.parametrize("options", [(), pytest.param(("--processes", "3"), marks=pytest.mark.long)])
def test_backup_under_load_restores_a_moment(tmp_path, options):
    """Everything acknowledged before is there; each key has a prefix of its events; no transaction is half there."""
    data, place, new = tmp_path / "data", tmp_path / "backups", tmp_path / "new"
    with RunningNode(data, *options) as node, Load(node.controller) as load:
        while load.acknowledged < 2000 or load.committed < 2:
            time.sleep(0.05)
        first = create(place, data)
        acknowledged, committed = load.acknowledged, load.committed
        while load.acknowledged < acknowledged + 2000 or load.committed < committed + 2:
            time.sleep(0.05)
        acknowledged, committed = load.acknowledged, load.committed
        second = create(place, data)
    assert second["copied_bytes"] < second["bytes"]
    assert [each["backup"] for each in json.loads(run("backup", "list", place, "--format", "json"))] == [1, 2]
    assert json.loads(run("backup", "verify", place, "--format", "json"))["damaged"] == []
    run("backup", "prune", place, "--keep", "1")
    assert json.loads(run("backup", "verify", place, "--format", "json"))["backups"] == 1
    restored = json.loads(run("restore", place, "--data-dir", new, "--format", "json"))
    assert restored["node"] != first["node"]
    assert "nothing is damaged" in run("verify", new)
    with RunningNode(new) as node, sarit.connect(node.controller) as client:
        orders = [event.split()[0] for event in events_of(client, "shop/orders")]
        assert len(orders) >= acknowledged
        # KEYS keys take turns: what is missing at the end of one key is in flight, at most a batch.
        numbers = sorted(map(int, orders))
        assert (
            numbers[: acknowledged - acknowledged % KEYS]
            == [n // KEYS for n in range(acknowledged)][: acknowledged - acknowledged % KEYS]
        )
        sums = [int(event) for event in events_of(client, "shop/sums")]
        counts = {number: sums.count(number) for number in set(sums)}
        # A commit that was under way at the moment is completed by the restored node.
        assert set(counts.values()) == {KEYS}
        assert len(counts) >= committed
        with client.writer("shop/orders") as writer:
            writer.write("more", key="k0")
        assert create(tmp_path / "others", new)["backup"] == 1
        assert "give each node a place of its own" in run("backup", "create", place, "--data-dir", new, code=1)
    assert "nothing is damaged" in run("verify", new)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A running node with 12 MB, and its directory."""
    data = tmp_path_factory.mktemp("node") / "data"
    with RunningNode(data) as node:
        with sarit.connect(node.controller) as client:
            client.create_scope("shop")
            client.create_stream("shop/orders", segments=4)
            client.stream("shop/orders").set_properties({"time-unit": "seconds"})
            with client.writer("shop/orders") as writer:
                for number in range(6000):
                    writer.write(f"{number} {PADDING}", key=str(number))
        yield node, data


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_backup_that_is_interrupted_is_none_and_the_next_goes_on(written, tmp_path, how):
    _, data = written
    place = tmp_path / "backups"
    process = fork_server.start([SARIT, "backup", "create", place, "--data-dir", data, "--rate", "3M"])
    end = time.monotonic() + HANG_SECONDS
    while not objects_of(place) and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(how)
    assert process.wait(HANG_SECONDS) == (-how if how == signal.SIGKILL else 130)
    there = objects_of(place)
    assert there
    assert run("backup", "list", place).strip() == "no backup is complete"
    assert (place / "backup/running.chunk").exists() == (how == signal.SIGKILL)
    if how == signal.SIGKILL:
        assert "runs, or was killed" in run("backup", "prune", place, "--keep", "1", code=1)
    done = create(place, data)
    kept = kept_chunk_bytes(place, there)
    assert kept > 0
    assert done["copied_bytes"] <= done["bytes"] - kept
    assert set(there) <= set(objects_of(place))
    run("restore", place, "--data-dir", tmp_path / "new")
    assert "nothing is damaged" in run("verify", tmp_path / "new")


@pytest.mark.long
def test_backup_of_several_processes_that_is_interrupted_goes_on_byte_by_byte(tmp_path):
    data, place, new = tmp_path / "data", tmp_path / "backups", tmp_path / "new"
    words = ["backup", "create", place, "--data-dir", data, "--rate", "2M"]
    with RunningNode(data, "--processes", "3") as node:
        write_orders(node.controller, 6000)
        # At the beginning; in the middle, twice; by Ctrl-C.
        interrupt(words, signal.SIGKILL, lambda: (data / "backup-work").exists())
        for how in (signal.SIGKILL, signal.SIGKILL, signal.SIGINT):
            there = objects_of(place) if place.exists() else []
            output = interrupt(words, how, lambda there=there: len(objects_of(place)) > len(there) + 1)
            assert set(there) < set(objects_of(place))
            assert run("backup", "list", place).strip() == "no backup is complete"
            if how == signal.SIGINT:
                assert not list((data / "backup-work").iterdir()), "Ctrl-C cleans up"
        assert "the same command goes on" in output
        assert not (place / "backup/running.chunk").exists()
        there = objects_of(place)
        done = create(place, data)
        kept = kept_chunk_bytes(place, there)
        assert kept > 0
        assert done["copied_bytes"] <= done["bytes"] - kept
        contents = contents_of(node.controller)
        assert not list((data / "backup-work").iterdir()), "copies of indexes are removed"
        assert not [path for path in (place / ".incoming").iterdir() if path.stat().st_size]
    run("restore", place, "--data-dir", new)
    assert same_chunks(data / "chunks", new / "chunks") >= SEGMENTS
    assert "nothing is damaged" in run("verify", new)
    with RunningNode(new, "--processes", "2") as node:
        assert contents_of(node.controller) == contents


@pytest.mark.long
def test_store_process_that_is_killed_meanwhile_makes_the_backup_try_again(tmp_path):
    data, place, new = tmp_path / "data", tmp_path / "backups", tmp_path / "new"
    with RunningNode(data, "--processes", "3") as node, Load(node.controller) as load:
        while load.acknowledged < 6000 or load.committed < 2:
            time.sleep(0.05)
        acknowledged, committed = load.acknowledged, load.committed
        backup = fork_server.start(
            [SARIT, "backup", "create", place, "--data-dir", data, "--rate", "4M", "--format", "json"],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        end = time.monotonic() + HANG_SECONDS
        while not objects_of(place) and time.monotonic() < end:
            time.sleep(0.02)
        os.kill(children(node)["store-1"], signal.SIGKILL)
        output, _ = backup.communicate(timeout=HANG_SECONDS)
        assert backup.returncode == 0, output
        assert node.log().count("a backup was taken") > 3
    run("restore", place, "--data-dir", new)
    assert "nothing is damaged" in run("verify", new)
    with RunningNode(new, "--processes", "2") as node, sarit.connect(node.controller) as client:
        orders = [event.split()[0] for event in events_of(client, "shop/orders")]
        assert len(orders) >= acknowledged
        sums = [int(event) for event in events_of(client, "shop/sums")]
        assert {sums.count(number) for number in set(sums)} == {KEYS}
        assert len(set(sums)) >= committed


@pytest.mark.long
def test_restore_that_is_killed_goes_on_and_no_node_starts_meanwhile(written, tmp_path):
    _, data = written
    place, new = tmp_path / "backups", tmp_path / "new"
    create(place, data)
    process = fork_server.start([SARIT, "restore", place, "--data-dir", new, "--rate", "3M"])
    end = time.monotonic() + HANG_SECONDS
    while not list(new.rglob("c0*/*/*.chunk")) and time.monotonic() < end:
        time.sleep(0.02)
    process.kill()
    process.wait()
    with pytest.raises(AssertionError, match="run `sarit restore` again"):
        RunningNode(new, "--accept-data-loss").start()
    assert "unfinished restore" in run("restore", place, "--data-dir", new, "--storage", f"file://{tmp_path}/s", code=1)
    run("restore", place, "--data-dir", new)
    assert "nothing is damaged" in run("verify", new)
    with RunningNode(new) as node, sarit.connect(node.controller) as client:
        assert sorted(int(event.split()[0]) for event in events_of(client, "shop/orders")) == list(range(6000))


def test_restored_streams_have_their_creation_ids_and_properties(written, tmp_path):
    node, data = written
    create(tmp_path / "backups", data)
    run("restore", tmp_path / "backups", "--data-dir", tmp_path / "new")
    with sarit.connect(node.controller) as client:
        before = client.stream("shop/orders").creation_id()
    with RunningNode(tmp_path / "new") as restored, sarit.connect(restored.controller) as client:
        stream = client.stream("shop/orders")
        assert before is not None
        assert (stream.creation_id(), stream.properties()) == (before, {"time-unit": "seconds"})


def test_damaged_piece_is_named_and_not_restored(written, tmp_path):
    _, data = written
    place, new = tmp_path / "backups", tmp_path / "new"
    create(place, data)
    victim = max((path for path in objects_of(place) if "chunks" in path.parts), key=lambda path: path.stat().st_size)
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    name = victim.relative_to(place).as_posix().removesuffix(".chunk")
    assert f"{name} of {place} is damaged" in run("backup", "verify", place, code=1)
    assert f"{name} of {place} is damaged" in run("restore", place, "--data-dir", new, code=1)
    assert not (new / "meta").exists()
    victim.unlink()
    assert f"{name} of {place} is missing" in run("backup", "verify", place, code=1)


def test_bad_places_and_directories_are_refused(written, tmp_path):
    _, data = written
    place = tmp_path / "backups"
    foreign = tmp_path / "foreign"
    (foreign / "x").mkdir(parents=True)
    (foreign / "x/y.chunk").write_text("of somebody else")
    assert "is not empty and no backup place" in run("backup", "create", foreign, "--data-dir", data, code=1)
    (tmp_path / "etc/passwd").mkdir(parents=True)
    for refused in (("create", tmp_path / "etc", "--data-dir", data), ("list", tmp_path / "etc")):
        assert "is not empty and not Sarit's (it holds passwd)" in run("backup", *refused, code=1)
    assert [path.name for path in (tmp_path / "etc").iterdir()] == ["passwd"]
    assert "must be elsewhere" in run("backup", "create", data / "backups", "--data-dir", data, code=1)
    assert "is not a data directory" in run("backup", "create", place, "--data-dir", tmp_path, code=1)
    stopped = tmp_path / "stopped"
    shutil.copytree(data, stopped, ignore=shutil.ignore_patterns("log", "chunks", "*.socket"))
    assert "no node that can be backed up runs" in run("backup", "create", place, "--data-dir", stopped, code=1)
    assert "there is no backup at" in run("backup", "list", place, code=1)
    assert "there is no backup at" in run("restore", place, "--data-dir", tmp_path / "new", code=1)
    assert "cannot be checked: there is no backup" in run("backup", "verify", place, code=2)
    create(place, data)
    assert "there is no backup 7" in run("restore", place, "--data-dir", tmp_path / "n", "--backup", "7", code=1)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    assert "is not empty and not Sarit's" in run("restore", place, "--data-dir", tmp_path / "full", code=1)
    assert "is not empty: restore into" in run("restore", place, "--data-dir", data, code=1)
    # The storage of the node that was backed up.
    storage = f"file://{data}/chunks"
    assert "belongs to the node" in run("restore", place, "--data-dir", tmp_path / "m", "--storage", storage, code=1)
    run("restore", place, "--data-dir", tmp_path / "m")


def test_second_backup_at_a_time_is_refused_and_a_silent_one_ends(written, tmp_path):
    _, data = written
    with socket.socket(socket.AF_UNIX) as first:
        first.connect(str(data / "backup.socket"))
        first.sendall(b'{"backup": 2}\n')
        assert b"containers" in first.recv(1000)
        assert "another backup of this node runs" in run("backup", "create", tmp_path / "b", "--data-dir", data, code=1)
    assert create(tmp_path / "b", data)["backup"] == 1
    with socket.socket(socket.AF_UNIX) as other:
        other.connect(str(data / "backup.socket"))
        other.sendall(b'{"backup": 99}\n')
        assert b"another version" in other.recv(1000)


def test_backup_that_ends_while_it_is_answered_is_no_internal_error(written, tmp_path):
    node, data = written

    def ended():
        return sum("backup has ended" in line or "a backup ended before" in line for line in node.log().splitlines())

    before, attempts = ended(), 40  # more lines like that are not logged
    for number in range(attempts):
        with socket.socket(socket.AF_UNIX) as other, suppress(OSError):
            other.connect(str(data / "backup.socket"))
            other.sendall(b'{"backup": 2}\n')
            if number % 2:
                other.recv(1000)
                other.sendall(b'{"prepare": true}\n{"copying": true}\n{"unknown": 1}\n')
    end = time.monotonic() + HANG_SECONDS
    while ended() < before + attempts and "CRITICAL" not in node.log() and time.monotonic() < end:
        time.sleep(0.02)
    assert "CRITICAL" not in node.log()
    assert create(tmp_path / "b", data)["backup"] == 1


@pytest.mark.long
def test_storage_and_backups_on_s3(tmp_path, monkeypatch):
    with s3_server(tmp_path / "s3") as server:
        for name, value in server.environ.items():
            monkeypatch.setenv(name, value)
        places = {name: f"s3://{server.bucket}/{name}" for name in ("node", "backups", "new")}
        data, new = tmp_path / "data", tmp_path / "new"
        with RunningNode(data, "--storage", places["node"]) as node, Load(node.controller) as load:
            while load.acknowledged < 2000:
                time.sleep(0.05)
            acknowledged = load.acknowledged
            create(places["backups"], data)
            second = create(places["backups"], data)
        assert second["copied_bytes"] < second["bytes"]
        assert json.loads(run("backup", "verify", places["backups"], "--format", "json"))["damaged"] == []
        restore = ("restore", places["backups"], "--data-dir", new, "--backup", "1", "--storage")
        assert "belongs to the node" in run(*restore, places["node"], code=1)
        run(*restore, places["new"])
        with RunningNode(new, "--storage", places["new"]) as node, sarit.connect(node.controller) as client:
            assert len(events_of(client, "shop/orders")) >= acknowledged
        assert "nothing is damaged" in run("verify", new)


@pytest.mark.long
def test_page_runs_as_it_is_pasted(tmp_path):
    page = (Path(__file__).parents[1] / "docs/operations/backup.md").read_text()
    (block,) = [block for block in blocks(page) if block.kind == "sh"]
    controller, store = free_ports(2)
    text = "trap 'kill $(jobs -p) || true' EXIT\n" + block.text.replace("19090", str(controller)).replace(
        "19345", str(store)
    )
    run_shell(replace(block, text=text), "", tmp_path)
