"""Batches of `write_many`: a list, or Arrow arrays, placed without touching single events where that can be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sarit.client.core.framing import binary_array, chunks_of_arrow
from sarit.core.errors import Invalid
from sarit.core.limits import EVENT_HEADER_BYTES

if TYPE_CHECKING:
    from sarit.client.writer.appender_driver import AppenderDriver
    from sarit.client.writer.partitioner import Partitioner


def as_event(event: Any) -> bytes:
    """`event` as bytes: text is encoded as UTF-8.  Raises Invalid."""
    if isinstance(event, str):
        return event.encode()
    if isinstance(event, bytes | bytearray | memoryview):
        return bytes(event)
    raise Invalid(f"an event is bytes or str, not {type(event).__name__}: encode it first")


def as_key(key: Any) -> str:
    """`key` as str.  Raises Invalid."""
    if isinstance(key, str):
        return str(key)
    raise Invalid(f"a key is a str, not {type(key).__name__}: turn it into one")


def _is_arrow(values: Any) -> bool:
    return type(values).__module__.partition(".")[0] == "pyarrow"


class Bulk:
    """Events and keys of one call: `events` a list of bytes or a large-binary Arrow array; `length` in bytes."""

    __slots__ = ("arrow", "count", "events", "keys", "length")

    def __init__(self, events: Any, keys: Any, count: int, length: int, *, arrow: bool) -> None:
        self.events = events
        self.keys = keys
        self.count = count
        self.length = length
        self.arrow = arrow

    @staticmethod
    def of(events: Any, keys: Any) -> Bulk:
        """Check and copy what the caller gave.  Raises Invalid."""
        if _is_arrow(events):
            bulk = _arrow_bulk(events, keys)
        else:
            if isinstance(events, str | bytes | bytearray | memoryview):
                raise Invalid("write_many takes a list or an Arrow array of events; `write` takes a single one")
            listed = list(events)
            if set(map(type, listed)) - {bytes}:
                listed = [as_event(event) for event in listed]
            if keys is not None:
                keys = keys.to_pylist() if _is_arrow(keys) else list(keys)
                if set(map(type, keys)) - {str, type(None)}:
                    keys = [None if key is None else as_key(key) for key in keys]
            length = sum(map(len, listed)) + EVENT_HEADER_BYTES * len(listed)
            bulk = Bulk(listed, keys, len(listed), length, arrow=False)
        if keys is not None and len(bulk.keys) != bulk.count:
            raise Invalid(f"{bulk.count} events and {len(bulk.keys)} keys: give one key (or None) per event")
        return bulk

    def place(self, spread: Partitioner) -> None:
        """Give the events to their lanes."""
        if not self.arrow:
            spread.place(self.events, self.keys)
            return
        if spread.slots.only is not None or self.keys is None:
            spread.add_all(chunks_of_arrow(self.events, self.keys))
            return
        self._place_by_key(spread)

    def _place_by_key(self, spread: Partitioner) -> None:
        """Hash each different key once, then filter per lane."""
        import numpy as np
        import pyarrow as pa

        encoded = self.keys.dictionary_encode()
        of_key = spread.slots.of_key
        lanes: dict[AppenderDriver, int] = {}
        lane_of_entry = [
            lanes.setdefault(of_key[key] if key is not None else spread.any_driver(), len(lanes))
            for key in encoded.dictionary.to_pylist()
        ]
        lane_of_null = lanes.setdefault(spread.any_driver(), len(lanes)) if encoded.null_count else 0
        indices = encoded.indices.fill_null(len(lane_of_entry)).to_numpy(zero_copy_only=False)
        lane_of = np.array([*lane_of_entry, lane_of_null], np.int64)[indices]
        for driver, number in lanes.items():
            mask = pa.array(lane_of == number)
            for chunk in chunks_of_arrow(self.events.filter(mask), self.keys.filter(mask)):
                spread.add(driver, chunk)


def _arrow_bulk(events: Any, keys: Any) -> Bulk:
    import pyarrow as pa

    array = binary_array(events)
    if keys is not None:
        if not _is_arrow(keys):
            keys = pa.array(keys, pa.string())
        elif isinstance(keys, pa.ChunkedArray):
            keys = keys.combine_chunks()
        if pa.types.is_dictionary(keys.type):
            keys = keys.dictionary_decode()
        keys = keys.cast(pa.string())
    length = array.nbytes + EVENT_HEADER_BYTES * len(array)
    return Bulk(array, keys, len(array), length, arrow=True)
