"""A few kills of `tests.spark.kill_matrix`; `make spark-kills` does more of them, on a Spark with executors."""

from __future__ import annotations

import json
import shutil
from os import environ

import pytest

from examples.pipelines import chain
from tests.spark.kill_matrix import Matrix, Plan
from tests.spark.micro_batches import under_way
from tests.spark.spark_events import SparkEvents, runs

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.mark.long
@pytest.mark.skipif(shutil.which("java") is None and not environ.get("CI"), reason="Spark needs Java")
def test_chain_is_exact_after_kills_of_driver_worker_and_node(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)  # see conftest.py
    plan = Plan(kills=3, seed=5, cluster=False, kinds=("driver", "python", "node"), recovering=0, events_ahead=700)
    report = Matrix(plan, tmp_path, print).run()
    assert report.kills.total() == 3
    assert report.lines > 100
    assert not report.wrong, f"{report}\n{(tmp_path / 'jobs.log').read_text(errors='replace')[-3000:]}"


def test_mistakes_of_output_are_reported() -> None:
    right = {"UA": [(0, 5), (2, 9), (3, 11)], "AA": [(1, 4)]}
    assert chain.mistakes(right, right) == []
    lost, twice = {**right, "UA": [(0, 5), (3, 7)]}, {**right, "AA": [(1, 4), (1, 4)]}
    assert chain.mistakes(lost, right) == [
        "UA: 2 lines instead of 3, 2 missing, 1 extra, line 1 is [(3, 7)] instead of [(2, 9)]"
    ]
    assert chain.mistakes(twice, right) == [
        "AA: 2 lines instead of 1, 0 missing, 1 extra, line 1 is [(1, 4)] instead of []"
    ]
    swapped = {**right, "UA": [(2, 9), (0, 5), (3, 11)]}
    assert "0 missing, 0 extra, line 0" in chain.mistakes(swapped, right)[0]


def test_micro_batch_is_under_way_from_its_offsets_to_its_commit(tmp_path) -> None:
    assert under_way(tmp_path / "nothing") == {}
    for log in ("offsets", "commits"):
        (tmp_path / "clean" / log).mkdir(parents=True)
    (tmp_path / "totals").mkdir()  # a query that has just been started
    assert under_way(tmp_path) == {}
    for number in ("9", "10", ".11.crc.tmp"):
        (tmp_path / "clean" / "offsets" / number).touch()
    (tmp_path / "clean" / "commits" / "9").touch()
    assert under_way(tmp_path) == {"clean": 10}
    (tmp_path / "clean" / "commits" / "10").touch()
    assert under_way(tmp_path) == {}


def stage(number, tasks, query, batch, parents=()):
    properties = {"sql.streaming.queryId": query, "streaming.sql.batchId": str(batch)}
    info = {"Stage ID": number, "Number of Tasks": tasks, "Parent IDs": list(parents)}
    return {"Event": "SparkListenerStageSubmitted", "Stage Info": info, "Properties": properties}


def task(event, number, *, speculative=False, reason="Success"):
    return {
        "Event": f"SparkListenerTask{event}",
        "Stage ID": number,
        "Task Info": {"Speculative": speculative},
        "Task End Reason": {"Reason": reason},
    }


def test_event_log_gives_partitions_copies_and_lost_tasks() -> None:
    found = SparkEvents({"id-1": "clean", "id-2": "totals"})
    log = [
        stage(0, 8, "id-1", 4), stage(1, 2, "id-2", 3), stage(2, 5, "id-2", 3, parents=[1]), stage(3, 1, "other", 3),
        task("Start", 0), task("Start", 0, speculative=True), task("End", 0, speculative=True),
        task("Start", 1, speculative=True), task("End", 1, speculative=True, reason="TaskKilled"),
        task("Start", 2, speculative=True), task("End", 2, speculative=True), task("End", 2, reason="TaskKilled"),
        task("End", 2, reason="ExecutorLostFailure"),
    ]  # fmt: skip
    found.add([*map(json.dumps, log), '{"Event":"SparkLis'])
    assert found.partitions == {("clean", 4): 8, ("totals", 3): 2}
    assert found.copies == {("clean", "write"): 1, ("totals", "read"): 1, ("totals", "write"): 1}
    assert found.copies_won == {("clean", "write"): 1, ("totals", "write"): 1}
    assert found.lost == {"ExecutorLostFailure": 1}
    assert runs([1, 1, 8, 2, 2, 2]) == "1 (2 times), 8, 2 (3 times)"
