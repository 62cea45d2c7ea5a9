"""What an installation knows of a stream that takes part in a link, besides the stream's own record: as a value, and
its bytes (docs/formats/controller-records.md).

The row `o/STREAM/l` (`controller.keys.mirror_key`) belongs to a mirror, to a promoted mirror (whose history is in
`lineages`), and to a source that was made read-only.  It is deleted with the stream.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from sarit.controller.model.codec import MIRROR_ROW_WITH_DROPS, decode_chunk, encode_chunk, pack_cut, take_cut
from sarit.core.errors import Corrupt, Invalid
from sarit.core.policies import RetentionPolicy, RetentionType
from sarit.core.versioned_objects import Cursor, pack_int, pack_long, pack_text
from sarit.mirror.limits import LINK_ID_BYTES
from sarit.mirror.values import Lineage, LinkIdentity, Round

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sarit.controller.model.cuts import Cut
    from sarit.controller.ports import TableValue
    from sarit.core.names import StreamName

T = TypeVar("T")

_VERSION: Final = b"\x01"
_RETENTION: Final = struct.Struct(">Bqq")
NO_LINK: Final = LinkIdentity(b"", "", "")


@dataclass(frozen=True, slots=True)
class MirrorRecord:
    """The knowledge of a stream that takes part in a link.

    `link`: which writes the mirror, or wrote it until it was promoted; NO_LINK: none.  `path`: the installations
    through which the stream came here, its source last.  `lineages`: all promotions, oldest first.  `version`: of the
    source's facts that the mirror has.  `retention`: the policy that the link gave last.  `decided`: the round that is
    to be carried out, whatever happens.  `promoting`: the promotion that is to be carried out.  `lost`: the bytes that
    the source dropped before they were copied.  `fenced`: this stream is read-only because its mirror was promoted as
    that lineage; empty: it is not.  `head`: where the mirror begins, as long as it has not all epochs of that cut yet;
    until then the segments before it stand in for those that are to come, without any bytes.  `drops`: how often what
    was staged for a segment was dropped, of those with any: the staged bytes have another name after each."""

    link: LinkIdentity = NO_LINK
    path: tuple[str, ...] = ()
    lineages: tuple[Lineage, ...] = ()
    version: int = 0
    retention: RetentionPolicy = field(default_factory=RetentionPolicy)
    decided: Round | None = None
    promoting: Lineage | None = None
    lost: int = 0
    fenced: bytes = b""
    head: Cut = field(default_factory=dict)
    drops: Cut = field(default_factory=dict)


def encode_mirror(record: MirrorRecord) -> bytes:
    """Encode what is known of a stream that takes part in a link."""
    decided, promoting = record.decided, record.promoting
    return b"".join(
        (
            MIRROR_ROW_WITH_DROPS + pack_cut(record.drops) if record.drops else _VERSION,
            _pack_bytes(record.link.link_id),
            pack_text(record.link.name),
            pack_text(record.link.installation),
            _pack_all(map(pack_text, record.path)),
            _pack_all(map(_pack_lineage, record.lineages)),
            pack_long(record.version),
            _RETENTION.pack(record.retention.type, record.retention.limit, record.retention.maximum),
            _pack_all([] if decided is None else [_pack_round(decided)]),
            _pack_all([] if promoting is None else [_pack_lineage(promoting)]),
            pack_long(record.lost),
            _pack_bytes(record.fenced),
            pack_cut(record.head),
        )
    )


def decode_mirror(name: StreamName, data: bytes) -> MirrorRecord:
    """Decode what is known of the stream `name`.  Raises Corrupt."""
    if data[:1] not in (_VERSION, MIRROR_ROW_WITH_DROPS):
        found = data[:1].hex() or "none"
        raise Corrupt(f"the mirror's record of {name} is of version {found}; this release of Sarit reads 01 and 02")
    cursor = Cursor(data)
    try:
        drops = take_cut(cursor) if cursor.take(1) == MIRROR_ROW_WITH_DROPS else {}
        record = _record(name, cursor, drops)
    except (Invalid, ValueError, struct.error, IndexError, Corrupt) as error:
        raise Corrupt(f"the mirror's record of {name} cannot be read: {error}") from error
    if not cursor.at_end:
        raise Corrupt(f"the mirror's record of {name} has bytes after its end")
    return record


def read_mirror(name: StreamName, value: TableValue | None) -> MirrorRecord | None:
    """Return the record in a row; None: the stream takes part in no link."""
    return None if value is None else decode_mirror(name, value.value)


def _record(name: StreamName, c: Cursor, drops: Cut) -> MirrorRecord:
    link = LinkIdentity(_take_bytes(c), c.text(), c.text())
    path, lineages = tuple(_take_all(c, c.text)), tuple(_take_all(c, lambda: _take_lineage(c)))
    version = c.compact_long()
    kind, limit, maximum = _RETENTION.unpack(c.take(_RETENTION.size))
    decided, promoting = _take_all(c, lambda: _take_round(name, c)), _take_all(c, lambda: _take_lineage(c))
    if max(len(decided), len(promoting)) > 1:
        raise Invalid("there is more than one decision")
    return MirrorRecord(
        link,
        path,
        lineages,
        version,
        RetentionPolicy(RetentionType(kind), limit, maximum),
        decided[0] if decided else None,
        promoting[0] if promoting else None,
        c.compact_long(),
        _take_bytes(c),
        take_cut(c),
        drops,
    )


def _pack_round(decided: Round) -> bytes:
    epochs = encode_chunk(decided.epochs)
    return b"".join(
        (
            pack_cut(decided.before),
            pack_cut(decided.after),
            _pack_all(map(pack_long, sorted(decided.sealed))),
            pack_int(len(epochs)),
            epochs,
            bytes((decided.ends,)),
            pack_cut(decided.head),
        )
    )


def _take_round(name: StreamName, c: Cursor) -> Round:
    before, after, sealed = take_cut(c), take_cut(c), frozenset(_take_all(c, c.compact_long))
    epochs = decode_chunk(c.take(c.compact_int()))
    return Round(name, before, after, sealed, epochs, bool(c.number(1)), take_cut(c))


def _pack_lineage(lineage: Lineage) -> bytes:
    return b"".join(
        (
            _pack_bytes(lineage.lineage_id),
            pack_int(lineage.epoch),
            pack_text(lineage.installation),
            pack_cut(lineage.ends),
        )
    )


def _take_lineage(c: Cursor) -> Lineage:
    return Lineage(_take_bytes(c), c.compact_int(), c.text(), take_cut(c))


def _pack_bytes(data: bytes) -> bytes:
    return bytes((len(data),)) + data


def _take_bytes(c: Cursor) -> bytes:
    data = c.take(c.number(1))
    if len(data) not in (0, LINK_ID_BYTES):
        raise Invalid(f"an id has {len(data)} bytes")
    return data


def _pack_all(parts: Iterable[bytes] | Sequence[bytes]) -> bytes:
    packed = list(parts)
    return pack_int(len(packed)) + b"".join(packed)


def _take_all(c: Cursor, take: Callable[[], T]) -> list[T]:
    return [take() for _ in range(c.compact_int())]


__all__ = ["NO_LINK", "MirrorRecord", "decode_mirror", "encode_mirror", "read_mirror"]
