"""Batches of `write_many`: a list, or Arrow arrays, placed without handling single events where possible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sarit.client.core.framing import binary_array, chunks_of_arrow
from sarit.core.envelope import Envelope
from sarit.core.errors import Invalid
from sarit.core.extras import require
from sarit.core.limits import EVENT_HEADER_BYTES

if TYPE_CHECKING:
    from sarit.client.writer.appender_driver import AppenderDriver
    from sarit.client.writer.partitioner import Partitioner


def as_event(event: Any) -> bytes:
    """`event` as bytes: text is encoded as UTF-8, an envelope as docs/formats/envelope.md says.  Raises Invalid."""
    if isinstance(event, Envelope):
        return bytes(event)
    if isinstance(event, str):
        try:
            return event.encode()
        except UnicodeEncodeError:
            raise Invalid(f"an event is a str of valid Unicode, which {ascii(event)[:60]} is not") from None
    if isinstance(event, bytes | bytearray | memoryview):
        return bytes(event)
    raise Invalid(f"an event is bytes, str or Envelope, not {type(event).__name__}: encode it first")


def as_key(key: Any) -> str:
    """`key` as str.  Raises Invalid."""
    if isinstance(key, str):
        return str(key)
    raise Invalid(f"a key is a str, not {type(key).__name__}: convert it")


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
            # A copy: the caller may change its list before the dispatch.
            listed = list(events)
            kinds = set(map(type, listed))
            if keys is None and Envelope in kinds:
                keys = [event.key if isinstance(event, Envelope) else None for event in listed]
            # One pass in C: the loop runs only when something is not bytes.
            if kinds - {bytes}:
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

    def place(self, partitioner: Partitioner) -> None:
        """Give the events to their appenders."""
        if not self.arrow:
            partitioner.place(self.events, self.keys)
            return
        # No key decides anything: the keys only travel along, in case the segment is sealed.
        if partitioner.key_ranges.only is not None or self.keys is None:
            limit = partitioner.chunk_bytes(lambda: self.length)
            partitioner.add_all(chunks_of_arrow(self.events, self.keys, limit))
            return
        self._place_by_key(partitioner)

    def _place_by_key(self, partitioner: Partitioner) -> None:
        """Hash each different key once, then filter per appender."""
        import numpy as np
        import pyarrow as pa

        # 1. Each different key -> a number of its appender.
        encoded = self.keys.dictionary_encode()
        of_key = partitioner.key_ranges.of_key
        appenders: dict[AppenderDriver, int] = {}
        appender_of_entry = [
            appenders.setdefault(of_key[key] if key is not None else partitioner.sticky_driver(), len(appenders))
            for key in encoded.dictionary.to_pylist()
        ]
        appender_of_null = (
            appenders.setdefault(partitioner.sticky_driver(), len(appenders)) if encoded.null_count else 0
        )
        # 2. Each event -> that number; an event without a key has the entry after the last.
        indices = encoded.indices.fill_null(len(appender_of_entry)).to_numpy(zero_copy_only=False)
        appender_of = np.array([*appender_of_entry, appender_of_null], np.int64)[indices]
        # 3. One filter per appender.  It preserves the order, and with it the order of each key.
        for driver, number in appenders.items():
            mask = pa.array(appender_of == number)
            for chunk in chunks_of_arrow(self.events.filter(mask), self.keys.filter(mask)):
                partitioner.add(driver, chunk)


def _arrow_bulk(events: Any, keys: Any) -> Bulk:
    require("arrow", "an array of Arrow")  # numpy is not there with each pyarrow
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
