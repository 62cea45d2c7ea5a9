"""Entries by key, as maps and sets share them: their bytes, and the state after each update (pure).

Format of the stream (a synchronizer's, after `formats.py`; lengths uint32, versions int64, all big-endian):

    initial   changes int64, {length of the key, length of the value, version, key, value}...
    update    "p", length of the key, key, value      put
              "r", key                                remove

`changes` counts the updates ever made.  The version of an entry is the count at its last put, so that versions rise
and never repeat, and every process computes the same.

A state is never changed: the next one shares all with it but one of many small dictionaries.  So an update copies
little, and two states are compared by what they do not share.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from sarit.client.structures.formats import body_of, with_header
from sarit.client.structures.limits import MAX_SHARED_KEY_BYTES, MAX_SHARED_STATE_BYTES
from sarit.core.errors import Corrupt, Invalid

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sarit.client.sync.revisioned_stream import Revision

_CHANGES: Final = struct.Struct(">q")
_ENTRY: Final = struct.Struct(">IIq")
_LENGTH: Final = struct.Struct(">I")
_PUT, _REMOVE = b"p", b"r"
_BUCKETS: Final = 256


class Stored(NamedTuple):
    """The value of a key, encoded, and its version."""

    value: bytes
    version: int


Bucket = dict[bytes, Stored]


class KeyedState:
    """All entries at one moment.  `changes`: updates until then; `size`: bytes of the entries as they are encoded."""

    __slots__ = ("_buckets", "changes", "count", "size")

    def __init__(self, buckets: tuple[Bucket, ...], changes: int, count: int, size: int) -> None:
        self._buckets = buckets
        self.changes = changes
        self.count = count
        self.size = size

    def __repr__(self) -> str:
        return f"KeyedState({self.count} entries, {self.size} bytes, after {self.changes} changes)"

    def get(self, key: bytes) -> Stored | None:
        """Return the entry of a key, None when it is absent."""
        return self._buckets[hash(key) % _BUCKETS].get(key)

    def items(self) -> list[tuple[bytes, Stored]]:
        """Return all entries in the order of their keys."""
        return sorted(item for bucket in self._buckets for item in bucket.items())

    def with_put(self, key: bytes, value: bytes) -> KeyedState:
        """Return the state after a put."""
        return self._with(key, Stored(value, self.changes + 1))

    def with_removal(self, key: bytes) -> KeyedState:
        """Return the state after a removal; of an absent key, too."""
        return self._with(key, None)

    def _with(self, key: bytes, new: Stored | None) -> KeyedState:
        place = hash(key) % _BUCKETS
        bucket = dict(self._buckets[place])
        old = bucket.pop(key, None)
        if new is not None:
            bucket[key] = new
        buckets = (*self._buckets[:place], bucket, *self._buckets[place + 1 :])
        count = self.count + (new is not None) - (old is not None)
        return KeyedState(buckets, self.changes + 1, count, self.size + _size(key, new) - _size(key, old))

    def differences(self, before: KeyedState | None) -> list[tuple[bytes, Stored | None]]:
        """Return the keys that differ from an earlier state, with their entries now: the removed ones first, the others
        by version."""
        earlier = EMPTY if before is None else before
        removed, put = list[tuple[bytes, Stored | None]](), list[tuple[bytes, Stored]]()
        for old, new in zip(earlier._buckets, self._buckets, strict=True):
            if old is not new:
                removed += [(key, None) for key in old if key not in new]
                put += [item for item in new.items() if old.get(item[0]) != item[1]]
        put.sort(key=lambda item: item[1].version)
        return [*sorted(removed), *put]


EMPTY: Final = KeyedState(({},) * _BUCKETS, 0, 0, 0)


def _size(key: bytes, stored: Stored | None) -> int:
    return 0 if stored is None else _ENTRY.size + len(key) + len(stored.value)


# -- bytes -------------------------------------------------------------------------------------------


def encode(kind: bytes, state: KeyedState) -> bytes:
    """Return the initial state."""
    parts = [_CHANGES.pack(state.changes)]
    for key, stored in state.items():
        parts += (_ENTRY.pack(len(key), len(stored.value), stored.version), key, stored.value)
    return with_header(kind, b"".join(parts))


def decode(kind: bytes, data: bytes) -> KeyedState:
    """Return the state of `encode`'s bytes.  Raises Invalid (another structure), Corrupt."""
    body = body_of(kind, data)
    if len(body) < _CHANGES.size:
        raise _corrupt()
    changes: int = _CHANGES.unpack_from(body)[0]
    buckets: list[Bucket] = [{} for _ in range(_BUCKETS)]
    count = size = 0
    for key, stored in _entries(body):
        bucket = buckets[hash(key) % _BUCKETS]
        if key in bucket or not 0 < stored.version <= changes:
            raise _corrupt()
        bucket[key] = stored
        count += 1
        size += _size(key, stored)
    return KeyedState(tuple(buckets), changes, count, size)


def _entries(body: bytes) -> Iterator[tuple[bytes, Stored]]:
    at = _CHANGES.size
    while at < len(body):
        if len(body) - at < _ENTRY.size:
            raise _corrupt()
        key_length, value_length, version = _ENTRY.unpack_from(body, at)
        begin = at + _ENTRY.size
        middle, at = begin + key_length, begin + key_length + value_length
        if at > len(body):
            raise _corrupt()
        yield body[begin:middle], Stored(body[middle:at], version)


def put(key: bytes, value: bytes) -> bytes:
    """Return the update that sets the value of a key."""
    return b"".join((_PUT, _LENGTH.pack(len(key)), key, value))


def remove(key: bytes) -> bytes:
    """Return the update that removes a key."""
    return _REMOVE + key


def apply(state: KeyedState, update: bytes, _: Revision) -> KeyedState:
    """Return the state after an update.  Raises Corrupt."""
    kind, rest = update[:1], update[1:]
    if kind == _REMOVE:
        return state.with_removal(rest)
    if kind != _PUT or len(rest) < _LENGTH.size:
        raise _corrupt()
    end = _LENGTH.size + _LENGTH.unpack_from(rest)[0]
    if end > len(rest):
        raise _corrupt()
    return state.with_put(rest[_LENGTH.size : end], rest[end:])


def _corrupt() -> Corrupt:
    return Corrupt("these bytes are not entries of a shared map or set: does something else write to this name?")


# -- what is refused ---------------------------------------------------------------------------------


def check_key(key: bytes, what: str) -> bytes:
    """Return a key that may be stored; `what` names it.  Raises Invalid."""
    if len(key) > MAX_SHARED_KEY_BYTES:
        raise Invalid(f"{what} has at most {MAX_SHARED_KEY_BYTES} bytes, not {len(key)}")
    return key


def check_size(state: KeyedState, puts: Sequence[tuple[bytes, bytes]], what: str) -> None:
    """Raise Invalid when a state would be too large after some puts of different keys."""
    more = sum(_size(key, Stored(value, 0)) - _size(key, state.get(key)) for key, value in puts)
    # What makes a state smaller is never refused, or one that is too large could not be mended.
    if more > 0 and state.size + more > MAX_SHARED_STATE_BYTES:
        raise Invalid(
            f"{what} would have {state.size + more} bytes, of at most {MAX_SHARED_STATE_BYTES}, since every process "
            "holds all of it: remove entries, or keep them in a table (client.table); nothing was changed"
        )
