"""Executes effects on segments, and bounds how many run at once.

Only `EffectRunner` changes segments.  `gather_all` and `for_each_bounded` run many awaitables; `KeyedLocks` serializes
calls of one controller on one name.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from sarit.controller.limits import MAX_CALLS_PER_NAME, MIRROR_TABLE_POSITION
from sarit.controller.model.effects import (
    CreateMirror,
    CreateMirrorTable,
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

# For each target of merges, by packed segment id: its length in bytes after each source.
Lengths = dict[int, list[int]]

_AT_ONCE: Final = 32
_FRESH_AT_ONCE: Final = 256  # a request of some 50 kB
_ITEMS_AT_ONCE: Final = 16  # each may have that many effects


class EffectRunner:
    """Executes effects on segments, at most _AT_ONCE at a time."""

    def __init__(self, segments: Segments) -> None:
        self.segments = segments

    async def run(self, effects: Sequence[Effect]) -> Lengths:
        """Execute all effects, in any order.  Returns the lengths after merges.

        Raises Unavailable when only some were executed: call again."""
        lengths: Lengths = {}
        if len(effects) == 1:
            await self._execute(effects[0], lengths)
            return lengths
        for at in range(0, len(effects), _AT_ONCE):
            await gather_all([self._execute(effect, lengths) for effect in effects[at : at + _AT_ONCE]])
        return lengths

    async def create_fresh(self, segments: Sequence[str]) -> None:
        """Create segments that never existed.  Raises Unavailable when only some were created."""
        for at in range(0, len(segments), _FRESH_AT_ONCE):
            await self.segments.create_fresh(segments[at : at + _FRESH_AT_ONCE])

    async def merge(self, merges: Sequence[MergeSegments]) -> Lengths:
        """Merge segments.  Returns the targets' lengths after each source.  Raises Sealed, NotFound (both of a target),
        Unavailable."""
        found = await gather_all([self.segments.merge(merge.target, merge.sources) for merge in merges])
        return {_id(merge.target): lengths for merge, lengths in zip(merges, found, strict=True)}

    async def _execute(self, effect: Effect, lengths: Lengths) -> None:
        """Execute one effect, which may have been executed before."""
        segments = self.segments
        match effect:
            case CreateSegment(segment, scale_type, rate, rollover):
                # An existing segment is from an earlier execution of this effect: segment names are never reused.
                with suppress(Exists):
                    await segments.create(segment, scale_type=scale_type, target_rate=rate, rollover_bytes=rollover)
            case CreateMirror(segment, offset, rollover):
                with suppress(Exists):
                    await segments.create_at(segment, offset, mirror=True, rollover_bytes=rollover)
            case CreateTable(segment, key_length):
                with suppress(Exists):
                    await segments.create_table(segment, key_length=key_length)
            case CreateMirrorTable(segment, key_length):
                with suppress(Exists):
                    position = MIRROR_TABLE_POSITION
                    await segments.create_table_at(segment, key_length=key_length, position=position, mirror=True)
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
        except Sealed:  # targets are sealed after all their merges, so all were done
            return [(await self.segments.info(target)).length] * len(sources)


def _id(segment: str) -> int:
    return parse_segment_name(segment)[1].packed


async def for_each_bounded(items: Sequence[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Do `work` for all items, started in order, at most _ITEMS_AT_ONCE at a time.

    An item that waits for long does not delay the next ones.  After an error, running work continues but remaining
    items may not be started: `work` must handle the errors that it expects."""
    # All tasks share one iterator, so that each item is taken exactly once.
    left = iter(items)

    async def some() -> None:
        for item in left:
            await work(item)

    await gather_all([some() for _ in items[:_ITEMS_AT_ONCE]])


async def gather_all(work: Sequence[Awaitable[T]]) -> list[T]:
    """Return the results of all awaitables, in order.  Raises the first error, but only after all have ended."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results  # type: ignore[return-value]


class KeyedLocks(Generic[K]):
    """One lock per key, which exists while a call holds it or waits for it.

    Locks only keep calls of one controller on one name from conflicting; correctness does not depend on them.  While a
    stream's store does not answer, calls queue up.  At most MAX_CALLS_PER_NAME may wait per name, so that calls on
    other names are still accepted."""

    def __init__(self) -> None:
        self._held: dict[K, tuple[asyncio.Lock, list[None]]] = {}

    def __repr__(self) -> str:
        return f"<KeyedLocks {len(self._held)} held>"

    @asynccontextmanager
    async def hold(self, key: K) -> AsyncIterator[None]:
        """Hold the lock of `key`.  Raises Unavailable when too many wait for it."""
        # There is no await between `setdefault` and `append`, so the entry cannot be deleted in between.
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
