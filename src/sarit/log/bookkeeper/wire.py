"""The wire protocol of bookies: encodes requests, decodes responses.

This is version 2 of BookKeeper's protocol.  A bookie takes a connection for version 3 until the first frame of version
2, and for version 2 from then on: so a connection never carries both.  Bytes: docs/formats/bookkeeper.md.

A response names only the operation, the ledger and the entry of its request; `connection.py` describes what follows
from that.

Frames that are received whole in the window are copied out of it.  A large incomplete frame gets a buffer of its size,
and the rest is received straight into that.  Bodies that were returned are never modified.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Corrupt, Invalid
from sarit.log.bookkeeper.digest import OUR_DIGEST, OUR_MASTER_KEY, EntryDigest
from sarit.log.bookkeeper.limits import (
    BOOKKEEPER_LARGE_RESPONSE_BYTES,
    BOOKKEEPER_MAX_FRAME_BYTES,
    BOOKKEEPER_RECEIVE_WINDOW_BYTES,
)
from sarit.log.bookkeeper.metadata import NO_ENTRY
from sarit.log.bookkeeper.port import AddPacket, Code
from sarit.log.limits import LOG_JOIN_BELOW_BYTES
from sarit.wire.errors import ProtocolError
from sarit.wire.frames import Window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.env.ports import Buffer

VERSION: Final = 2
ADD: Final = 1
READ: Final = 2
FENCE: Final = 1
RECOVERY_ADD: Final = 2

TOO_MANY_REQUESTS_STATUS: Final = 106

_CODES: Final = {
    0: Code.OK,
    1: Code.NO_LEDGER,
    2: Code.NO_ENTRY,
    102: Code.UNAUTHORIZED,
    104: Code.FENCED,
    105: Code.READ_ONLY,
    TOO_MANY_REQUESTS_STATUS: Code.TOO_MANY_REQUESTS,
}

# Fields: length of the rest, header, master key.
_ADD_HEAD: Final = struct.Struct(">II20s")
# Fields: length of the rest, header, ledger, entry.
_READ_HEAD: Final = struct.Struct(">IIqq")
# Fields: header, return code, ledger, entry.
_RESPONSE: Final = struct.Struct(">Iiqq")
# Fields: ledger, entry, last add confirmed, length of all payloads up to this one.
_ENTRY: Final = struct.Struct(">qqqq")
_LENGTH: Final = struct.Struct(">I")
_NOTHING: Final = b""
ENTRY_HEADER_LENGTH: Final = _ENTRY.size


def _header(operation: int, flags: int) -> int:
    return VERSION << 24 | operation << 16 | flags


def add_packet(
    ledger: int, entry: int, last_add_confirmed: int, length: int, payload: Sequence[Buffer], *,
    recovery: bool, digest: EntryDigest = OUR_DIGEST, key: bytes = OUR_MASTER_KEY,
) -> AddPacket:  # fmt: skip
    """Return the request to store an entry, the same for all bookies.

    `length`: the bytes of all payloads of the ledger up to and with this one.  `recovery`: whether a fenced ledger
    accepts it.  Large parts of the payload are not copied, and must not change.  Raises Invalid (too large for a
    bookie)."""
    header = _ENTRY.pack(ledger, entry, last_add_confirmed, length)
    entry_digest = digest.of((header, *payload))
    size = _ADD_HEAD.size + len(header) + len(entry_digest) + sum(map(len, payload))
    if size - _LENGTH.size > BOOKKEEPER_MAX_FRAME_BYTES:
        raise Invalid(
            f"entry {entry} takes {size} bytes on the wire, and bookies take {BOOKKEEPER_MAX_FRAME_BYTES}: split it"
        )
    head = _ADD_HEAD.pack(size - _LENGTH.size, _header(ADD, RECOVERY_ADD if recovery else 0), key)
    return AddPacket(tuple(_joined([head, header, entry_digest, *payload])), size)


def _joined(parts: list[Buffer]) -> list[Buffer]:
    """Return the parts, with small neighbours joined."""
    joined: list[Buffer] = []
    small: list[Buffer] = []
    for part in parts:
        if len(part) <= LOG_JOIN_BELOW_BYTES:
            small.append(part)
            continue
        if small:
            joined.append(b"".join(small))
            small = []
        joined.append(part)
    if small:
        joined.append(b"".join(small))
    return joined


def read_request(ledger: int, entry: int, *, fence: bool, key: bytes = OUR_MASTER_KEY) -> bytes:
    """Return the request to read an entry; NO_ENTRY: the last one that the bookie has.

    `fence`: let the bookie refuse all later adds to the ledger, except those of a recovery."""
    if not fence:
        return _READ_HEAD.pack(_READ_HEAD.size - _LENGTH.size, _header(READ, 0), ledger, entry)
    return _READ_HEAD.pack(_READ_HEAD.size - _LENGTH.size + len(key), _header(READ, FENCE), ledger, entry) + key


@dataclass(slots=True)
class Response:
    """The response of a bookie.  `body`: the entry that a read found, else empty.  `status`: the code of BookKeeper."""

    operation: int
    status: int
    ledger: int
    entry: int
    body: Buffer

    @property
    def code(self) -> Code:
        """The meaning of the status."""
        return _CODES.get(self.status, Code.FAILED)


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry whose digest is right.

    `last_add_confirmed`: NO_ENTRY when the writer knew of none.  `length`: the bytes of all payloads up to this one."""

    entry: int
    last_add_confirmed: int
    length: int
    payload: memoryview


