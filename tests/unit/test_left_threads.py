"""The check that fails a file whose tests leave a thread behind."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tests import left_threads
from tests.left_threads import LeftThreads


def item(name: str, file: str = "tests/a.py") -> Any:
    return SimpleNamespace(nodeid=f"{file}::{name}", name=name)


def torn_down(plugin: LeftThreads, done: Any, following: Any) -> None:
    tearing = plugin.pytest_runtest_teardown(done, following)
    next(tearing)
    with pytest.raises(StopIteration):
        next(tearing)


@pytest.mark.parametrize("file", ["tests/a.py", "tests/spark/test_a.py"])
def test_thread_that_is_left_fails_the_last_test_of_a_file_and_names_the_first_that_had_it(monkeypatch, file) -> None:
    monkeypatch.setattr(left_threads, "_GRACE_SECONDS", 0.01)
    plugin, ending = LeftThreads(), threading.Event()
    plugin.pytest_runtest_setup(item("first", file))
    leaked = threading.Thread(target=ending.wait, name="a loop")
    kept = threading.Thread(target=ending.wait, name="ThreadPoolExecutor-3_1")
    leaked.start()
    kept.start()
    try:
        torn_down(plugin, item("first", file), item("second", file))
        plugin.pytest_runtest_setup(item("second", file))
        if file.startswith("tests/spark/"):
            torn_down(plugin, item("second", file), None)
        else:
            with pytest.raises(AssertionError, match=r"what started them: a loop \(first\)$"):
                torn_down(plugin, item("second", file), item("third", "tests/b.py"))
        plugin.pytest_runtest_setup(item("third", "tests/b.py"))
        torn_down(plugin, item("third", "tests/b.py"), None)  # it was there before
    finally:
        ending.set()
        leaked.join()
        kept.join()


def test_thread_that_ends_soon_is_waited_for() -> None:
    plugin = LeftThreads()
    plugin.pytest_runtest_setup(item("first"))
    begun = threading.Event()
    threading.Timer(0.05, begun.set).start()
    torn_down(plugin, item("first"), None)
    assert begun.is_set()
