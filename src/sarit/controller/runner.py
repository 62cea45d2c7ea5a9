"""Executes effects, and bounds what runs at once.

`EffectRunner` is the only part of the controller that changes segments.  `gather_all` and `for_each_bounded` run many
awaitables; `KeyedLocks` orders calls of one controller on one name.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from sarit.controller.limits import MAX_CALLS_PER_NAME
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
from sarit.core.names import parse_segment_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence

    from sarit.controller.model.effects import Effect
    from sarit.controller.ports import Segments

K = TypeVar("K", bound="Hashable")
T = TypeVar("T")

# By packed segment id: the length in bytes after each source that was merged into the segment.
Lengths = dict[int, list[int]]

_AT_ONCE: Final = 32
_FRESH_AT_ONCE: Final = 256  # a request of some 50 kB
_ITEMS_AT_ONCE: Final = 16  # each may have that many effects


class EffectRunner:
    """Executes effects on segments, at most _AT_ONCE at a time."""

    def __init__(self, segments: Segments) -> None:
        self.segments = segments

    async def run(self, effects: Sequence[Effect]) -> Lengths:
        """Execute all effects, in any order; the lengths after merges.

        Raises Unavailable when only some are done: call again."""
        lengths: Lengths = {}
        if len(effects) == 1:
            await self._execute(effects[0], lengths)
            return lengths
        for at in range(0, len(effects), _AT_ONCE):
            await gather_all([self._execute(effect, lengths) for effect in effects[at : at + _AT_ONCE]])
        return lengths

    async def create_fresh(self, segments: Sequence[str]) -> None:
        """Create segments that never existed.  Raises Unavailable when only some exist."""
        for at in range(0, len(segments), _FRESH_AT_ONCE):
            await self.segments.create_fresh(segments[at : at + _FRESH_AT_ONCE])

    async def merge(self, merges: Sequence[MergeSegments]) -> Lengths:
        """Merge into segments that accept appends.  Raises Sealed, NotFound (a target), Unavailable."""
        found = await gather_all([self.segments.merge(merge.target, merge.sources) for merge in merges])
        return {_id(merge.target): lengths for merge, lengths in zip(merges, found, strict=True)}

    async def _execute(self, effect: Effect, lengths: Lengths) -> None:
        """Execute one effect; one that was executed before succeeds."""
        segments = self.segments
        match effect:
            case CreateSegment(segment, scale_type, rate, rollover):
                # Executed before, here or by another controller: segment names are never used twice.
                with suppress(Exists):
                    await segments.create(segment, scale_type=scale_type, target_rate=rate, rollover_bytes=rollover)
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
        except Sealed:  # the target is sealed after all merges: they were done before
            return [(await self.segments.info(target)).length] * len(sources)


def _id(segment: str) -> int:
    return parse_segment_name(segment)[1].packed


async def for_each_bounded(items: Sequence[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Do `work` for all items, started in order, at most _ITEMS_AT_ONCE at a time.

    One item that waits for long delays none of the next ones.  An error does not end work that was started, but the
    remaining items may not be started: `work` must handle the errors it expects."""
    # One iterator for all: each item is taken exactly once.
    left = iter(items)

    async def some() -> None:
        for item in left:
            await work(item)

    await gather_all([some() for _ in items[:_ITEMS_AT_ONCE]])


async def gather_all(work: Sequence[Awaitable[T]]) -> list[T]:
    """Return the results of all, in order.  Raises the first error after all have ended, so that none runs on."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results  # type: ignore[return-value]


class KeyedLocks(Generic[K]):
    """One lock per key, for as long as somebody holds it or waits for it.

    It only keeps calls of one controller on one name from failing each other's compare-and-set; correctness does not
    depend on it.  While the stream or its store does not answer, calls queue up.  At most MAX_CALLS_PER_NAME may, so
    that calls on other names still find a place."""

    def __init__(self) -> None:
        self._held: dict[K, tuple[asyncio.Lock, list[None]]] = {}

    def __repr__(self) -> str:
        return f"<KeyedLocks {len(self._held)} held>"

    @asynccontextmanager
    async def hold(self, key: K) -> AsyncIterator[None]:
        """Hold the lock of `key`.  Raises Unavailable when too many wait for it."""
        # No await before `append`: the entry cannot be deleted in between.
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
