"""What the index of a container holds, record by record, and whether it fits together.

`read_contents` reads the whole database in one snapshot, in the order of its pages.  Each record is checked for itself
(checksum, format) and put where the checks across records find it: names and segments, extents that follow each other,
entries of a table and their versions.  Bytes of inlined extents are not kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from crc32c import crc32c

from sarit.core.errors import Corrupt
from sarit.index import keys
from sarit.index.examination import every_record, right_record
from sarit.index.record_seals import unseal
from sarit.ops.verify.findings import Finding
from sarit.storage.layout import Extent, load_chunk_extent, load_inlined_extent
from sarit.storage.names import is_pack
from sarit.store.container.segment import load_segment

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator

    from sarit.store.container.segment import Segment

REPAIR_RECORD = "sarit repair puts it back: one bit is flipped, and its checksum says which"
_RESTORE = "restore the index from a backup that belongs to this log"
_CHECKPOINT = ("frame", "next-segment", "chunk-sequence", "settled-from", "epoch")


@dataclass(slots=True)
class Stored:
    """The records that the index holds of one segment id."""

    segment: Segment | None = None
    unreadable: bool = False
    extents: list[Extent] = field(default_factory=list)
    unreadable_extents: list[int] = field(default_factory=list)
    attributes: int = 0
    entries: int = 0
    damaged_entries: int = 0
    # Differs from 0 unless each entry has its version row, and each version row its entry.
    pairs: int = 0


@dataclass(slots=True)
class Contents:
    """The records of one container's index that are whole, and what is wrong with the others."""

    container: int
    path: str
    segments: dict[int, Stored] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    garbage: set[str] = field(default_factory=set)
    pieces: set[str] = field(default_factory=set)
    meta: dict[str, bytes] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    records: int = 0
    damaged_names: int = 0
    damaged_garbage: int = 0
    damaged_pieces: int = 0

    def name_of(self, segment: int) -> str:
        """Return the name of a segment, or its number."""
        stored = self.segments.get(segment)
        if stored is not None and stored.segment is not None:
            return stored.segment.name
        return next((name for name, number in self.names.items() if number == segment), f"#{segment}")

    @property
    def frame(self) -> int:
        """The frame of the last checkpoint."""
        value = self.meta.get("frame")
        return 0 if value is None else keys.parse_attribute_value(value)

    def add(self, message: str, *, damage: bool = True, segment: str = "", lost: str = "", advice: str = "") -> None:
        """Note a finding of this container."""
        self.findings.append(Finding(message, damage, self.container, segment, lost=lost, advice=advice))


def read_contents(
    connection: sqlite3.Connection, container: int, path: str, progress: Callable[[int], None]
) -> Contents:
    """Read every record; `progress` is called with the bytes of each few thousand.  Blocking."""
    contents = Contents(container, path)
    damaged: list[tuple[bytes, bytes]] = []
    for rows in every_record(connection, path):
        for key, stored in rows:
            contents.records += 1
            try:
                _add_record(contents, key, unseal(key, stored))
            except Corrupt as error:
                damaged.append((key, stored))
                _note_unreadable(contents, key, str(error))
        progress(sum(len(key) + len(stored) for key, stored in rows if isinstance(stored, bytes)))
    # Names are known only now.
    for key, stored in damaged:
        _add_damaged(contents, key, stored)
    _check_meta(contents)
    _check_names(contents)
    for number, found in contents.segments.items():
        _check_segment(contents, number, found)
    _check_pieces(contents)
    return contents


