"""Which threads the tests of a file leave behind: each fails its file.

An event loop that goes on in a thread, as that of a client nobody has closed, runs beside all later tests of its
worker.  It takes their processor time, and what a test replaces for the whole process is replaced for it, too."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

# Libraries keep their pools of threads, which are idle: PyIceberg, gRPC.  Ours have names.  Dummies are threads of
# libraries that have called Python.
_KEPT: Final = ("ThreadPoolExecutor-", "Dummy-")
# The folder shares one Spark, whose client has a thread for each connection.
_EXEMPT: Final = "tests/spark/"
# What a thread has that is about to end.
_GRACE_SECONDS: Final = 5.0


class LeftThreads:
    """The plugin of whoever runs tests."""

    def __init__(self) -> None:
        self._file = ""
        self._known: dict[threading.Thread, str] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Note which threads there are before the fixtures of the first test of a file."""
        file = item.nodeid.partition("::")[0]
        if file != self._file:
            self._file, self._known = file, dict.fromkeys(threading.enumerate(), "")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
        """Note whose threads there are; after the last test of a file, and its fixtures, none may be left."""
        for thread in threading.enumerate():
            self._known.setdefault(thread, item.name)
        yield
        ended = nextitem is None or nextitem.nodeid.partition("::")[0] != self._file
        if ended and not self._file.startswith(_EXEMPT) and (left := self._left()):
            raise AssertionError(f"threads were left behind, close what started them: {', '.join(left)}")

    def _left(self) -> list[str]:
        """Return which threads are left, each with the first test after which it was there."""
        new = [thread for thread in threading.enumerate() if self._known.get(thread, "a fixture")]
        new = [thread for thread in new if not thread.name.startswith(_KEPT)]
        for thread in new:
            thread.join(_GRACE_SECONDS)
        return [f"{each.name} ({self._known.get(each, 'a fixture')})" for each in new if each.is_alive()]
