"""Carries out effects: the only place of the controller that changes segments."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from sarit.controller.model.effects import (
    CreateSegment,
    CreateTable,
    DeleteSegment,
    MergeSegments,
    SealSegment,
    SetPolicy,
    TruncateSegment,
)
from sarit.core.errors import Exists, NotFound, Sealed, Unavailable
from sarit.core.limits import MAX_CALLS_PER_NAME
from sarit.core.names import parse_segment_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence

    from sarit.controller.model.effects import Effect
    from sarit.controller.ports import Segments

K = TypeVar("K", bound="Hashable")
T = TypeVar("T")

# By packed segment id: its length in bytes behind each of the sources that were merged into it.
Lengths = dict[int, list[int]]

_AT_ONCE: Final = 32
_ITEMS_AT_ONCE: Final = 16  # each may have that many effects


class EffectRunner:
    """Effects on segments, some at a time."""

    def __init__(self, segments: Segments) -> None:
        self.segments = segments

    async def run(self, effects: Sequence[Effect]) -> Lengths:
        """Carry out all of them, in any order; what merges made.  Raises Unavailable, with some done: call again."""
        lengths: Lengths = {}
        if len(effects) == 1:
            await self._execute(effects[0], lengths)
            return lengths
        for at in range(0, len(effects), _AT_ONCE):
            await gather_all([self._execute(effect, lengths) for effect in effects[at : at + _AT_ONCE]])
        return lengths

    async def merge(self, merges: Sequence[MergeSegments]) -> Lengths:
        """Merge into segments that take appends.  Raises Sealed, NotFound (a target), Unavailable."""
        found = await gather_all([self.segments.merge(merge.target, merge.sources) for merge in merges])
        return {_id(merge.target): lengths for merge, lengths in zip(merges, found, strict=True)}

    async def _execute(self, effect: Effect, lengths: Lengths) -> None:
        """Carry one effect out; that it was done before is success."""
        segments = self.segments
        match effect:
            case CreateSegment(segment, scale_type, rate, rollover, fresh):
                with suppress(Exists):
                    await segments.create(
                        segment, scale_type=scale_type, target_rate=rate, rollover_bytes=rollover, fresh=fresh
                    )
            case CreateTable(segment, key_length):
                with suppress(Exists):
                    await segments.create_table(segment, key_length=key_length)
            case SealSegment(segment):
                with suppress(NotFound):
                    await segments.seal(segment)
            case DeleteSegment(segment):
                with suppress(NotFound):
                    await segments.delete(segment)
            case TruncateSegment(segment, offset):
                with suppress(NotFound):
                    await segments.truncate(segment, offset)
            case SetPolicy(segment, scale_type, rate):
                with suppress(NotFound):
                    await segments.update_policy(segment, scale_type=scale_type, target_rate=rate)
            case MergeSegments(target, sources):
                with suppress(NotFound):
                    lengths[_id(target)] = await self._merge(target, sources)
            case _:
                raise AssertionError(f"{effect} is not an effect on a segment")

    async def _merge(self, target: str, sources: Sequence[str]) -> list[int]:
        try:
            return await self.segments.merge(target, sources)
        except Sealed:  # all were merged before
            return [(await self.segments.info(target)).length] * len(sources)


def _id(segment: str) -> int:
    return parse_segment_name(segment)[1].packed


async def for_each_bounded(items: Sequence[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Do `work` for all items, begun in their order, some at a time: one that waits holds up only those behind many.

    An error ends the work of no other item begun, but others may not be begun: `work` deals with those it expects."""
    left = iter(items)

    async def some() -> None:
        for item in left:
            await work(item)

    await gather_all([some() for _ in items[:_ITEMS_AT_ONCE]])


async def gather_all(work: Sequence[Awaitable[T]]) -> list[T]:
    """The results of all, in order.  Raises the first error there is once all have ended: none runs on behind it."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results  # type: ignore[return-value]


class KeyedLocks(Generic[K]):
    """KeyedLocks by key."""

    def __init__(self) -> None:
        self._held: dict[K, tuple[asyncio.Lock, list[None]]] = {}

    def __repr__(self) -> str:
        return f"<KeyedLocks {len(self._held)} held>"

    @asynccontextmanager
    async def hold(self, key: K) -> AsyncIterator[None]:
        """Hold the lock of `key`.  Raises Unavailable when too many wait for it."""
        lock, users = self._held.setdefault(key, (asyncio.Lock(), []))
        if len(users) >= MAX_CALLS_PER_NAME:
            raise Unavailable(f"{len(users)} calls wait for the same stream, reader group or table: try again")
        users.append(None)
        try:
            async with lock:
                yield
        finally:
            users.pop()
            if not users:
                del self._held[key]
