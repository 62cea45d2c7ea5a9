"""What an indexer has stored: shards, their files, and the cut up to which they reach.  Pure.

    the state of the job ─▶ the growing shard, and where the list of closed ones is ─▶ files ─▶ ranges of blobs

Files never change.  A commit stores new files in a blob, and then the state of the job that names them and the cut: so
an event is in the index once it is before the cut, and once only.  What no state names was left by an attempt that
failed, and is deleted later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sarit.core.cuts import StreamCut
    from sarit.search.mapping import Mapping


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
    `closed`: the list of the closed shards, as a file in a blob; None: there are none.  `events`: of all shards ever.
    `partly`: events of which a part is not searched.  `bytes`: of all files of the shards.  `commits`: how many.
    `committed_ms`: when the last one was made, since 1970."""

    stream_id: str = ""
    cut: StreamCut | None = None
    growing: Shard | None = None
    closed: StoredFile | None = None
    events: int = 0
    partly: int = 0
    lost_bytes: int = 0
    bytes: int = 0
    commits: int = 0
    committed_ms: int = 0
