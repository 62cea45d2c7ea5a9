"""Carries out effects: the only place of the controller that changes segments."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from sarit.controller.model.effects import (
    CreateSegment,
    CreateTable,
    DeleteSegment,
    MergeSegments,
    SealSegment,
    SetPolicy,
    TruncateSegment,
)
from sarit.core.errors import Exists, NotFound, Sealed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from sarit.controller.model.effects import Effect
    from sarit.controller.ports import Segments

T = TypeVar("T")

_AT_ONCE: Final = 32


class Runner:
    """Effects on segments, some at a time."""

    def __init__(self, segments: Segments) -> None:
        self.segments = segments

    async def run(self, effects: Sequence[Effect]) -> None:
        """Carry out all of them, in any order.  Raises Unavailable, with some done: call again."""
        if len(effects) == 1:
            await self.one(effects[0])
            return
        for at in range(0, len(effects), _AT_ONCE):
            await every([self.one(effect) for effect in effects[at : at + _AT_ONCE]])

    async def one(self, effect: Effect) -> None:
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
                with suppress(Sealed, NotFound):
                    await segments.merge(target, sources)
            case _:
                raise AssertionError(f"{effect} is not an effect on a segment")


async def every(work: Sequence[Awaitable[T]]) -> list[T]:
    """The results of all, in order.  Raises the first error there is once all have ended: none runs on behind it."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results  # type: ignore[return-value]
