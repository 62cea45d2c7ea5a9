"""What an indexer has stored: shards, their files, and the cut up to which they reach.  Pure.

Formats: docs/formats/search.md.

    the state of the job ─▶ the growing shard, and where the list of closed ones is ─▶ files ─▶ ranges of blobs

Files never change.  A commit stores new files in a blob, and then the state of the job that names them and the cut: so
an event is in the index once it is before the cut, and once only.  What no state names was left by an attempt that
failed, and is deleted later.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sarit.core import cuts
from sarit.core.errors import Corrupt, Invalid
from sarit.search.limits import MAX_SHARDS_BYTES, MAX_STATE_BYTES
from sarit.search.mapping import from_document, to_document

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sarit.core.cuts import StreamCut
    from sarit.search.mapping import Mapping

# The first byte of both documents; the rest is JSON that zlib has compressed.
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a shard: bytes of a blob, with the CRC-32C of them."""

    name: str
    blob: str
    offset: int
    length: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Shard:
    """A part of an index: the events between two cuts.

    `id`: unique in the index.  `first_ms`, `last_ms`: the times of its earliest and its latest event, since 1970.
    `end`: its events are before this cut.  `files`: what it consists of, by their names in the shard's directory.
    `closed`: no event is added any more.  `opened_ms`: when its first event was added, since 1970."""

    id: str
    mapping: Mapping
    events: int
    first_ms: int
    last_ms: int
    end: StreamCut
    files: tuple[StoredFile, ...]
    closed: bool = False
    opened_ms: int = 0


@dataclass(frozen=True, slots=True)
class IndexState:
    """The progress of an indexer, as its job stores it.

    `stream_id`: the creation id of the stream, in hexadecimal digits; "": nothing was begun.  `cut`: everything before
    is in the index, except what was truncated before it was read (`lost_bytes`).  `growing`: the shard that grows.
    `closed`: the list of the closed shards, as a file in a blob; None: there are none.  `closed_shards`: how many.
    `events`: of all shards ever.  `partly`: events of which a part is not searched.  `stored_bytes`: of all files of
    the shards.  `commits`: how many.  `committed_ms`: when the last one was made, since 1970."""

    stream_id: str = ""
    cut: StreamCut | None = None
    growing: Shard | None = None
    closed: StoredFile | None = None
    closed_shards: int = 0
    events: int = 0
    partly: int = 0
    lost_bytes: int = 0
    stored_bytes: int = 0
    commits: int = 0
    committed_ms: int = 0

    def encode(self) -> bytes:
        """Return the state as it is stored.  Raises Invalid: it is too long."""
        found: dict[str, Any] = {name: value for name in _NUMBERS if (value := getattr(self, name))}
        if self.stream_id:
            found["stream_id"] = self.stream_id
        if self.cut is not None:
            found["cut"] = cuts.to_text(self.cut)
        if self.growing is not None:
            found["growing"] = _shard(self.growing) | {"mapping": to_document(self.growing.mapping)}
        if self.closed is not None:
            found["closed"] = _files([self.closed])
        packed = _pack(found)
        if len(packed) > MAX_STATE_BYTES:
            raise Invalid(f"the state of an index has {len(packed)} bytes: at most {MAX_STATE_BYTES}")
        return packed

    @classmethod
    def decode(cls, data: bytes) -> IndexState:
        """Return a stored state; of no bytes the state of a new index.  Raises Corrupt."""
        if not data:
            return cls()
        try:
            found = _unpack(data, MAX_SHARDS_BYTES)
            numbers = {name: _number(found.pop(name, 0)) for name in _NUMBERS}
            stream_id, cut = _text(found.pop("stream_id", "")), found.pop("cut", None)
            growing, closed = found.pop("growing", None), found.pop("closed", None)
            if found:
                raise Invalid(f"it has unknown parts: {', '.join(sorted(found))[:_SHOWN_CHARACTERS]}")
            return cls(
                stream_id,
                None if cut is None else _cut(cut),
                None if growing is None else _read_shard(growing, from_document(growing.pop("mapping"))),
                None if closed is None else _read_files(closed)[0],
                **numbers,
            )
        except _DAMAGE as error:
            raise Corrupt(f"the state of an index is damaged: {error}") from None


