"""Scans that skip damaged records, for deletion, garbage collection and checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sarit.core.errors import Corrupt
from sarit.index.keys import after
from sarit.index.port import DamagedRecord

if TYPE_CHECKING:
    from sarit.index.port import Index

_SCAN_ROWS: Final = 1000

Rows = list[tuple[bytes, bytes]]


async def scan_page(index: Index, start: bytes, end: bytes, limit: int) -> tuple[Rows, DamagedRecord | None]:
    """Return up to `limit` whole rows, and the damaged record that follows them, if they end before one.

    The caller continues at `resume` of that record.  Raises Corrupt (the index is out of order)."""
    try:
        return await index.scan(start, end, limit), None
    except DamagedRecord as error:
        if error.resume <= start or error.begin >= end:
            raise Corrupt(f"the index is out of order: {error}") from error
        return (await index.scan(start, error.begin, limit) if error.begin > start else []), error


async def scan_readable(index: Index, start: bytes, end: bytes) -> tuple[Rows, list[DamagedRecord]]:
    """Return all whole rows of a range, and its damaged records; the range is read in pages."""
    rows: Rows = []
    damaged: list[DamagedRecord] = []
    while True:
        page, error = await scan_page(index, start, end, _SCAN_ROWS)
        rows += page
        if error is not None:
            damaged.append(error)
            start = error.resume
            if start >= end:
                return rows, damaged
        elif len(page) < _SCAN_ROWS:
            return rows, damaged
        else:
            start = after(page[-1][0])
