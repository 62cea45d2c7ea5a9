"""Bytes that are staged for segments of mirrors: in segments of their own, which nobody reads before they are merged.

The name of such a segment is derived from the offset at which the mirror ended, so that a copier that is started again
finds it, and what a late copier stages for an earlier offset is never merged at a later one.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from sarit.controller.runner import gather_all
from sarit.core.errors import Conflict, Exists, NotFound, SaritError, Sealed, Unavailable
from sarit.core.names import staging_segment
from sarit.mirror.limits import MAX_STAGING_ATTEMPTS, MIRROR_BATCH_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sarit.controller.ports import Segments


class StagingMissing(Exception):
    """Bytes of a decided round are not staged any more."""


class Staging:
    """Stages bytes for segments, and merges them."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments

    def __repr__(self) -> str:
        return "<Staging>"

    async def lengths(self, bases: Mapping[str, int]) -> dict[str, int]:
        """Return how many bytes are staged for segments that end at these offsets, of those with any."""
        found = await self._segments.infos([staging_segment(s, at) for s, at in bases.items()])
        return {s: one.length for s, one in zip(bases, found, strict=True) if one is not None and one.length}

    async def append(self, writes: Sequence[tuple[str, int, int, bytes]]) -> list[int | SaritError]:
        """Stage bytes, each (segment, its end, offset, bytes).  Returns for each where the staged bytes end now.

        Bytes that are staged already are not staged again: they are the same.  Conflict: the offset is not the end."""
        writes = list(writes)
        outcomes: list[int | SaritError | None] = [None] * len(writes)
        for _ in range(MAX_STAGING_ATTEMPTS):
            left = [at for at, outcome in enumerate(outcomes) if outcome is None]
            if not left:
                break
            names = [staging_segment(writes[at][0], writes[at][1]) for at in left]
            found = await self._segments.append_at_many(
                [(name, writes[at][2] - writes[at][1], writes[at][3]) for name, at in zip(names, left, strict=True)]
            )
            missing: dict[str, None] = {}
            for name, at, one in zip(names, left, found, strict=True):
                _, end, offset, data = writes[at]
                if isinstance(one, int):
                    outcomes[at] = end + one
                elif isinstance(one, NotFound) and offset >= end:
                    missing[name] = None
                elif isinstance(one, Conflict) and isinstance(one.actual, int):
                    staged = end + one.actual
                    if offset < staged < offset + len(data):  # stage the rest of them
                        writes[at] = (writes[at][0], end, staged, data[staged - offset :])
                    else:
                        outcomes[at] = _after_conflict(staged, offset, data)
                elif isinstance(one, Sealed):
                    # A round with it was to be decided: what it has is there, and more it does not get.
                    (info,) = await self._segments.infos([name])
                    there = info is not None and end <= offset and offset + len(data) <= end + info.length
                    outcomes[at] = offset + len(data) if there else one
                else:
                    outcomes[at] = one
            await gather_all([self._create(name) for name in missing])
        return [Unavailable("what is staged is dropped by others; try again") if o is None else o for o in outcomes]

    async def _create(self, staged: str) -> None:
        with suppress(Exists):
            await self._segments.create_at(staged, 0, mirror=True)

    async def seal(self, needed: Mapping[tuple[str, int], int]) -> bool:
        """Seal what is staged, if it has these lengths exactly.  Returns whether it has.  What is longer is dropped.

        `needed`: by segment and its end.  Sealed, nothing is appended to it any more by a late copier."""
        names = {staging_segment(*key): length for key, length in needed.items()}
        if not await self._have(names):
            return False
        try:
            await gather_all([self._segments.seal(name) for name in names])
        except NotFound:
            return False
        return await self._have(names)

    async def _have(self, names: Mapping[str, int]) -> bool:
        found = await self._segments.infos(list(names))
        for (name, length), one in zip(names.items(), found, strict=True):
            # A sealed one that is too short would never grow: it is of a round that was not decided.
            if one is not None and (one.length > length or (one.sealed and one.length < length)):
                await self.drop_named([name])
        return all(one is not None and one.length == names[name] for name, one in zip(names, found, strict=True))

    async def drop(self, bases: Mapping[str, int]) -> None:
        """Delete what is staged for segments that end at these offsets."""
        await self.drop_named([staging_segment(s, at) for s, at in bases.items()])

    async def drop_named(self, names: Sequence[str]) -> None:
        """Delete staged segments by name."""

        async def one(name: str) -> None:
            with suppress(NotFound):
                await self._segments.delete(name)

        await gather_all([one(name) for name in names])

    async def merge(self, segment: str, base: int, after: int) -> None:
        """Make a segment end at `after` by what was staged when it ended at `base`; it may be done already.

        A late copier may have appended some of the bytes: then what is missing is staged again, and merged.  A missing
        segment was truncated away.  Raises StagingMissing."""
        for _ in range(MAX_STAGING_ATTEMPTS):
            (info,) = await self._segments.infos([segment])
            if info is None or info.length >= after:
                break
            at = info.length
            try:
                if at != base:
                    await self._stage_rest(segment, base, at, after)
                await self._segments.merge_at(segment, staging_segment(segment, at), at)
            except Conflict:
                continue
            except (NotFound, Sealed):
                (info,) = await self._segments.infos([segment])
                if info is not None and info.length < after:
                    raise StagingMissing(segment) from None
            if at != base:
                await self.drop({segment: base})
        else:
            raise Unavailable(f"segment {segment} is appended to by others; try again")

    async def _stage_rest(self, segment: str, base: int, at: int, after: int) -> None:
        """Stage what lies behind `at`, out of what is staged behind `base`.  Raises NotFound, Conflict."""
        source, name = staging_segment(segment, base), staging_segment(segment, at)
        await self._create(name)
        (info,) = await self._segments.infos([name])
        done = 0 if info is None else info.length
        while done < after - at:
            length = min(MIRROR_BATCH_BYTES, after - at - done)
            (data,) = await self._segments.read_many([(source, at - base + done, length)])
            if not isinstance(data, bytes):
                raise data
            (end,) = await self._segments.append_at_many([(name, done, data)])
            if not isinstance(end, int):
                raise end
            done = end
        if not await self.seal({(segment, at): after - at}):
            raise Conflict(f"what is staged for {segment} was changed by others")


def _after_conflict(staged: int, offset: int, data: bytes) -> int | Conflict:
    """Return the outcome of bytes at an offset where what is staged does not end."""
    if offset < staged:  # a late copier, or this one before, has staged the same bytes
        return offset + len(data)
    return Conflict(f"what is staged ends at {staged}", expected=offset, actual=staged)


__all__ = ["Staging", "StagingMissing"]
