"""Ports of a controller whose calls are counted, and may be its last ones; and what always holds of a mirror."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from sarit.controller.model.epochs import known_segments
from sarit.controller.model.records import WorkKind
from tests.unit.controller.fakes import Crash
from tests.unit.mirror.target_world import named

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sarit.controller.assembly import Controller
    from tests.unit.mirror.target_world import Edge


class Calls:
    """The calls of one controller.  `hook` is awaited before and after each one, with its number; it may raise.

    `alone`: a call, with its hooks, waits until the one before it has ended."""

    def __init__(self, hook: Callable[[int, bool], Awaitable[None]], *, alone: bool = False) -> None:
        self._hook = hook
        self._alone = asyncio.Lock() if alone else nullcontext()
        self.count = 0
        self.on = False

    def of(self, port: Any) -> Any:
        """The same port, whose calls are counted while `on`."""
        return _Port(port, self)

    async def run(self, method: Callable[..., Awaitable[Any]], args: Any, more: Any) -> Any:
        if not self.on:
            return await method(*args, **more)
        self.count += 1
        number = self.count
        async with self._alone:
            await self._hook(number, False)
            found = await method(*args, **more)
            await self._hook(number, True)
        return found


class _Port:
    def __init__(self, port: Any, calls: Calls) -> None:
        self._port = port
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)
        if name == "endpoint":
            return method
        return lambda *args, **more: self._calls.run(method, args, more)


def dying(at: int, *, after: bool) -> Calls:
    """Calls of a controller that dies at one of them, before or after it took effect; also what runs at once."""

    async def hook(number: int, done: bool) -> None:
        if number > at or (number == at and done == after):
            raise Crash(f"at call {number}")

    return Calls(hook)


async def judge(controller: Controller, segments: Any, edge: Edge, gone: frozenset[int] = frozenset()) -> None:
    """A mirror is its source as it was: equal bytes at equal offsets, and successors only behind whole segments.

    A reader that begins at the head finds every segment that it is led to.  `gone`: segments before the head."""
    found = await controller.catalog.find(edge.name)
    if found is None or found.record.state.name == "CREATING":
        return
    record = found.record
    epochs = await controller.catalog.epochs(edge.name, record, 0)
    assert list(epochs) == edge.epochs[: len(epochs)]
    known = known_segments(epochs)
    infos = dict(zip(known, await segments.infos([named(edge.name, s) for s in known]), strict=True))
    assert all(infos[s] is None or infos[s].length == 0 for s in gone & infos.keys())
    for segment, info in infos.items():
        if segment in gone:
            continue
        assert info is not None, f"segment {segment} is missing"
        (data,) = await segments.read_many([(named(edge.name, segment), info.start_offset, info.length)])
        assert data == edge.data[segment][info.start_offset : info.length]
        if segment not in record.current.ids and record.work.kind is not WorkKind.SEAL:
            assert info.sealed
        if info.length > 0:
            earlier = [s for s, one in known.items() if s < segment and one.overlaps(known[segment]) and s not in gone]
            for before in earlier:
                assert infos[before].length == len(edge.data[before]), f"{segment} is ahead of {before}"
                assert infos[before].sealed
        if info.sealed and segment not in record.current.ids:
            assert await controller.streams.successors_of(edge.name, segment)
