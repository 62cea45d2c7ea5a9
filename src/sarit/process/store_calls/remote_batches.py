"""Implements the batches of the controller's port `Segments` with requests to stores of other processes.

A batch is divided among the stores, and into requests of a bounded size, which are sent to a store one after the other:
the appends of one segment keep their order.  These requests have a connection of their own: a store of an earlier
version, which does not know them, closes it, and large ones must not delay others.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sarit.client.core.replies import error_of
from sarit.controller.ports import SegmentInfo
from sarit.controller.runner import gather_all
from sarit.core.errors import SaritError, Unavailable
from sarit.process.limits import MAX_BATCH_ITEMS, MAX_BATCH_WRITE_BYTES
from sarit.store.limits import MAX_BATCH_READ_BYTES
from sarit.store.server.batches import error_in
from sarit.wire import commands as wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sarit.process.store_calls.store_connections import Address, StoreConnections

T = TypeVar("T")

BATCHES: Final = "batches"


class SegmentBatches:
    """Requests on many segments, which may be in many stores."""

    def __init__(self, stores: StoreConnections) -> None:
        self._stores = stores

    def __repr__(self) -> str:
        return f"<SegmentBatches by {self._stores!r}>"

    async def append(self, writes: Sequence[tuple[str, int, bytes]], *, begin_events: bool) -> list[int | SaritError]:
        """Append bytes at offsets.  Returns the length after each append, or why there was none."""
        outcomes: list[int | SaritError] = [Unavailable("it was not tried")] * len(writes)

        async def append_at(address: Address, places: list[int]) -> None:
            for piece in _pieces(places, lambda place: len(writes[place][2]), MAX_BATCH_WRITE_BYTES):
                items = tuple(wire.OffsetWrite(*writes[place]) for place in piece)
                request = partial(wire.AppendBatch, begin_events=begin_events, writes=items)
                answers = await self._outcomes(address, request, len(items))
                for place, answer in zip(piece, answers, strict=True):
                    error = answer if isinstance(answer, SaritError) else error_in(answer)
                    outcomes[place] = error or answer.number

        await self._at_each([segment for segment, _, _ in writes], outcomes, append_at)
        return outcomes

    async def read(self, ranges: Sequence[tuple[str, int, int]]) -> list[bytes | SaritError]:
        """Return bytes of segments, or in place of them an error."""
        outcomes: list[bytes | SaritError] = [Unavailable("it was not tried")] * len(ranges)

        async def read_at(address: Address, places: list[int]) -> None:
            for piece in _pieces(places, lambda place: ranges[place][2], MAX_BATCH_READ_BYTES):
                items = tuple(wire.SegmentRange(*ranges[place]) for place in piece)
                answers = await self._outcomes(address, partial(wire.ReadBatch, ranges=items), len(items))
                for place, answer in zip(piece, answers, strict=True):
                    error = answer if isinstance(answer, SaritError) else error_in(answer)
                    outcomes[place] = error or bytes(answer.data)

        await self._at_each([segment for segment, _, _ in ranges], outcomes, read_at)
        return outcomes

    async def states(self, segments: Sequence[str]) -> list[SegmentInfo | None]:
        """Return the states of segments, None for a missing one.  Raises Corrupt, Unavailable."""
        found: list[SegmentInfo | None] = [None] * len(segments)

        async def ask(address: Address, places: list[int]) -> None:
            for piece in _pieces(places, lambda _: 0, 0):
                names = tuple(segments[place] for place in piece)
                reply = await self._stores.ask_at(address, partial(wire.GetStates, segments=names), BATCHES)
                if type(reply) is not wire.StatesRead or len(reply.states) != len(names):
                    raise error_of(reply, names[0])
                for place, state in zip(piece, reply.states, strict=True):
                    if state.exists:
                        found[place] = SegmentInfo(state.length, state.start_offset, state.sealed, state.modified_ms)

        await self._at_each(segments, None, ask)
        return found

    async def _at_each(
        self,
        segments: Sequence[str],
        outcomes: list[int | SaritError] | list[bytes | SaritError] | None,
        ask: Callable[[Address, list[int]], Any],
    ) -> None:
        """Call `ask` for each store with the places of its segments.

        The error of a segment without a store is its outcome, or, without `outcomes`, raised."""
        divided: dict[Address, list[int]] = {}
        for place, segment in enumerate(segments):
            try:
                divided.setdefault(self._stores.address_of(segment), []).append(place)
            except Unavailable as error:
                if outcomes is None:
                    raise
                outcomes[place] = error
        await gather_all([ask(address, places) for address, places in divided.items()])

    async def _outcomes(self, address: Address, request: Callable[[int], Any], count: int) -> list[Any]:
        """Return the outcomes that a store has sent, or as many times the error of the request."""
        try:
            reply = await self._stores.ask_at(address, request, BATCHES)
        except SaritError as error:  # also NotSent, which is no error of the port
            return [Unavailable(str(error))] * count
        if type(reply) is wire.BatchDone and len(reply.outcomes) == count:
            return list(reply.outcomes)
        return [error_of(reply, "of a batch")] * count


def _pieces(places: Sequence[int], size: Callable[[int], int], most: int) -> Iterator[list[int]]:
    """Yield the places in order, in pieces of at most MAX_BATCH_ITEMS, and `most` in the sum of their sizes."""
    piece: list[int] = []
    total = 0
    for place in places:
        if piece and (len(piece) >= MAX_BATCH_ITEMS or total + size(place) > most):
            yield piece
            piece, total = [], 0
        piece.append(place)
        total += size(place)
    if piece:
        yield piece
