"""The frames of a log whose epoch has begun, from its closed ledgers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.errors import Corrupt
from sarit.log.bookkeeper.entries import FrameJoiner, parse
from sarit.log.bookkeeper.ledgers import LedgerReader
from sarit.log.port import Frame

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from sarit.log.bookkeeper.chain import Chain
    from sarit.log.bookkeeper.metadata import LedgerMetadata
    from sarit.log.bookkeeper.port import Bookies, LedgerStore


async def replay(
    name: str, container: int, bookies: Bookies, store: LedgerStore, chain: Chain,
    metadata: Mapping[int, LedgerMetadata], after: int,
) -> AsyncIterator[Frame]:  # fmt: skip
    """Durable frames above `after`, in order.  Raises Corrupt, Unavailable.

    `name`: of the log, for errors.  `metadata`: of the closed ledgers of the chain; others are not read."""
    reached = after
    any_seen = False
    for each in chain.ledgers:
        if each.ledger not in metadata or each.last <= after:
            continue
        ledger = LedgerReader(bookies, store, each.ledger, metadata[each.ledger])
        begin = 0 if after < each.first else await _entry_after(ledger, container, after)
        joiner = FrameJoiner()
        async for payload in ledger.entries(begin):
            entry = parse(payload, container)
            frame = joiner.add(entry)
            # One that an earlier ledger has: its owner had sent it twice, with the same bytes.
            if frame is None or entry.frame <= reached:
                continue
            if any_seen and entry.frame != reached + 1:
                raise Corrupt(f"{name} continues with frame {entry.frame}, not {reached + 1}")
            any_seen, reached = True, entry.frame
            yield Frame(entry.frame, entry.epoch, frame)
        if reached < each.last:
            raise Corrupt(f"{name} lacks frames {reached + 1} to {each.last} of ledger {each.ledger}")


async def _entry_after(ledger: LedgerReader, container: int, after: int) -> int:
    """Return the first entry of a ledger that belongs to a frame above `after`: numbers never fall within a ledger."""
    low, high = 0, ledger.metadata.last_entry + 1
    while low < high:
        middle = (low + high) // 2
        entry = parse(await ledger.entry(middle), container)
        if entry.frame > after:
            high = middle
        else:
            low = middle + 1
    return low


__all__ = ["replay"]
