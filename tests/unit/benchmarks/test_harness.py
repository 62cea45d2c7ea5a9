"""The harness of the benchmarks: no generator outlives a run, and no row fills the disk."""

from __future__ import annotations

import shutil
import socket

import pytest

from benchmarks import harness, measure
from benchmarks.harness import FILLED_DISK_PART, Load, affordable_events
from benchmarks.scale import Scale


def test_interrupted_row_leaves_no_generator_running(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(measure, "noise", lambda place: {})
    started = []

    def row(directory, scale):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            started.append(Load("sarit_read", {"controller": address, "stream": "a/b", "mode": "follow"}))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure.measure_rows({"row": row}, "Sarit", tmp_path, Scale(quick=True, long=False), [])
    assert not started[0].running


def test_row_writes_no_more_than_a_part_of_the_free_disk(tmp_path, monkeypatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(harness.shutil, "disk_usage", lambda path: usage._replace(free=1_000_000))
    assert affordable_events(tmp_path / "new", 100) == int(1_000_000 * FILLED_DISK_PART / 100)
    assert affordable_events(tmp_path, 100, 1 / 2) == int(500_000 * FILLED_DISK_PART / 100)
