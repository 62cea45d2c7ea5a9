"""Spark's Python processes: each runs many tasks, one after the other, and collects garbage after every one.

Theory of operation.  Spark forks a process for a task and uses it again for later ones.  What a task must not pay for
is done once in a process:

* connections are shared by its tasks (`PerProcess`);
* the objects that are there after the first task are left out of later garbage collections (`freeze_once`).  They are
  modules with their functions, classes and tables, about 100,000 objects that stay for ever.  Spark calls
  `gc.collect()` after each task: over them it takes 50 ms of a processor, more than a small task.
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

# Spark sets it for processes that it uses again.
_REUSED: Final = "SPARK_REUSE_WORKER"
_frozen: set[int] = set()


class PerProcess(Generic[K, V]):
    """Values that the tasks of a process share, by key; each is made on first use and not released until it is
    forgotten.

    A forked process has none of its parent's threads, so it makes its own."""

    def __init__(self, make: Callable[[K], V], close: Callable[[V], object]) -> None:
        self._make = make
        self._close = close
        self._made: dict[tuple[int, K], V] = {}

    def get(self, key: K) -> V:
        """Return the one of this process.  Raises what making it raises."""
        mine = (os.getpid(), key)
        if mine not in self._made:
            self._made[mine] = self._make(key)
        return self._made[mine]

    @contextmanager
    def sharing(self, key: K) -> Iterator[V]:
        """The one of this process, for a block; forgotten when the block fails, with whatever it has left there."""
        try:
            yield self.get(key)
        except BaseException:
            self.forget(key)
            raise

    def forget(self, key: K) -> None:
        """Release the value of a key: the next task makes another."""
        found = self._made.pop((os.getpid(), key), None)
        if found is not None:
            self._close(found)


def freeze_once(environment: Mapping[str, str] = os.environ) -> None:
    """Leave all objects that exist now out of garbage collections, once in a process that Spark uses again.

    To be called at the end of a task, when its modules are imported.  An object that is in use by then is still
    released when nothing refers to it; only a circle of such objects is not."""
    if environment.get(_REUSED) and os.getpid() not in _frozen:
        _frozen.add(os.getpid())
        gc.collect()
        gc.freeze()
