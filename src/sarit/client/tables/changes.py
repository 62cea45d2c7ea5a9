"""Changes of a table: how they are validated, and which are sent in one request (pure).

One request changes keys of one partition atomically; it either writes or removes (no request does both).  Waiting
changes of one partition are coalesced into one request, as long as the result is that of one request after the other.
A store evaluates all conditions of a request against the state before it, so no key may occur twice in a request once
one of its changes has a condition.  Coalesced changes that are refused are sent again one by one.

A change whose reply was lost may have been applied.  It is sent again only when that is safe:

* it has no condition: it may then be applied twice, with the same result
* it expects the version of a key: every change gives the key another version, so it cannot be applied twice

A change that expects only the absence of keys is not sent again: they may have been removed in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from sarit.client.limits import CLIENT_TABLE_ENTRY_OVERHEAD_BYTES, MAX_CLIENT_TABLE_BATCH_BYTES, MAX_COALESCED_BYTES
from sarit.core.errors import Invalid
from sarit.core.limits import MAX_TABLE_VALUE_BYTES, NOT_EXISTS
from sarit.core.public import public
from sarit.wire.limits import NO_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sarit.client.tables.layout import Key, Layout
    from sarit.core.names import SegmentId

MAX_BATCH_KEYS: Final = 256


@public
@dataclass(frozen=True, slots=True)
class Put:
    """Set a value unconditionally."""

    key: Key
    value: bytes | str


@public
@dataclass(frozen=True, slots=True)
class Insert:
    """Set the value of an absent key."""

    key: Key
    value: bytes | str


@public
@dataclass(frozen=True, slots=True)
class Replace:
    """Set a value if the key has `version`."""

    key: Key
    value: bytes | str
    version: int


@public
@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a key; with `version`, only if the key has it."""

    key: Key
    version: int | None = None


Change: TypeAlias = Put | Insert | Replace | Remove
"""One change of `Table.update`."""


class Item(NamedTuple):
    """One key of a request.  `value` None: remove.  `expected`: a version, NOT_EXISTS, or NO_VERSION
    (unconditional)."""

    key: bytes
    value: bytes | None
    expected: int


class Batch(NamedTuple):
    """Items of one partition that are applied atomically."""

    partition: SegmentId
    items: tuple[Item, ...]
    removes: bool
    size: int

    @property
    def conditional(self) -> bool:
        """Whether the store may refuse it."""
        return any(item.expected != NO_VERSION for item in self.items)

    @property
    def repeatable(self) -> bool:
        """Whether it can be sent again when its outcome is unknown."""
        return not self.conditional or any(item.expected >= 0 for item in self.items)


def item_of(layout: Layout, change: Change) -> Item:
    """Validate a change.  Raises Invalid: a key of the wrong length, a value too large, a negative version."""
    key = layout.wire_key(change.key)
    if isinstance(change, Remove):
        if change.version is not None and change.version < 0:
            raise Invalid(f"{change.version} is no version of a key")
        return Item(key, None, NO_VERSION if change.version is None else change.version)
    value = change.value.encode() if isinstance(change.value, str) else change.value
    if not isinstance(value, bytes):
        raise Invalid(f"a value is bytes or text, not {type(value).__name__}")
    if len(value) > MAX_TABLE_VALUE_BYTES:
        raise Invalid(f"a value of a table has at most {MAX_TABLE_VALUE_BYTES} bytes, not {len(value)}")
    if isinstance(change, Replace):
        if change.version < 0:
            raise Invalid(f"{change.version} is no version of a key: use insert for an absent key")
        return Item(key, value, change.version)
    return Item(key, value, NOT_EXISTS if isinstance(change, Insert) else NO_VERSION)


def batch_of(layout: Layout, changes: Iterable[Change]) -> Batch:
    """Validate changes as one batch.  Raises Invalid: empty, too large, several partitions, writes and removes."""
    items = tuple(item_of(layout, change) for change in changes)
    if not 1 <= len(items) <= MAX_BATCH_KEYS:
        raise Invalid(f"a batch changes 1 to {MAX_BATCH_KEYS} keys, not {len(items)}")
    batch = make_batch(layout.partition(items[0].key), items)
    if batch.size > MAX_CLIENT_TABLE_BATCH_BYTES:
        raise Invalid(f"a batch has at most {MAX_CLIENT_TABLE_BATCH_BYTES} bytes of keys and values, not {batch.size}")
    if any((item.value is None) != batch.removes for item in items):
        raise Invalid("a batch either writes or removes: the protocol has no request that does both")
    if any(layout.partition(item.key) != batch.partition for item in items[1:]):
        raise Invalid("these keys are in several partitions: only keys with the same primary key are sure to share one")
    return batch


def make_batch(partition: SegmentId, items: Sequence[Item]) -> Batch:
    """Return a batch of validated items."""
    return Batch(partition, tuple(items), items[0].value is None, sum(map(size_of, items)))


def size_of(item: Item) -> int:
    """Return the estimated bytes of an item in a request."""
    return CLIENT_TABLE_ENTRY_OVERHEAD_BYTES + len(item.key) + len(item.value or b"")


def coalescible(waiting: Iterable[Batch]) -> int:
    """Return how many of the waiting batches, from the first on, are sent in one request: at least one."""
    keys: dict[bytes, bool] = {}
    count = size = items = 0
    removes = False
    for batch in waiting:
        items += len(batch.items)
        size += batch.size
        if count and (batch.removes != removes or items > MAX_BATCH_KEYS or size > MAX_COALESCED_BYTES):
            break
        conditional = batch.conditional
        # A key repeats within a request only while all its changes are unconditional.
        if count and any(item.key in keys and (conditional or keys[item.key]) for item in batch.items):
            break
        removes = batch.removes
        keys.update((item.key, conditional or keys.get(item.key, False)) for item in batch.items)
        count += 1
    return count
