"""Guarantees of a transaction, beyond those of its events (`log.py`).  Pure.

A transaction is a writer of its own in the history of the log: `sent` when its commit is requested (a read before that
is a phantom), `acked` when the commit is known to have happened, never `sent` when it is aborted.  So `log.py` finds
events that are visible too early, read after an abort, lost, or duplicated.  What is checked here:

| kind | meaning |
|---|---|
| `torn-transaction` | some of its events are in a scan, others are not, and truncation does not explain it |
| `split-transaction` | its events in one segment are not contiguous |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from checkers.log import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from checkers.log import LogHistory

_SHOWN: Final = 5


def check(history: LogHistory, transactions: Mapping[int, int]) -> list[Violation]:
    """Everything that is wrong with `transactions`: the writer of each, and how many events it has."""
    out: list[Violation] = []
    for scan, extents in history.scans.items():
        out.extend(_check_scan(history, scan, extents, transactions))
    return out


def _check_scan(
    history: LogHistory, scan: int, extents: Mapping[int, tuple[int, int]], transactions: Mapping[int, int]
) -> Iterator[Violation]:
    reader, segment, offset, writer, number, length = history.reads.columns()[:6]
    mine = (reader == scan) & np.isin(writer, list(transactions)) & np.isin(segment, list(extents))
    rows = np.stack((writer[mine], segment[mine], offset[mine], number[mine], length[mine]), axis=1)
    rows = rows[np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))]
    shown = 0
    for one in np.unique(rows[:, 0]):
        found = rows[rows[:, 0] == one]
        for violation in _check_one(scan, int(one), found, transactions[int(one)], extents):
            shown += 1
            if shown <= _SHOWN:
                yield violation


def _check_one(
    scan: int, writer: int, found: Any, events: int, extents: Mapping[int, tuple[int, int]]
) -> Iterator[Violation]:
    segments, offsets, ends = found[:, 1], found[:, 2], found[:, 2] + found[:, 4]
    same = segments[1:] == segments[:-1]
    if np.any(same & (offsets[1:] != ends[:-1])):
        yield Violation("split-transaction", f"scan {scan}: other events lie between those of transaction {writer}")
    if len(found) < events:
        # Truncation removes a prefix: then the first event left is at the segment's start.
        cut = any(extents[int(s)][0] == int(o) > 0 for s, o in zip(segments, offsets, strict=True))
        if not cut:
            yield Violation(
                "torn-transaction", f"scan {scan}: {len(found)} of {events} events of transaction {writer} are there"
            )
