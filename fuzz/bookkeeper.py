"""Fuzz targets of the formats of BookKeeper: (target, errors, seeds) by name, as in `fuzz/clients.py`."""

from __future__ import annotations

from typing import Final

from sarit.core.errors import Corrupt, Invalid
from sarit.log.bookkeeper import metadata
from sarit.log.bookkeeper.metadata import LedgerMetadata, LedgerState
from sarit.log.bookkeeper.wire import READ, ResponseReader, add_packet, parse_entry, read_request
from sarit.wire.errors import ProtocolError


def responses(data: bytes) -> None:
    """A connection: bytes cut at places given by the first one, each entry in them parsed."""
    reader, step = ResponseReader(), data[:1][0] + 1 if data else 1
    for at in range(1, len(data), step):
        rest = memoryview(data)[at : at + step]
        while rest:
            buffer = reader.get_buffer(len(rest))
            count = min(len(buffer), len(rest))
            assert count > 0
            buffer[:count] = rest[:count]
            rest = rest[count:]
            for response in reader.received(count):
                assert len(response.body) <= len(data)
                if response.operation == READ:
                    _parsed(bytes(response.body), response.ledger, response.entry)


def _parsed(body: bytes, ledger: int, entry: int) -> None:
    try:
        found = parse_entry(body, ledger, entry)
    except Corrupt:
        return
    parts = add_packet(
        ledger, found.entry, found.last_add_confirmed, found.length, [found.payload], recovery=False
    ).parts
    assert b"".join(parts)[28:] == body


def ledger_metadata(data: bytes) -> None:
    """Metadata of a ledger."""
    found = metadata.decode(data)
    assert metadata.decode(metadata.encode(found)) == found


def _seeds() -> tuple[bytes, ...]:
    entry = b"".join(add_packet(7, 3, 1, 11, [b"hello"], recovery=False).parts)[28:]
    head = bytes.fromhex("02020000 00000000 0000000000000007 0000000000000003")
    found = (len(head) + len(entry)).to_bytes(4, "big") + head + entry
    added = bytes.fromhex("00000018 02010000 00000000 0000000000000007 0000000000000003")
    missing = bytes.fromhex("00000018 02020000 00000002 0000000000000007 ffffffffffffffff")
    return tuple(bytes([step]) + added + found + missing + found for step in (0, 6, 255))


_METADATA: Final = LedgerMetadata(
    2, 2, 2, LedgerState.OPEN, ((0, ("a:1", "b:1")), (5, ("a:1", "c:1"))), custom={"k": b"v"}, ctoken=-1
)

DECODERS: Final = {
    "bookie_responses": (responses, (ProtocolError,), _seeds()),
    "bookie_requests": (responses, (ProtocolError,), (b"\0" + read_request(7, 3, fence=True),)),
    "ledger_metadata": (ledger_metadata, (Corrupt, Invalid), (metadata.encode(_METADATA),)),
}
