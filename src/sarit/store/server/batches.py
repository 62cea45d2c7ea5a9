"""Requests on many segments at once: appends at offsets, reads, states.

The copiers of links make them, which work on thousands of small streams.  A batch costs one request, and one group
commit in each container, instead of one for each segment.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sarit.core.errors import (
    Conflict,
    Corrupt,
    Invalid,
    NotFound,
    SaritError,
    Sealed,
    Truncated,
    Unavailable,
)
from sarit.env.background import gather
from sarit.store.container.offset_appends import append_in_order
from sarit.store.hosting.health import Opening
from sarit.store.limits import CONCURRENT_BATCH_READS
from sarit.wire.commands import BatchOutcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.store.container.container import Container, SegmentInfo
    from sarit.store.store import SegmentStore

_DONE: Final = 0
_CONFLICT: Final = 1
_TRUNCATED: Final = 2
_KINDS: Final[dict[int, type[SaritError]]] = {
    _CONFLICT: Conflict, _TRUNCATED: Truncated, 3: NotFound, 4: Sealed, 5: Invalid, 6: Corrupt, 7: Unavailable,
}  # fmt: skip


async def append_many(
    store: SegmentStore, writes: Sequence[tuple[str, int, bytes]], *, begin_events: bool = True
) -> list[int | SaritError]:
    """Append bytes at offsets, each (segment, offset, bytes), in order for each segment, as `append_in_order` does.

    Returns the length after each append, or why it was refused, as `append_in_order` does.  Raises Opening, before
    anything was done."""
    outcomes: list[int | SaritError] = [Unavailable("it was not tried")] * len(writes)
    divided = _by_container(store, [segment for segment, _, _ in writes], outcomes)
    answers = await gather(
        *(
            append_in_order(container, [writes[place] for place in places], begin_events=begin_events)
            for container, places in divided
        )
    )
    for (_, places), answer in zip(divided, answers, strict=True):
        for place, outcome in zip(places, answer, strict=True):
            outcomes[place] = outcome
    return outcomes


async def read_many(store: SegmentStore, ranges: Sequence[tuple[str, int, int]]) -> list[bytes | SaritError]:
    """Return bytes of segments, each (segment, offset, length), fewer only at the end of a segment.

    In place of bytes: NotFound, Truncated, Invalid (beyond the end), Corrupt, Moved, Unavailable.  Raises Opening."""
    outcomes: list[bytes | SaritError] = [Unavailable("it was not tried")] * len(ranges)
    divided = _by_container(store, [segment for segment, _, _ in ranges], outcomes)
    slots = asyncio.Semaphore(CONCURRENT_BATCH_READS)

    async def read(place: int) -> None:
        segment, offset, length = ranges[place]
        async with slots:
            try:
                outcomes[place] = await _read(store, segment, offset, length)
            except SaritError as error:
                outcomes[place] = error

    # Most reads of a batch are of the last bytes of segments, which are in memory: read these without a task each.
    left: list[int] = []
    for container, places in divided:
        for place in places:
            data = _in_memory(store, container, *ranges[place])
            if data is None:
                left.append(place)
            else:
                outcomes[place] = data
    await gather(*map(read, left))
    for container, places in divided:
        try:
            await container.confirm()
        except SaritError as error:
            outcomes = [error if place in places else outcome for place, outcome in enumerate(outcomes)]
    return outcomes


async def infos(store: SegmentStore, segments: Sequence[str]) -> list[SegmentInfo | None]:
    """Return the states of segments in order, None for a missing one.  Raises Opening, Moved, Corrupt, Unavailable."""
    found: list[SegmentInfo | None] = [None] * len(segments)
    for container, places in _by_container(store, segments, None):
        names = [segments[place] for place in places]
        await container.metadata.find_all(names)
        for place, name in zip(places, names, strict=True):
            try:
                found[place] = await container.info(name)
            except NotFound:
                continue
        await container.confirm()
    return found


def _by_container(
    store: SegmentStore, segments: Sequence[str], outcomes: list[int | SaritError] | list[bytes | SaritError] | None
) -> list[tuple[Container, list[int]]]:
    """Return the containers of segments, each with the places of its segments.

    The error of a segment without a container is its outcome, or, without `outcomes`, raised.  Raises Opening."""
    divided: dict[int, tuple[Container, list[int]]] = {}
    for place, segment in enumerate(segments):
        try:
            container = store.container(segment)
        except Opening:
            raise
        except SaritError as error:
            if outcomes is None:
                raise
            outcomes[place] = error
            continue
        divided.setdefault(container.number, (container, []))[1].append(place)
    return list(divided.values())


def _in_memory(store: SegmentStore, container: Container, segment: str, offset: int, length: int) -> bytes | None:
    """Return bytes of a segment if all of them are in memory, None otherwise, also where a read fails."""
    found = container.state.names.get(segment)
    if found is None or found.is_table or not found.created or found.assigned_deleted:
        return None
    if not found.start <= offset < found.length:
        return None
    wanted = min(length, found.length - offset)
    result = store.reads(segment).from_memory(found, offset, wanted)
    return None if result is None or result.length < wanted else b"".join(result.parts)


async def _read(store: SegmentStore, segment: str, offset: int, length: int) -> bytes:
    reads = store.reads(segment)
    found = await reads.find(segment)
    if found.is_table:
        raise Invalid(f"segment {segment} is a table segment")
    if offset < 0 or offset > found.length:
        raise Invalid(f"offset {offset} is after the end {found.length} of segment {segment}")
    parts: list[bytes] = []
    end = min(offset + length, found.length)
    while offset < end:
        # A read ends at a block of a chunk, or where memory begins: ask for the rest.
        left = end - offset
        result = reads.from_memory(found, offset, left) or await reads.from_chunks(found, offset, left)
        if not result.length:
            break
        parts += map(bytes, result.parts)
        offset += result.length
    # Raise Truncated, or NotFound, also when nothing was asked for.
    if not parts:
        reads.from_memory(found, offset, 1)
    return b"".join(parts)


# -- the same as values of the wire --------------------------------------------------------------


def outcome_of(answer: int | bytes | SaritError) -> BatchOutcome:
    """Return an answer as it is sent to a controller."""
    if isinstance(answer, int):
        return BatchOutcome(_DONE, answer, b"", "")
    if isinstance(answer, bytes):
        return BatchOutcome(_DONE, len(answer), answer, "")
    number = 0
    if isinstance(answer, Conflict) and isinstance(answer.actual, int):
        number = answer.actual
    elif isinstance(answer, Truncated):
        number = answer.start_offset
    kind = next((kind for kind, error in _KINDS.items() if isinstance(answer, error)), max(_KINDS))
    return BatchOutcome(kind, number, b"", str(answer))


def error_in(outcome: BatchOutcome) -> SaritError | None:
    """Return the error that a store has sent in place of an answer, None if it sent an answer."""
    if outcome.kind == _DONE:
        return None
    kind = _KINDS.get(outcome.kind, Unavailable)
    if kind is Conflict:
        return Conflict(outcome.message, actual=outcome.number)
    if kind is Truncated:
        return Truncated(outcome.message, outcome.number)
    return kind(outcome.message)
