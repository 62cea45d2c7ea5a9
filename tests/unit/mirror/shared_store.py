"""Controllers over one real store in memory, and a round of a link that leads over three epochs."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from sarit.controller.assembly import Controller
from sarit.core.keyspace import KeyRange
from sarit.core.names import staging_segment
from sarit.mirror.values import MirrorState, Write
from sarit.process.store_calls.in_process import InProcessSegments, InProcessTables
from tests.limits import HANG_SECONDS
from tests.unit.controller.world import STREAM, halves
from tests.unit.mirror.interrupted import Calls, judge
from tests.unit.mirror.target_world import LINK, Edge, copy, named, ready, target_of
from tests.unit.store.harness import World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sarit.mirror.target import LocalTarget


async def quiet(number: int, done: bool) -> None:
    pass


class Installation:
    """Controllers over one real store in memory."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.segments = InProcessSegments(store, lambda: ("127.0.0.1", 12345))

    async def start(self, calls: Calls | None = None) -> tuple[Controller, LocalTarget]:
        """Another controller and its target.  `calls`: which it makes."""
        calls = calls or Calls(quiet)
        tables, segments = calls.of(InProcessTables(self._store)), calls.of(self.segments)
        controller = Controller(tables, segments, self._store.env, ("127.0.0.1", 9090))
        await controller.catalog.start()
        calls.on = True
        return controller, target_of(controller, segments, self._store.env)


@asynccontextmanager
async def installation() -> AsyncIterator[Installation]:
    store = await World().start()
    yield Installation(store)
    await store.stop()


def run(test: Any) -> Any:
    return asyncio.run(asyncio.wait_for(test, HANG_SECONDS))


def history() -> tuple[Edge, dict[int, int]]:
    """A stream of a source over four epochs, and the lengths of epoch 0 from which a round leads to its end."""
    edge = Edge(2)
    edge.data |= {0: b"a" * 20, 1: b"b" * 11}
    low, high = edge.scale([0], halves(0.0, 0.5))
    edge.data |= {low: b"c" * 13, high: b"d" * 5}
    (merged,) = edge.scale([high, 1], [KeyRange(0.25, 1.0)])
    edge.data[merged] = b"e" * 17
    (last,) = edge.scale([low, merged], [KeyRange(0.0, 1.0)])
    edge.data[last] = b"f" * 3
    return edge, {0: 7, 1: 0}


async def begun(here: Installation) -> tuple[Edge, Any]:
    """A mirror that has 7 bytes, and all of a round over three more epochs staged."""
    edge, before = history()
    _, target = await here.start()
    await ready(target, edge.facts())
    await target.write(LINK, "s", [Write(STREAM, 0, 0, edge.data[0][:7], False)])
    one = edge.round(before, edge.epochs[1:])
    found = await target.write(LINK, "s", edge.writes(one, size=4))
    assert not [written for written in found if written.refused or written.reason]
    return edge, one


async def completed(here: Installation, edge: Edge, one: Any) -> MirrorState:
    """What another controller makes of it, whatever the last one left."""
    controller, target = await here.start()
    await judge(controller, here.segments, edge)
    state = await ready(target, edge.facts())
    await judge(controller, here.segments, edge)
    if state.position.epoch == 0:  # the round was not decided
        assert state.position.lengths == one.before
        state = await copy(target, edge, one, size=3)
    await judge(controller, here.segments, edge)
    assert state.position.lengths == {s: len(edge.data[s]) for s in edge.epochs[-1].ids}
    assert state.position.epoch == edge.epochs[-1].number
    assert state.staged == {}
    assert await staged(here, one) == []
    return state


async def staged(here: Installation, one: Any) -> list[str]:
    """What is staged of a round still."""
    names = [staging_segment(named(STREAM, s), at) for s, end in one.after.items() for at in range(end + 1)]
    found = await here.segments.infos(names)
    return [name for name, info in zip(names, found, strict=True) if info is not None]
