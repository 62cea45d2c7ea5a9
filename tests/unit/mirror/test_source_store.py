"""Offers over a real store in memory, while transactions commit one after another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sarit.core.names import SegmentId, StreamName, transaction_segment
from sarit.core.policies import ScalingPolicy, StreamConfig
from sarit.mirror.source import LocalSource
from sarit.mirror.values import Position, Range
from tests.unit.controller.world import run
from tests.unit.mirror.installations import LINK, installation

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from sarit.controller.ports import SegmentInfo

STREAM = StreamName("s", "t")
SEGMENTS = [SegmentId(0, number).packed for number in range(3)]
MARK_BYTES = 8


def test_each_offer_has_whole_transactions_and_growth_names_their_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        edge = await installation("edge")
        c = edge.controller
        await c.scopes.create("s")
        await c.streams.create(STREAM, StreamConfig(ScalingPolicy(min_segments=len(SEGMENTS))))
        infos = c.segments.infos

        async def one_by_one(names: Sequence[str]) -> list[SegmentInfo | None]:
            """States of different moments, as those of segments in several stores are."""
            found: list[SegmentInfo | None] = []
            for name in names:
                found += await infos([name])
                await asyncio.sleep(0.0005)
            return found

        monkeypatch.setattr(c.segments, "infos", one_by_one)
        source = LocalSource(c.catalog, c.streams, c.segments, edge.store.env, "edge", c.growth)
        assert await source.grown(LINK, "s", 0.0) is None

        async def write(writer: int) -> None:
            for number in range(15):
                txn, parts = await c.transactions.create(STREAM, 10_000)
                for part in parts:
                    parent = STREAM.segment(SegmentId.unpack(part.segment))
                    await c.segments.write(transaction_segment(parent, txn), b"%03d-%04d" % (writer, number), 0)
                await c.transactions.commit(STREAM, txn, "", 0)
                await c.transactions.outcome(STREAM, txn, 10)

        writers = [asyncio.ensure_future(write(writer)) for writer in range(4)]
        position, grew = Position(STREAM, 0, dict.fromkeys(SEGMENTS, 0)), 0
        marks: dict[int, list[bytes]] = {segment: [] for segment in SEGMENTS}
        while True:
            done = all(writer.done() for writer in writers)
            (offer,) = await source.offers("s", [position], 1)
            assert offer is not None
            ranges = [Range(STREAM, s, position.lengths[s], offer.lengths[s] - position.lengths[s]) for s in SEGMENTS]
            for segment, data in zip(SEGMENTS, await source.read("s", ranges), strict=True):
                # Each event is its header and its mark.
                step = len(data) // max(1, data.count(b"-"))
                marks[segment] += [data[at : at + step][-MARK_BYTES:] for at in range(0, len(data), max(1, step))]
            assert len({frozenset(found) for found in marks.values()}) == 1, marks
            grew += any(one.length for one in ranges)
            position = Position(STREAM, 0, offer.lengths)
            if done and not offer.more and not any(one.length for one in ranges):
                break
            await asyncio.sleep(0)
        await asyncio.gather(*writers)
        assert grew
        assert len(marks[0]) == len(set(marks[0])) == 60
        assert STREAM in (await source.grown(LINK, "s", 5.0) or [])
        await edge.stop()

    run(main())
