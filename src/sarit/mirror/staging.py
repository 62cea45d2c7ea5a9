"""Bytes that are staged for segments of mirrors: in segments of their own, which nobody reads before they are merged.

The name of such a segment is derived from the offset at which the mirror ended, so that a copier that is started again
finds it, and what a late copier stages for an earlier offset is never merged at a later one.

The name has the number of earlier drops, too, which the mirror's row holds.  Whoever drops what is staged raises that
number first, on the condition that the row is unchanged, and only then deletes.  So a round that is being decided
meanwhile, by another controller, is not decided; and a deletion that comes late, after bytes were staged again and
their round was decided, is of another name.  What is staged of a decided round is never deleted before it is merged.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from sarit.controller.runner import gather_all
from sarit.core.errors import Conflict, Exists, NotFound, SaritError, Sealed, Unavailable
from sarit.core.names import staging_segment
from sarit.mirror.limits import MAX_STAGING_ATTEMPTS, MIRROR_BATCH_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sarit.controller.ports import Segments


class StagingMissing(Exception):
    """Bytes of a round are not staged any more."""


class Place(NamedTuple):
    """Where bytes are staged for a segment that ends at `base`, after a number of drops."""

    segment: str
    base: int
    drops: int = 0

    @property
    def name(self) -> str:
        """The segment that has the staged bytes."""
        return staging_segment(*self)


class Staging:
    """Stages bytes for segments, and merges them."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments

    def __repr__(self) -> str:
        return "<Staging>"

    async def lengths(self, places: Sequence[Place]) -> dict[str, int]:
        """Return how many bytes are staged, by segment, of those with any."""
        found = await self._segments.infos([one.name for one in places])
        return {at.segment: one.length for at, one in zip(places, found, strict=True) if one is not None and one.length}

    async def present(self, places: Sequence[Place]) -> list[Place]:
        """Return the places where something is staged, or could be."""
        found = await self._segments.infos([one.name for one in places]) if places else []
        return [at for at, one in zip(places, found, strict=True) if one is not None]

    async def append(self, writes: Sequence[tuple[Place, int, bytes]]) -> list[int | SaritError]:
        """Stage bytes, each (place, offset, bytes).  Returns for each where the staged bytes end now.

        Bytes that are staged already are not staged again: they are the same.  Conflict: the offset is not the end."""
        writes = list(writes)
        outcomes: list[int | SaritError | None] = [None] * len(writes)
        for _ in range(MAX_STAGING_ATTEMPTS):
            left = [at for at, outcome in enumerate(outcomes) if outcome is None]
            if not left:
                break
            names = [writes[at][0].name for at in left]
            appends = [
                (name, offset - place.base, data)
                for name, (place, offset, data) in zip(names, map(writes.__getitem__, left), strict=True)
            ]
            found = await self._segments.append_at_many(appends)
            missing: dict[str, None] = {}
            for name, at, one in zip(names, left, found, strict=True):
                place, offset, data = writes[at]
                end = place.base
                if isinstance(one, int):
                    outcomes[at] = end + one
                elif isinstance(one, NotFound) and offset >= end:
                    missing[name] = None
                elif isinstance(one, Conflict) and isinstance(one.actual, int):
                    staged = end + one.actual
                    if offset < staged < offset + len(data):  # stage the rest of them
                        writes[at] = (place, staged, data[staged - offset :])
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

    async def seal(self, needed: Mapping[Place, int]) -> bool:
        """Seal what is staged, if it has these lengths exactly.  Returns whether it has.

        Sealed, nothing is appended to it any more by a late copier."""
        if not await self._have(needed):
            return False
        try:
            await gather_all([self._segments.seal(one.name) for one in needed])
        except NotFound:
            return False
        return await self._have(needed)

    async def _have(self, needed: Mapping[Place, int]) -> bool:
        found = await self._segments.infos([one.name for one in needed])
        return all(one is not None and one.length == n for n, one in zip(needed.values(), found, strict=True))

    async def useless(self, needed: Mapping[Place, int]) -> list[Place]:
        """Return where what is staged will never have these lengths: it is longer, or sealed and shorter.

        Sealed, it is of a round that was not decided."""
        found = await self._segments.infos([one.name for one in needed])
        return [
            at
            for (at, length), one in zip(needed.items(), found, strict=True)
            if one is not None and (one.length > length or (one.sealed and one.length < length))
        ]

    async def delete(self, places: Sequence[Place]) -> None:
        """Delete what is staged.  No round needs it: it is merged, or the drop is stored."""

        async def one(place: Place) -> None:
            with suppress(NotFound):
                await self._segments.delete(place.name)

        await gather_all([one(place) for place in places])

    async def merge(self, place: Place, after: int) -> None:
        """Make a segment end at `after` by what is staged at a place; it may be done already.

        A late copier may have appended some of the bytes: then what is missing is staged again, and merged.  A missing
        segment was truncated away.  Raises StagingMissing."""
        segment, base, _ = place
        for _ in range(MAX_STAGING_ATTEMPTS):
            (info,) = await self._segments.infos([segment])
            if info is None or info.length >= after:
                break
            at = info.length
            try:
                if at != base:
                    await self._stage_rest(place, at, after)
                await self._segments.merge_at(segment, place._replace(base=at).name, at)
            except (Conflict, NotFound, Sealed):
                # Look at the segment last: if what was staged is merged meanwhile, the segment has it.
                staged = await self.present([place])
                (info,) = await self._segments.infos([segment])
                if not staged and info is not None and info.length < after:
                    raise StagingMissing(segment) from None
                continue
            if at != base:
                await self.delete([place])
        else:
            raise Unavailable(f"segment {segment} is appended to by others; try again")

    async def _stage_rest(self, place: Place, at: int, after: int) -> None:
        """Stage what lies behind `at`, out of what is staged at a place before it.  Raises NotFound, Conflict."""
        rest = place._replace(base=at)
        (source, base), name = (place.name, place.base), rest.name
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
        if not await self.seal({rest: after - at}):
            # What others staged there is of no decided round: this one is decided, or its merge is the only one.
            await self.delete(await self.useless({rest: after - at}))
            raise Conflict(f"what is staged for {place.segment} was changed by others")


def _after_conflict(staged: int, offset: int, data: bytes) -> int | Conflict:
    """Return the outcome of bytes at an offset where what is staged does not end."""
    if offset < staged:  # a late copier, or this one before, has staged the same bytes
        return offset + len(data)
    return Conflict(f"what is staged ends at {staged}", expected=offset, actual=staged)


__all__ = ["Place", "Staging", "StagingMissing"]