def _add_record(contents: Contents, key: bytes, value: bytes) -> None:
    kind = key[:1]
    if kind == keys.NAME:
        contents.names[keys.parse_name_key(key)] = keys.parse_id_value(value)
    elif kind == keys.GARBAGE:
        contents.garbage.add(keys.parse_garbage_key(key))
    elif kind == keys.PIECE:
        keys.parse_piece_value(value)
        contents.pieces.add(keys.parse_piece_key(key))
    elif kind == keys.META:
        contents.meta[keys.parse_meta_key(key)] = value
    elif kind == keys.SEGMENT:
        number = keys.parse_segment_key(key)
        _of(contents, number).segment = load_segment(number, value)
    elif kind == keys.ATTRIBUTE:
        number, _ = keys.parse_attribute_key(key)
        keys.parse_attribute_value(value)
        _of(contents, number).attributes += 1
    elif kind == keys.EXTENT:
        number, start = keys.parse_extent_key(key)
        _of(contents, number).extents.append(load_chunk_extent(start, value))
    elif kind == keys.INLINED:
        number, start = keys.parse_inlined_key(key)
        _of(contents, number).extents.append(replace(load_inlined_extent(start, value), inline=b""))
    elif kind == keys.ENTRY:
        number, entry = keys.parse_entry_key(key)
        version, _ = keys.parse_entry_value(value)
        found = _of(contents, number)
        found.entries += 1
        found.pairs ^= _pair(entry, version)
    elif kind == keys.VERSION:
        number, version = keys.parse_version_key(key)
        _of(contents, number).pairs ^= _pair(value, version)
    else:
        raise Corrupt(f"the index holds a record of {keys.describe(key)}")


def _of(contents: Contents, number: int) -> Stored:
    return contents.segments.setdefault(number, Stored())


def _pair(key: bytes, version: int) -> int:
    return crc32c(key, crc32c(version.to_bytes(8, "big"))) | 1 << 32


def _note_unreadable(contents: Contents, key: bytes, reason: str) -> None:
    kind = key[:1]
    if kind == keys.NAME:
        contents.damaged_names += 1
    elif kind == keys.GARBAGE:
        contents.damaged_garbage += 1
    elif kind == keys.PIECE:
        contents.damaged_pieces += 1
    if kind not in (keys.SEGMENT, *keys.PER_SEGMENT) or len(key) < 9:
        return
    number = int.from_bytes(key[1:9], "big")
    # A damaged key may name any segment: one of which the index holds nothing else is none.
    found = contents.segments.get(number)
    if found is None and kind != keys.SEGMENT:
        return
    found = _of(contents, number)
    if kind == keys.SEGMENT:
        found.unreadable = True
    elif kind in (keys.EXTENT, keys.INLINED) and len(key) == 17:
        found.unreadable_extents.append(int.from_bytes(key[9:], "big"))
    elif kind in (keys.ENTRY, keys.VERSION):
        found.damaged_entries += 1


def _add_damaged(contents: Contents, key: bytes, stored: bytes) -> None:
    """Say what is lost with a record that is damaged or of another format."""
    try:
        value = unseal(key, stored)
    except Corrupt as error:
        right = right_record(key, stored)
        message, advice = str(error), "put the index back from a backup that belongs to this log, or leave it as it is"
        if right is not None:
            key, advice = right[0], f"stop the node and run `sarit repair`: {REPAIR_RECORD}"
            if right[0] != key:
                message += f"; its right key is that of {keys.describe(right[0])}"
    else:
        try:
            _add_record(Contents(0, ""), key, value)
            return
        except Corrupt as error:
            message, advice = str(error), "start the version of Sarit that wrote it"
    segment = contents.name_of(int.from_bytes(key[1:9], "big")) if key[:1] in (keys.SEGMENT, *keys.PER_SEGMENT) else ""
    contents.add(message, segment=segment, lost=_LOST.get(key[:1], "what this record says"), advice=advice)


_LOST = {
    keys.SEGMENT: "this segment cannot be read or written; its chunks and extents are there",
    keys.NAME: "the segment of this name is not found; its bytes are there",
    keys.ATTRIBUTE: "the value of this attribute: a writer's last event number; that writer cannot continue",
    keys.EXTENT: "where these bytes are; the segment cannot be read below the next checkpoint's bytes",
    keys.INLINED: "these bytes, unless a backup has them",
    keys.ENTRY: "this entry of the table; scans over it fail, the other entries are there",
    keys.VERSION: "nothing but this step of a delta read",
    keys.GARBAGE: "nothing; a chunk that nobody needs is not deleted",
    keys.PIECE: "nothing; a pack of which a piece is needed is not deleted while this record is damaged",
    keys.META: "a value of the container: it may not open",
}