def encode_shards(shards: Iterable[Shard]) -> bytes:
    """Return a list of closed shards as it is stored: each mapping is there once.  Raises Invalid: it is too long."""
    mappings: dict[Mapping, int] = {}
    rows = [_shard(one) | {"mapping": mappings.setdefault(one.mapping, len(mappings))} for one in shards]
    packed = _pack({"mappings": [to_document(one) for one in mappings], "shards": rows})
    if len(packed) > MAX_SHARDS_BYTES:
        raise Invalid(f"the list of an index's shards has {len(packed)} bytes: at most {MAX_SHARDS_BYTES}")
    return packed


def decode_shards(data: bytes) -> list[Shard]:
    """Return a stored list of closed shards.  Raises Corrupt."""
    try:
        found = _unpack(data, MAX_SHARDS_BYTES * _MAX_RATIO)
        mappings = [from_document(one) for one in found["mappings"]]
        return [_read_shard(one, mappings[_number(one.pop("mapping"))]) for one in found["shards"]]
    except _DAMAGE as error:
        raise Corrupt(f"the list of an index's shards is damaged: {error}") from None


_NUMBERS: Final = ("closed_shards", "events", "partly", "lost_bytes", "stored_bytes", "commits", "committed_ms")
_SHARD_NUMBERS: Final = ("events", "first_ms", "last_ms", "opened_ms")
_DAMAGE: Final = (Invalid, ValueError, LookupError, TypeError, AttributeError, zlib.error)
_MAX_RATIO: Final = 16  # JSON of files and cuts does not become smaller by more
_SHOWN_CHARACTERS: Final = 80


def _pack(found: dict[str, Any]) -> bytes:
    return bytes((_FORMAT,)) + zlib.compress(json.dumps(found, separators=(",", ":")).encode(), 9)


def _unpack(data: bytes, most: int) -> dict[str, Any]:
    if data[0] != _FORMAT:
        raise Invalid(f"its format is {data[0]}, and {_FORMAT} is known")
    inflate = zlib.decompressobj()
    plain = inflate.decompress(data[1:], most)
    if not inflate.eof:
        raise Invalid("it is cut short, or too long")
    found = json.loads(plain)
    if not isinstance(found, dict):
        raise Invalid("it is no JSON object")
    return found


def _shard(shard: Shard) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(shard, name) for name in _SHARD_NUMBERS}
    return found | {
        "id": shard.id, "end": cuts.to_text(shard.end), "closed": shard.closed, "files": _files(shard.files),
    }  # fmt: skip


def _read_shard(found: dict[str, Any], mapping: Mapping) -> Shard:
    return Shard(
        id=_text(found["id"]),
        mapping=mapping,
        end=_cut(found["end"]),
        files=_read_files(found["files"]),
        closed=bool(found["closed"]),
        **{name: _number(found[name]) for name in _SHARD_NUMBERS},
    )


def _files(files: Sequence[StoredFile]) -> dict[str, list[list[object]]]:
    """Return files by their blobs: the files of a shard are in few of them."""
    found: dict[str, list[list[object]]] = {}
    for file in files:
        found.setdefault(file.blob, []).append([file.name, file.offset, file.length, file.checksum])
    return found


def _read_files(found: dict[str, list[list[Any]]]) -> tuple[StoredFile, ...]:
    return tuple(
        StoredFile(_text(name), _text(blob), _number(offset), _number(length), _number(checksum))
        for blob, files in found.items()
        for name, offset, length, checksum in files
    )


def _number(value: object) -> int:
    if type(value) is not int:
        raise Invalid("a number in it is none")
    return value


def _text(value: object) -> str:
    if type(value) is not str:
        raise Invalid("a text in it is none")
    return value


def _cut(value: object) -> StreamCut:
    found = cuts.from_text(_text(value))
    if found is None:
        raise Invalid("one of its cuts has no bounds")
    return found
