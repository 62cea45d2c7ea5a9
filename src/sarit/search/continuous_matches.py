"""Matches as events of the outputs.  Pure.  Format: docs/formats/continuous-queries.md.

    {"query": "late-orders", "id": "6f…", "stream": "shop/orders", "segment": 0, "offset": 4711, "time_ms": 17…}

For queries that want it with `"event"`, the text of the event, `"event_base64"` if it is no UTF-8, or `"event_bytes"`,
its length, if it is too long to be copied.  The routing key is the name of the query: its matches stay in the order in
which its events were in their segments.
"""

from __future__ import annotations

import json
from base64 import b64encode
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from sarit.core.names import StreamName
from sarit.search.batch_index import places as event_numbers
from sarit.search.continuous_plan import Proof
from sarit.search.limits import CONTINUOUS_ENCODED_MATCHES, MAX_MATCH_EVENT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sarit.search.continuous_rows import ContinuousQuery
    from sarit.search.continuous_set import Asked

# The output, the proof that it is there, the routing key, and the event.
Match: TypeAlias = tuple[StreamName, Proof, str, bytes]


def encoded(
    asked: Asked,
    found: Sequence[tuple[bytes, int]],
    places: Sequence[tuple[int, int]],
    events: Sequence[bytes],
    times: Sequence[int | None],
) -> Iterator[Match]:
    """Yield the matches of some events.  `found`: (the key of a query among the asked ones, its events' bitmap)."""
    for key, bitmap in found:
        query = asked.queries[key]
        assert query.adopted is not None
        output, with_event = query.adopted.output, query.adopted.with_event
        for event in event_numbers(bitmap):
            segment, offset = places[event]
            document = _document(query, segment, offset, times[event], events[event] if with_event else None)
            yield output, Proof(query.id, segment, offset), query.name, document


def _document(query: ContinuousQuery, segment: int, offset: int, time_ms: int | None, event: bytes | None) -> bytes:
    document: dict[str, Any] = {
        "query": query.name, "id": query.id, "stream": str(query.stream), "segment": segment, "offset": offset,
    }  # fmt: skip
    if time_ms is not None:
        document["time_ms"] = time_ms
    if event is not None and len(event) > MAX_MATCH_EVENT_BYTES:
        document["event_bytes"] = len(event)
    elif event is not None:
        try:
            document["event"] = event.decode()
        except UnicodeDecodeError:
            document["event_base64"] = b64encode(event).decode()
    return json.dumps(document, ensure_ascii=False).encode(errors="replace")


def next_ones(matches: Iterator[Match]) -> dict[StreamName, tuple[Proof, list[tuple[str, bytes]]]]:
    """Return some more matches by their outputs, each with the first of them as proof; none: that was all."""
    found: dict[StreamName, tuple[Proof, list[tuple[str, bytes]]]] = {}
    for output, proof, key, data in islice(matches, CONTINUOUS_ENCODED_MATCHES):
        known = found.get(output)
        if known is None:
            found[output] = proof, [(key, data)]
        else:
            known[1].append((key, data))
    return found


def is_proof(data: bytes, proof: Proof) -> bool:
    """Return whether an event of an output is a certain match."""
    try:
        found = json.loads(data)
        return (found["id"], found["segment"], found["offset"]) == (proof.query, proof.segment, proof.offset)
    except (ValueError, LookupError, TypeError, RecursionError):
        return False