def parse_entry(body: Buffer, ledger: int, entry: int, digest: EntryDigest = OUR_DIGEST) -> Entry:
    """Return the stored entry in the answer to a read of `entry` of `ledger`; the payload is a view of `body`.

    Raises Corrupt (the digest is wrong, or it is another entry)."""
    view = memoryview(body).toreadonly()
    start = _ENTRY.size + digest.length
    if len(view) < start:
        raise Corrupt(f"entry {entry} of ledger {ledger} has {len(view)} bytes, and at least {start} are needed")
    header, payload = view[: _ENTRY.size], view[start:]
    if digest.of((header, payload)) != view[_ENTRY.size : start]:
        raise Corrupt(f"entry {entry} of ledger {ledger}: its digest is wrong")
    found_ledger, found_entry, confirmed, length = _ENTRY.unpack(header)
    # Check the fields, which may be anything if the ledger has no digest.
    if found_ledger != ledger or found_entry < 0 or (entry != NO_ENTRY and found_entry != entry):
        raise Corrupt(f"entry {entry} of ledger {ledger}: the bookie sent {found_entry} of {found_ledger}")
    if not NO_ENTRY <= confirmed < found_entry or length < len(payload):
        raise Corrupt(f"entry {entry} of ledger {ledger}: confirmed {confirmed}, length {length} are impossible")
    return Entry(found_entry, confirmed, length, payload)


class ResponseReader:
    """A decoder of received bytes into responses: fill `get_buffer`, then pass the number of bytes to `received`."""

    __slots__ = ("_direct", "_failed", "_filled", "_partial", "_window")

    def __init__(self, window: Window | None = None) -> None:
        """`window`: a receive buffer shared with other readers; None for a separate one."""
        self._window = Window() if window is None else window
        self._partial: bytes = _NOTHING  # the start of an incomplete frame that is not large
        self._direct: memoryview | None = None  # the buffer of an incomplete large frame, with its length field
        self._filled = 0  # how many bytes of `_direct` were received
        self._failed = False

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return the buffer for the next bytes; never empty."""
        if self._direct is not None:
            return self._direct[self._filled :]
        window = self._window.of(BOOKKEEPER_RECEIVE_WINDOW_BYTES)
        kept = len(self._partial)
        window[:kept] = self._partial
        return window[kept:]

    def received(self, count: int) -> list[Response]:
        """Decode `count` bytes that were written to the buffer.  Returns the complete responses.

        Raises ProtocolError, then also on every later call: close the connection."""
        if self._failed:
            raise ProtocolError("an earlier frame on this connection was wrong")
        self._failed = True
        responses: list[Response] = []
        if self._direct is not None:
            self._filled += count
            if self._filled == len(self._direct):
                responses.append(_parse(self._direct.toreadonly(), _LENGTH.size, self._filled, copy=False))
                self._direct = None
        else:
            self._split(count, responses)
        self._failed = False
        return responses

    def _split(self, count: int, responses: list[Response]) -> None:
        end = len(self._partial) + count
        data = self._window.of(BOOKKEEPER_RECEIVE_WINDOW_BYTES)[:end]
        self._partial = _NOTHING
        at = 0
        while end - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(data, at)
            if not _RESPONSE.size <= length <= BOOKKEEPER_MAX_FRAME_BYTES:
                raise ProtocolError(
                    f"a response claims {length} bytes, the bounds are {_RESPONSE.size} and "
                    f"{BOOKKEEPER_MAX_FRAME_BYTES}: is this the port of a bookie?"
                )
            begin = at + _LENGTH.size
            if begin + length > end:
                if length >= BOOKKEEPER_LARGE_RESPONSE_BYTES:
                    self._direct = memoryview(bytearray(_LENGTH.size + length))
                    self._filled = end - at
                    self._direct[: self._filled] = data[at:end]
                    return
                break
            responses.append(_parse(data, begin, begin + length, copy=True))
            at = begin + length
        self._partial = bytes(data[at:end])


def _parse(data: memoryview, begin: int, end: int, *, copy: bool) -> Response:
    """Return the response at `data[begin:end]`.  Raises ProtocolError."""
    header, status, ledger, entry = _RESPONSE.unpack_from(data, begin)
    operation = header >> 16 & 0xFF
    if header >> 24 != VERSION or operation not in (ADD, READ):
        raise ProtocolError(f"a response with the header {header:#010x}: not of version {VERSION}, or of no request")
    begin += _RESPONSE.size
    if begin == end:
        return Response(operation, status, ledger, entry, _NOTHING)
    return Response(operation, status, ledger, entry, bytes(data[begin:end]) if copy else data[begin:end])
