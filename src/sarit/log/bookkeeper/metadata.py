"""The metadata of a ledger, in the format in which BookKeeper stores it in ZooKeeper.

BookKeeper's format 3 is a line of text, then one protobuf message with its length before it.  The code here reads and
writes it without a protobuf library, since it has twelve fields, and bounds all of them.  Bytes and reasons:
docs/formats/bookkeeper.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Corrupt, Invalid
from sarit.log.bookkeeper.limits import (
    BOOKKEEPER_MAX_CUSTOM_ENTRIES,
    BOOKKEEPER_MAX_ENSEMBLE_SIZE,
    BOOKKEEPER_MAX_ENSEMBLES,
    BOOKKEEPER_MAX_METADATA_BYTES,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FORMAT_VERSION: Final = 3
MAGIC: Final = b"BookieMetadataFormatVersion\t"
LEDGERS_ROOT: Final = "/ledgers"
# The last entry of a ledger without entries, and of an open one: entry ids begin with 0.
NO_ENTRY: Final = -1
MAX_LEDGER_ID: Final = (1 << 63) - 1

_HEADER: Final = MAGIC + b"%d\n" % FORMAT_VERSION
_MASK: Final = (1 << 64) - 1
_SIGN: Final = 1 << 63
_MAX_VARINT_LENGTH: Final = 10
# The wire types of protobuf.
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED: Final = {_FIXED64: 8, _FIXED32: 4}


class LedgerState(Enum):
    """The state of a ledger, which changes only in this order, or from OPEN to CLOSED."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


class DigestType(Enum):
    """The kind of digest that protects the entries of a ledger."""

    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """The metadata of a ledger.

    `ensembles`: (first entry, bookie ids) of each ensemble, by first entry; the first one begins with entry 0.
    `last_entry`: the last entry of a closed ledger; NO_ENTRY without entries, and until it is closed.  `length`: the
    bytes of all payloads of a closed ledger.  `created_ms`: 0 when it is not known.  `custom`: values that the creator
    has chosen.  `ctoken`: a random number of the creator, which recognizes its ledger after a lost reply."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    state: LedgerState
    ensembles: tuple[tuple[int, tuple[str, ...]], ...]
    last_entry: int = NO_ENTRY
    length: int = 0
    digest: DigestType = DigestType.CRC32C
    password: bytes = b""
    created_ms: int = 0
    custom: Mapping[str, bytes] = field(default_factory=dict)
    ctoken: int = 0

    def ensemble_at(self, entry: int) -> tuple[str, ...]:
        """Return the bookies of the ensemble that has `entry`, which is not negative."""
        assert entry >= 0, entry
        return next(bookies for first, bookies in reversed(self.ensembles) if first <= entry)


def path_of(ledger: int, root: str = LEDGERS_ROOT) -> str:
    """Return the path of a ledger's metadata in the layout `longhierarchical`.  Raises Invalid for a negative id."""
    if not 0 <= ledger <= MAX_LEDGER_ID:
        raise Invalid(f"{ledger} is no ledger id: those are 0 to {MAX_LEDGER_ID}")
    digits = f"{ledger:019d}"
    return f"{root}/{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"


def encode(metadata: LedgerMetadata) -> bytes:
    """Return the bytes to store.  Raises Invalid (the metadata breaks a bound, or a rule that `decode` checks)."""
    wrong = _wrong(metadata)
    if wrong:
        raise Invalid(f"metadata of a ledger: {wrong}")
    out = bytearray()
    _put_number(out, 1, metadata.write_quorum)
    _put_number(out, 2, metadata.ensemble_size)
    _put_number(out, 3, metadata.length)
    _put_number(out, 4, metadata.last_entry)
    _put_number(out, 5, metadata.state.value)
    for first, bookies in metadata.ensembles:
        segment = bytearray()
        for bookie in bookies:
            _put_bytes(segment, 1, bookie.encode())
        _put_number(segment, 2, first)
        _put_bytes(out, 6, segment)
    _put_number(out, 7, metadata.digest.value)
    _put_bytes(out, 8, metadata.password)
    _put_number(out, 9, metadata.ack_quorum)
    if metadata.created_ms:  # the Java client leaves this field out when it is not known
        _put_number(out, 10, metadata.created_ms)
    for key, value in metadata.custom.items():
        pair = bytearray()
        _put_bytes(pair, 1, key.encode())
        _put_bytes(pair, 2, value)
        _put_bytes(out, 11, pair)
    _put_number(out, 12, metadata.ctoken)
    data = _HEADER + _varint(len(out)) + out
    if len(data) > BOOKKEEPER_MAX_METADATA_BYTES:
        raise Invalid(f"metadata of a ledger has {len(data)} bytes, the bound is {BOOKKEEPER_MAX_METADATA_BYTES}")
    return data


def decode(data: bytes, name: str = "metadata of a ledger") -> LedgerMetadata:
    """Return the metadata that any client of BookKeeper stored.  `name`: what the bytes are, for error messages.

    Unknown fields are ignored, as by the Java client.  Raises Corrupt (damaged, or out of bounds), Invalid (another
    format version)."""
    if len(data) > BOOKKEEPER_MAX_METADATA_BYTES:
        raise Corrupt(f"{name} has {len(data)} bytes, the bound is {BOOKKEEPER_MAX_METADATA_BYTES}")
    if not data.startswith(_HEADER):
        version, newline, _ = data.removeprefix(MAGIC).partition(b"\n")
        if data.startswith(MAGIC) and newline and version.isdigit():
            raise Invalid(f"{name} is of format {version[:9].decode()}; this version of Sarit reads {FORMAT_VERSION}")
        raise Corrupt(f"{name} begins with {data[:16]!r}: no metadata of BookKeeper")
    try:
        length, start = _read_varint(data, len(_HEADER))
        if length != len(data) - start:
            raise ValueError(f"the message has {len(data) - start} bytes and claims {length}")
        metadata = _parse(data[start:])
    except ValueError as error:  # also UnicodeDecodeError
        raise Corrupt(f"{name} is damaged: {error}") from None
    wrong = _wrong(metadata)
    if wrong:
        raise Corrupt(f"{name} is damaged: {wrong}")
    return metadata


