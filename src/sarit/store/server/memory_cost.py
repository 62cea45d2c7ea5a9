"""What memory holds for a request that waits, and for the reply to one, in bytes: an estimate for bounds.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.limits import (
    MAX_TABLE_PAGE_BYTES,
    MAX_TABLE_VALUE_BYTES,
    MAX_WIRE_PAYLOAD_BYTES,
    REQUEST_OVERHEAD_BYTES,
)
from sarit.store.container.dirty_bytes import BLOCK_OVERHEAD_BYTES
from sarit.wire import commands as wire

if TYPE_CHECKING:
    from sarit.wire.commands import Command

# Fields that hold items: each costs about what a block does, however short it is.
_ITEMS = ("entries", "keys", "sources", "attribute_updates")


def request_bytes(command: Command, payload_bytes: int) -> int:
    """What a request holds whose payload had so many bytes."""
    items = sum(len(getattr(command, field, ())) for field in _ITEMS)
    return REQUEST_OVERHEAD_BYTES + payload_bytes + items * BLOCK_OVERHEAD_BYTES


def reply_bytes(command: Command) -> int:
    """The most that the reply may hold; 0 when that is no more than the request did."""
    if isinstance(command, wire.ReadTable):
        return min(MAX_WIRE_PAYLOAD_BYTES, len(command.keys) * MAX_TABLE_VALUE_BYTES)
    if isinstance(command, wire.ReadTableKeys | wire.ReadTableEntries | wire.ReadTableEntriesDelta):
        return MAX_TABLE_PAGE_BYTES
    return 0
