"""Estimates the memory of a waiting request and of its reply, in bytes, for the bounds of a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.limits import MAX_TABLE_VALUE_BYTES
from sarit.store.limits import (
    BLOCK_OVERHEAD_BYTES,
    MAX_INTERNAL_READ_BYTES,
    MAX_TABLE_PAGE_BYTES,
    REQUEST_OVERHEAD_BYTES,
)
from sarit.wire import commands as wire
from sarit.wire.limits import MAX_WIRE_PAYLOAD_BYTES

if TYPE_CHECKING:
    from sarit.wire.commands import Command

# Fields that hold items: each item costs about as much as a block, however short it is.
_ITEMS = ("entries", "keys", "sources", "attribute_updates", "changes", "segments")


def request_bytes(command: Command, payload_bytes: int) -> int:
    """Return the memory of a waiting request whose payload had `payload_bytes`."""
    items = sum(len(getattr(command, field, ())) for field in _ITEMS)
    return REQUEST_OVERHEAD_BYTES + payload_bytes + items * BLOCK_OVERHEAD_BYTES


def reply_bytes(command: Command) -> int:
    """Return an upper bound for the reply's memory; 0 when the request's own memory covers it."""
    if isinstance(command, wire.ReadTable):
        # The values are not known before they are read, so each counts as the longest.
        return min(MAX_WIRE_PAYLOAD_BYTES, len(command.keys) * MAX_TABLE_VALUE_BYTES)
    if isinstance(command, wire.ReadTableKeys | wire.ReadTableEntries | wire.ReadTableEntriesDelta):
        return MAX_TABLE_PAGE_BYTES
    if isinstance(command, wire.ScanTable | wire.FollowTable):
        return MAX_TABLE_PAGE_BYTES
    if isinstance(command, wire.ReadBytes):
        return min(max(command.limit, 0), MAX_INTERNAL_READ_BYTES)
    return 0
