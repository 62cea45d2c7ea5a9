"""What the tasks of one of Spark's Python processes share, and what they leave out of garbage collections."""

from __future__ import annotations

import gc
import os

import pytest

from sarit.spark.worker_process import PerProcess, freeze_once


@pytest.fixture
def made():
    return []


@pytest.fixture
def shared(made):
    def make(key):
        made.append([key, "open"])
        return made[-1]

    def close(one):
        one[1] = "closed"

    return PerProcess(make, close)


def test_tasks_of_a_process_share_one_for_each_key(shared, made):
    with shared.sharing("a") as first, shared.sharing("b") as other:
        assert first is not other
    with shared.sharing("a") as again:
        assert again is first
    assert shared.get("a") is first
    assert made == [["a", "open"], ["b", "open"]]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_a_failed_task_used_is_closed_and_made_again(shared, made, error):
    kept = shared.get("b")
    with pytest.raises(error), shared.sharing("a"):
        raise error
    assert made == [["b", "open"], ["a", "closed"]]
    assert shared.get("a") == ["a", "open"]
    assert shared.get("b") is kept
    shared.forget("c")  # there is none


def test_forked_process_makes_its_own_and_does_not_close_its_parents(shared, monkeypatch):
    parents = shared.get("a")
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert shared.get("a") is not parents
    shared.forget("a")
    assert parents == ["a", "open"]


def test_failure_to_make_one_leaves_nothing(made):
    def make(key):
        made.append(key)
        if len(made) == 1:
            raise ValueError("away")
        return key

    shared = PerProcess(make, lambda _: pytest.fail("nothing was made"))
    with pytest.raises(ValueError, match="away"), shared.sharing("a"):
        pass
    assert shared.get("a") == "a"


def test_objects_are_frozen_once_in_a_process_that_spark_uses_again(monkeypatch):
    calls = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("freeze"))
    monkeypatch.setattr(os, "getpid", lambda: -1)
    freeze_once({})
    assert calls == []  # any other process: its owner decides
    freeze_once({"SPARK_REUSE_WORKER": "1"})
    freeze_once({"SPARK_REUSE_WORKER": "1"})
    assert calls == ["freeze"]
    monkeypatch.setattr(os, "getpid", lambda: -2)
    freeze_once({"SPARK_REUSE_WORKER": "1"})
    assert calls == ["freeze", "freeze"]
