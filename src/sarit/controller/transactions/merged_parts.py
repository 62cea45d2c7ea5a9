"""Finds out which transactions of a stream are half merged.

The commit worker merges a transaction segment by segment, and each merge removes the part that it appends.  So one of
which all parts exist has not begun to be merged, and one of which none exists is merged in all segments.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from sarit.controller import keys
from sarit.controller.limits import MAX_PARTS_EXAMINED
from sarit.controller.model import codec
from sarit.controller.model.records import TxnState
from sarit.controller.transactions.commit_worker import parts_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from sarit.controller.catalog import Catalog
    from sarit.controller.model.records import StreamRecord
    from sarit.controller.ports import SegmentInfo
    from sarit.core.names import StreamName


class Parts(Enum):
    """How many of a transaction's parts, one in each segment of its epoch, are not merged yet."""

    ALL = 1
    SOME = 2
    NONE = 3


async def committing(
    catalog: Catalog, infos: Callable[[Sequence[str]], Awaitable[list[SegmentInfo | None]]], name: StreamName,
    record: StreamRecord,
) -> dict[int, Parts]:  # fmt: skip
    """Return the transactions of a stream that are being committed, and which of their parts still exist.

    Raises Unavailable, NotFound."""
    prefix, after = keys.of_stream(name.stream, keys.LIVE), b""
    epochs: dict[int, list[int]] = {}
    while rows := await catalog.scan_once(name.scope, prefix, after):
        after = rows[-1][0]
        for key, value in rows:
            found = codec.decode_transaction(value.value)
            if found.state is TxnState.COMMITTING:
                epochs.setdefault(found.epoch, []).append(keys.transaction_of(key))
    out: dict[int, Parts] = {}
    for number, transactions in epochs.items():
        past = await catalog.epochs(name, record, number)
        segments = past[0].segments if past else ()
        asked = [part for txn in transactions for part in parts_of(name, segments, txn)]
        if not asked or len(asked) > MAX_PARTS_EXAMINED:
            out |= dict.fromkeys(transactions, Parts.SOME)
            continue
        there = [info is not None for info in await infos(asked)]
        for n, txn in enumerate(transactions):
            mine = there[n * len(segments) : (n + 1) * len(segments)]
            out[txn] = Parts.ALL if all(mine) else Parts.SOME if any(mine) else Parts.NONE
    return out


__all__ = ["Parts", "committing"]