def _wrong(metadata: LedgerMetadata) -> str | None:
    """Return the rule that `metadata` breaks, as a text; None when it breaks none."""
    sizes = (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
    if not BOOKKEEPER_MAX_ENSEMBLE_SIZE >= sizes[0] >= sizes[1] >= sizes[2] >= 1:
        return f"ensemble, write quorum and ack quorum are {sizes}, each at least the next and at least 1"
    if not 1 <= len(metadata.ensembles) <= BOOKKEEPER_MAX_ENSEMBLES:
        return f"{len(metadata.ensembles)} ensembles, the bounds are 1 and {BOOKKEEPER_MAX_ENSEMBLES}"
    before = NO_ENTRY
    for index, (first, bookies) in enumerate(metadata.ensembles):
        if first <= before or (index == 0 and first != 0):
            return f"ensemble {index} begins with entry {first}, the one before it with {before}"
        if len(bookies) != metadata.ensemble_size or len(set(bookies)) != len(bookies) or not all(bookies):
            return f"ensemble {index} has the bookies {bookies}, and should have {metadata.ensemble_size} different"
        before = first
    if metadata.last_entry < NO_ENTRY or metadata.length < 0:
        return f"last entry {metadata.last_entry}, length {metadata.length}"
    if len(metadata.custom) > BOOKKEEPER_MAX_CUSTOM_ENTRIES:
        return f"{len(metadata.custom)} custom entries, the bound is {BOOKKEEPER_MAX_CUSTOM_ENTRIES}"
    return None


def _parse(data: bytes) -> LedgerMetadata:
    """Return the metadata in a protobuf message.  Raises ValueError."""
    numbers: dict[int, int] = {}
    password = b""
    ensembles: list[tuple[int, tuple[str, ...]]] = []
    custom: dict[str, bytes] = {}
    for number, value in fields(data):
        if number == 6:
            ensembles.append(_parse_ensemble(_as_bytes(number, value)))
        elif number == 8:
            password = _as_bytes(number, value)
        elif number == 11:
            key, text = _parse_pair(_as_bytes(number, value))
            custom[key] = text
        elif number in (1, 2, 3, 4, 5, 7, 9, 10, 12):
            numbers[number] = _as_number(number, value)
    missing = [number for number in (1, 2, 3, 5, 7) if number not in numbers]
    if missing:
        raise ValueError(f"the fields {missing} are missing")
    return LedgerMetadata(
        ensemble_size=numbers[2],
        write_quorum=numbers[1],
        ack_quorum=numbers.get(9, numbers[1]),
        state=LedgerState(numbers[5]),
        ensembles=tuple(ensembles),
        last_entry=numbers.get(4, NO_ENTRY),
        length=numbers[3],
        digest=DigestType(numbers[7]),
        password=password,
        created_ms=numbers.get(10, 0),
        custom=custom,
        ctoken=numbers.get(12, 0),
    )


def _parse_ensemble(data: bytes) -> tuple[int, tuple[str, ...]]:
    bookies: list[str] = []
    first = NO_ENTRY
    for number, value in fields(data):
        if number == 1:
            bookies.append(_as_bytes(number, value).decode())
        elif number == 2:
            first = _as_number(number, value)
    return first, tuple(bookies)


def _parse_pair(data: bytes) -> tuple[str, bytes]:
    key, content = "", b""
    for number, value in fields(data):
        if number == 1:
            key = _as_bytes(number, value).decode()
        elif number == 2:
            content = _as_bytes(number, value)
    return key, content


# -- protobuf -----------------------------------------------------------------------------------


def _varint(value: int) -> bytes:
    """Return `value` as protobuf's int64, of which a negative one takes ten bytes."""
    value &= _MASK
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _put_number(out: bytearray, number: int, value: int) -> None:
    out += _varint(number << 3 | _VARINT) + _varint(value)


def _put_bytes(out: bytearray, number: int, value: bytes | bytearray) -> None:
    out += _varint(number << 3 | _BYTES) + _varint(len(value)) + value


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the value of a varint, and where it ends.  Raises ValueError."""
    value = 0
    for index, byte in enumerate(data[at : at + _MAX_VARINT_LENGTH]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            value &= _MASK
            return (value - (_SIGN << 1) if value >= _SIGN else value), at + index + 1
    raise ValueError("a number does not end")


def fields(data: bytes) -> Iterator[tuple[int, int | bytes | None]]:
    """Yield (number, value) of each field; the value is None for kinds that are not read.  Raises ValueError."""
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _read_varint(data, at)
            yield number, value
            continue
        if kind == _BYTES:
            length, at = _read_varint(data, at)
        elif kind in _FIXED:
            length = _FIXED[kind]
        else:
            raise ValueError(f"field {number} has the wire type {kind}")
        if not 0 <= length <= len(data) - at:
            raise ValueError(f"field {number} claims {length} bytes, and {len(data) - at} are left")
        yield number, data[at : at + length] if kind == _BYTES else None
        at += length


def _as_bytes(number: int, value: int | bytes | None) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError(f"field {number} is no text")
    return value


def _as_number(number: int, value: int | bytes | None) -> int:
    if not isinstance(value, int):
        raise ValueError(f"field {number} is no number")
    return value
