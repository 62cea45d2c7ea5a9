"""Names of scopes, streams and segments, and the ids in them.

A stream segment is `scope/stream/<number>.#epoch.<epoch>`; derived segments append a suffix:
`#transaction.<32 hex>`, `#transient.<32 hex>.<32 hex>`, `#index`.  A segment id packs
`epoch << 32 | number` into an int64.  Source: Pravega `NameUtils`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sarit.core.errors import Invalid
from sarit.core.public import public

SYSTEM_SCOPE: Final = "_system"
READER_GROUP_PREFIX: Final = "_RG"
MARK_PREFIX: Final = "_MARK"
TABLE_SUFFIX: Final = "_kvtable"
EPOCH_DELIMITER: Final = ".#epoch."
TRANSACTION_DELIMITER: Final = "#transaction."
TRANSIENT_DELIMITER: Final = "#transient."
INDEX_SUFFIX: Final = "#index"
# The first half of the ids, as of transactions, of staged bytes: "sarit-mi" in ASCII.
_STAGING: Final = 0x73617269742D6D69

MAX_USER_NAME_CHARS: Final = 250
MAX_INTERNAL_NAME_CHARS: Final = 255

_USER_NAME = re.compile(r"[A-Za-z0-9.\-]+")
_INTERNAL_NAME = re.compile(r"_?[A-Za-z0-9.\-]+")
_LOW_32_BITS = 0xFFFFFFFF


def is_user_name(name: str) -> bool:
    """Return whether `name` may be given by a user to a scope, stream, table, group, reader or writer."""
    return len(name) <= MAX_USER_NAME_CHARS and _USER_NAME.fullmatch(name) is not None


def is_internal_name(name: str) -> bool:
    """Return whether `name` is legal on the server: a user name, or one with a leading underscore."""
    return len(name) <= MAX_INTERNAL_NAME_CHARS and _INTERNAL_NAME.fullmatch(name) is not None


@public
@dataclass(frozen=True, slots=True, order=True)
class SegmentId:
    """Which segment of a stream: the epoch that created it and its number (both int32, >= 0)."""

    epoch: int
    number: int

    def __str__(self) -> str:
        return f"{self.number}{EPOCH_DELIMITER}{self.epoch}"

    @property
    def packed(self) -> int:
        """The id as the int64 that the protocols carry."""
        return self.epoch << 32 | self.number

    @staticmethod
    def unpack(packed: int) -> SegmentId:
        """Return the inverse of `packed`.  Raises Invalid for a negative value."""
        if packed < 0:
            raise Invalid(f"segment id {packed} is negative")
        return SegmentId(packed >> 32, packed & _LOW_32_BITS)


@public
@dataclass(frozen=True, slots=True, order=True)
class StreamName:
    """`scope/stream`."""

    scope: str
    stream: str

    def __str__(self) -> str:
        return f"{self.scope}/{self.stream}"

    @staticmethod
    def parse(text: str) -> StreamName:
        """Return the name in the text `scope/stream`.  Raises Invalid with the reason."""
        scope, slash, stream = text.partition("/")
        if not slash or not is_internal_name(scope) or not is_internal_name(stream):
            raise Invalid(
                f"{text!r} is not SCOPE/STREAM (letters, digits, '.' and '-', at most "
                f"{MAX_USER_NAME_CHARS} characters each)"
            )
        return StreamName(scope, stream)

    def segment(self, segment: SegmentId) -> str:
        """Return the full name of one of this stream's segments."""
        return segment_name(self.scope, self.stream, segment)


def segment_name(scope: str, stream: str, segment: SegmentId) -> str:
    """Return the full name of a stream segment."""
    tail = f"{stream}/{segment}"
    return f"{scope}/{tail}" if scope else tail


def parse_segment_name(name: str) -> tuple[StreamName, SegmentId]:
    """Return the stream and the id in a stream segment's full name; suffixes of derived segments are dropped.

    A last token without `.#epoch.` means epoch 0.  Raises Invalid.
    """
    parts = parent_segment(name).split("/")
    if len(parts) not in (2, 3):
        raise Invalid(f"{name!r} is not the name of a stream segment")
    number, _, epoch = parts[-1].partition(EPOCH_DELIMITER)
    try:
        segment = SegmentId(int(epoch or "0"), int(number))
    except ValueError:
        raise Invalid(f"{name!r} is not the name of a stream segment") from None
    return StreamName(parts[0] if len(parts) == 3 else "", parts[-2]), segment


def transaction_segment(parent: str, transaction: int) -> str:
    """Return the shadow segment of `parent` for a 128-bit transaction id."""
    return f"{parent}{TRANSACTION_DELIMITER}{transaction:032x}"


def transient_segment(parent: str, writer: bytes, nonce: bytes) -> str:
    """Return a segment that lives as long as a connection; `writer` and `nonce` are 16 bytes each."""
    return f"{parent}{TRANSIENT_DELIMITER}{writer.hex()}.{nonce.hex()}"


def staging_segment(parent: str, offset: int, drops: int = 0) -> str:
    """Return the segment of bytes that a link stages for the mirror `parent`, which ends at `offset`.

    `drops`: how often what was staged for it was dropped, so that a late deletion never meets what is staged again."""
    return transaction_segment(parent, _STAGING + drops << 64 | offset)


def is_transient(name: str) -> bool:
    """Return whether `name` is a transient segment."""
    return TRANSIENT_DELIMITER in name


def is_transaction(name: str) -> bool:
    """Return whether `name` is a transaction's shadow segment."""
    _, delimiter, suffix = name.rpartition(TRANSACTION_DELIMITER)
    return bool(delimiter) and len(suffix) >= 32


def parent_segment(name: str) -> str:
    """Return the segment a derived one belongs to; a plain segment is its own parent."""
    for delimiter in (TRANSACTION_DELIMITER, TRANSIENT_DELIMITER):
        head, found, _ = name.partition(delimiter)
        if found:
            return head
    return name.removesuffix(INDEX_SUFFIX)


def placement_key(name: str) -> str:
    """Return the part of a name that selects the container: all segments derived from one share it."""
    return parent_segment(name).partition(EPOCH_DELIMITER)[0]