def _check_meta(contents: Contents) -> None:
    lost = [name for name in _CHECKPOINT if name not in contents.meta]
    if lost and (len(lost) < len(_CHECKPOINT) or contents.segments):
        contents.add(
            f"the index has lost its meta value {lost[0]}",
            lost="the container does not open",
            advice="run `sarit repair` if it can put a damaged record back; else restore index and log from a backup",
        )


def _check_names(contents: Contents) -> None:
    for name, number in contents.names.items():
        found = contents.segments.get(number)
        if found is None or (found.segment is None and not found.unreadable):
            contents.add(
                f"the record of the segment with id {number} is missing",
                segment=name, lost=_LOST[keys.SEGMENT], advice=_RESTORE,
            )  # fmt: skip
    for number, found in contents.segments.items():
        segment = found.segment
        if segment is not None and contents.names.get(segment.name) != number:
            contents.add(
                f"the name of the segment with id {number} is missing or names another id",
                segment=segment.name, lost=_LOST[keys.NAME],
                advice="stop the node and run `sarit repair`: it makes the name from the segment's record",
            )  # fmt: skip


def _check_pieces(contents: Contents) -> None:
    """Compare the records of pieces with the extents that are in packs."""
    named = {
        extent.reference: number
        for number, found in contents.segments.items()
        for extent in found.extents
        if is_pack(extent.chunk)
    }
    # A damaged record of a piece or an extent is reported as such.
    if not contents.damaged_pieces:
        for piece in sorted(named.keys() - contents.pieces):
            contents.add(
                f"the index does not say that {piece} is needed",
                segment=contents.name_of(named[piece]),
                lost="nothing yet: its pack may be deleted with other pieces of it", advice=_RESTORE,
            )  # fmt: skip
    if not any(found.unreadable_extents for found in contents.segments.values()):
        unused = sorted(contents.pieces - named.keys())
        if unused:
            contents.add(
                f"the index keeps {len(unused)} pieces of packs that no extent names, for example {unused[0]}",
                damage=False, lost="nothing; their packs are not deleted", advice="nothing",
            )  # fmt: skip


def _check_segment(contents: Contents, number: int, found: Stored) -> None:
    segment, name = found.segment, contents.name_of(number)
    if segment is None:
        if not found.unreadable and number not in contents.names.values():
            contents.add(
                f"records of segment id {number}, which does not exist",
                lost="nothing that anybody can name", advice="`sarit repair` drops them",
            )  # fmt: skip
        return
    if segment.is_table:
        if found.damaged_entries == 0 and (found.entries != segment.entries or found.pairs):
            contents.add(
                f"the table has {found.entries} entries, and its record says {segment.entries}"
                if found.entries != segment.entries
                else "entries of the table and their versions do not match",
                segment=name, lost="entries of this table are missing", advice="restore from a backup",
            )  # fmt: skip
        return
    for start, end, message, damage in unread_ranges(segment, found):
        contents.findings.append(
            Finding(
                message, damage, contents.container, name, start, end,
                "the place of these bytes" if damage else "",
                _RESTORE if damage else "",
            )
        )  # fmt: skip


def unread_ranges(segment: Segment, found: Stored) -> Iterator[tuple[int, int, str, bool]]:
    """Ranges of a segment's bytes that no extent holds: start, end, why, and whether that is damage."""
    extents = sorted(found.extents, key=lambda extent: extent.start)
    why = "no extent holds these bytes"
    for before, extent in pairwise(extents):
        if extent.start > before.end:
            yield before.end, extent.start, why, True
        elif extent.start < before.end:
            yield extent.start, before.end, f"two extents hold these bytes: {before} and {extent}", True
    first = extents[0].start if extents else segment.length
    last = extents[-1].end if extents else segment.start
    if segment.start < first:
        # Early reclaim drops extents below a truncation that the log still holds (store/tiering/early_reclaim.py).
        damage = any(start < first for start in found.unreadable_extents)
        yield segment.start, first, why if damage else f"{why}; the log may hold a later truncation or deletion", damage
    if extents and last < segment.length:
        yield last, segment.length, why, True
    if last > segment.length:
        yield segment.length, last, "an extent is beyond the end of the segment", True
