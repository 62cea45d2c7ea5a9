"""A container that cannot be opened: its segments answer with the reason at once, the others are served."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

import sarit
from sarit.controller.keys import SCOPES_TABLE
from sarit.core.errors import Corrupt
from sarit.store.store import container_of
from tests import fork_server
from tests.limits import HANG_SECONDS, patient
from tests.nodes import SARIT, RunningNode

if TYPE_CHECKING:
    from pathlib import Path

CONTAINERS = 16  # so many that one of the streams is in a container without tables of the controller


def test_segments_of_failed_container_fail_with_the_reason(tmp_path) -> None:
    options = ("--containers", str(CONTAINERS))
    with RunningNode(tmp_path / "data", *options) as node, sarit.connect(node.controller) as client:
        client.create_scope("shop")
        for number in range(12):
            client.create_stream(f"shop/s{number}")
            with client.writer(f"shop/s{number}") as writer:
                writer.write(f"event of {number}")
    homes = {number: container_of(f"shop/s{number}/0.#epoch.0", CONTAINERS) for number in range(12)}
    tables = {number for number in range(CONTAINERS) if holds_tables(tmp_path / "data", number)}
    lost = next(number for number, home in homes.items() if home not in tables)
    shutil.move(tmp_path / "data" / "log" / str(homes[lost]), tmp_path / "log")
    refused = RunningNode(tmp_path / "data", *options)
    with pytest.raises(AssertionError):
        refused.start()
    assert f"the durable log of container {homes[lost]} is missing" in refused.log()
    assert "Traceback" not in refused.log()
    with RunningNode(tmp_path / "data", *options, "--allow-damaged") as node, sarit.connect(node.controller) as client:
        begun = time.monotonic()
        with pytest.raises(Corrupt, match=f"container {homes[lost]} failed: the durable log of container"):
            list(client.reader(f"shop/s{lost}", end="tail"))
        with pytest.raises(Corrupt, match=f"container {homes[lost]} failed"), client.writer(f"shop/s{lost}") as writer:
            writer.write("more")
            writer.flush()
        assert time.monotonic() - begun < patient(20)
        for number, home in homes.items():
            if home != homes[lost]:
                found = [event.decode() for event in client.reader(f"shop/s{number}", end="tail")]
                assert found == [f"event of {number}"]
    shutil.move(tmp_path / "log", tmp_path / "data" / "log" / str(homes[lost]))
    with RunningNode(tmp_path / "data", *options) as node, sarit.connect(node.controller) as client:
        assert [event.decode() for event in client.reader(f"shop/s{lost}", end="tail")] == [f"event of {lost}"]


def test_node_without_the_tables_of_the_controller_starts_and_says_why_no_client_connects(tmp_path) -> None:
    with RunningNode(tmp_path / "data") as node, sarit.connect(node.controller) as client:
        client.create_scope("shop")
    lost = container_of(SCOPES_TABLE, 4)
    assert holds_tables(tmp_path / "data", lost)
    shutil.move(tmp_path / "data" / "log" / str(lost), tmp_path / "log")
    with RunningNode(tmp_path / "data", "--allow-damaged") as node:
        reason = f"container {lost} failed: the durable log of container {lost} is missing"
        assert f"the controller's table {SCOPES_TABLE} is damaged: {reason}" in node.log()
        with pytest.raises(Corrupt, match=reason):
            sarit.connect(node.controller)
    shutil.move(tmp_path / "log", tmp_path / "data" / "log" / str(lost))
    with RunningNode(tmp_path / "data") as node, sarit.connect(node.controller) as client:
        assert "shop" in list(client.list_scopes())


@pytest.mark.parametrize(("whole", "options"), [*((number, ()) for number in range(4)), (1, ("--processes", "2"))])
def test_reads_end_at_once_with_the_reason_whatever_index_is_left(whole, options, tmp_path) -> None:
    """Reads printed nothing and waited for 300 s: clients repeated the answer of a controller without its tables."""
    with RunningNode(tmp_path / "data", *options) as node, sarit.connect(node.controller) as client:
        client.create_scope("shop")
        client.create_stream("shop/s", segments=4)
        with client.writer("shop/s") as writer:
            writer.write_many([b"event"] * 100)
    for number in range(4):
        index = tmp_path / "data" / "index" / f"container-{number}.db"
        if number != whole:
            index.write_bytes(index.read_bytes()[:4096] + bytes(index.stat().st_size - 4096))
    with RunningNode(tmp_path / "data", *options, "--allow-damaged") as node:
        for command in (["read", "shop/s"], ["stream", "list", "shop"]):
            environment = {**os.environ, "SARIT_CONTROLLER": node.controller}
            done = fork_server.run([SARIT, *command], env=environment, text=True, check=False, timeout=HANG_SECONDS)
            assert "waiting for a node" not in done.stderr
            if command[0] == "stream" and whole == container_of(SCOPES_TABLE, 4) and done.returncode == 0:
                # The table of the scope, which has another name in each run, is there, too.
                assert done.stdout == "STREAM\nshop/s\n"
                continue
            assert done.returncode == 1
            assert re.search(r"container \d failed: .* malformed", done.stderr), done.stderr


def holds_tables(data: Path, container: int) -> bool:
    """Whether the controller has a table there; without it no call would be answered."""
    with closing(sqlite3.connect(data / "index" / f"container-{container}.db")) as index:
        return any(key.startswith(b"n_system/") for (key,) in index.execute("SELECT k FROM entries"))
