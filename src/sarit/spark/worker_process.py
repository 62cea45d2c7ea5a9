"""Shares work among the tasks of a Python process of Spark.

Theory of operation.  Spark forks a process for a task and reuses it for later tasks, one after the other.  So the
process does once what need not be done for each task:

* its tasks share connections (`PerProcess`);
* later garbage collections leave out the objects that exist after the first task (`freeze_once`): modules with their
  functions, classes and tables, about 100,000 objects that stay for ever.  Spark calls `gc.collect()` after each task,
  which would take 50 ms of a processor for them, more than a small task.
"""

from __future__ import annotations

import gc
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

K = TypeVar("K")
V = TypeVar("V")

# The environment variable that Spark sets in processes that it reuses.
_REUSED: Final = "SPARK_REUSE_WORKER"
_frozen: set[int] = set()


class PerProcess(Generic[K, V]):
    """Values that the tasks of a process share, by key.  A value is made on first use and kept until it is forgotten.

    A forked process does not have the threads of its parent, so it makes its own values."""

    def __init__(self, make: Callable[[K], V], close: Callable[[V], object]) -> None:
        self._make = make
        self._close = close
        self._made: dict[tuple[int, K], V] = {}

    def get(self, key: K) -> V:
        """Return this process's value of a key.  Raises what `make` raises."""
        mine = (os.getpid(), key)
        if mine not in self._made:
            self._made[mine] = self._make(key)
        return self._made[mine]

    @contextmanager
    def sharing(self, key: K) -> Iterator[V]:
        """Yield this process's value of a key to a block.  If the block fails, the value is closed and forgotten."""
        try:
            yield self.get(key)
        except BaseException:
            self.forget(key)
            raise

    def forget(self, key: K) -> None:
        """Close the value of a key, so that the next task makes another."""
        found = self._made.pop((os.getpid(), key), None)
        if found is not None:
            self._close(found)


def freeze_once(environment: Mapping[str, str] = os.environ) -> None:
    """Leave all present objects out of garbage collections, once in a process that Spark reuses.

    Call this at the end of a task, when its modules are imported.  A present object is still released when its last
    reference goes; only a reference cycle of such objects is not."""
    if environment.get(_REUSED) and os.getpid() not in _frozen:
        _frozen.add(os.getpid())
        gc.collect()
        gc.freeze()
