"""Finds damage in SQLite's write-ahead log.

SQLite checks each frame of its WAL, and takes the first that fails for the torn end of the last commit: it silently
ignores all frames from there on.  After a crash that is right.  After damage to the file it would lose durable commits.
The two differ, since a commit is synced before the next one begins: if two or more commits end at or after the frame
that fails, the first of them was durable, and the file is damaged.

The format is SQLite's (sqlite.org/walformat.html).  A damaged frame of the very last commit cannot be distinguished
from a torn one, nor can a lost commit mark.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Corrupt

if TYPE_CHECKING:
    from collections.abc import Callable

HEADER: Final = struct.Struct(">8I")
FRAME: Final = struct.Struct(">6I")
_MAGIC: Final = {0x377F0682: "<", 0x377F0683: ">"}
# The offset in the wal-index (`-shm`) of the last frame that SQLite found valid, in the byte order of the machine.
_LAST_FRAME_AT: Final = 16
_MASK: Final = 0xFFFFFFFF


def last_valid_frame(shared: bytes) -> int:
    """Return the number of valid frames in the first bytes of the wal-index, while the database is open."""
    if len(shared) < _LAST_FRAME_AT + 4:
        return 0
    return int(struct.unpack_from("=I", shared, _LAST_FRAME_AT)[0])


@dataclass(frozen=True, slots=True)
class WalUse:
    """The use of a WAL: `frames` of `frame_bytes` each, since SQLite began the file with `salts`."""

    salts: tuple[int, ...] = ()
    frames: int = 0
    frame_bytes: int = 0


def wal_use(before: WalUse, read: Callable[[int, int], bytes]) -> WalUse:
    """Count the frames of a WAL in use, beginning at the count `before`.  `read` takes a length and an offset.

    SQLite begins the file again, with other salts, when all of it was copied.  A binary search reads the headers of a
    few frames only."""
    head = read(HEADER.size, 0)
    if len(head) < HEADER.size:
        return WalUse()
    _, _, page_bytes, _, *salts, _, _ = HEADER.unpack(head)
    frame_bytes = FRAME.size + page_bytes

    def used(frame: int) -> bool:
        found = read(FRAME.size, HEADER.size + frame * frame_bytes)
        return len(found) == FRAME.size and list(FRAME.unpack(found)[2:4]) == salts

    # The frames in use are at the beginning: the first `low` frames are in use, the frame `high` is not.
    low, step = before.frames if before.salts == tuple(salts) else 0, 1
    while used(low + step - 1):
        low, step = low + step, step * 2
    high = low + step - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if used(middle) else (low, middle)
    return WalUse(tuple(salts), low, frame_bytes)


def check_wal(path: str, size: int, read: Callable[[int, int], bytes], valid_frames: int) -> None:
    """Check that the WAL of the database `path` has not lost durable commits.  Raises Corrupt.

    `size`: the length of the WAL.  `read` takes a length and an offset.  `valid_frames`: how many frames SQLite found
    valid."""
    head = read(HEADER.size, 0)
    # The file is empty, or a crash cut its header, which is synced before the first frame.
    if size <= HEADER.size or len(head) < HEADER.size:
        return
    magic, _, page_bytes, _, *salts, one, other = HEADER.unpack(head)
    if magic not in _MAGIC or _sums(head[: HEADER.size - 8], _MAGIC[magic]) != (one, other):
        raise Corrupt(f"index {path}: the header of its write-ahead log is damaged: its commits are lost")
    frame_bytes = FRAME.size + page_bytes
    commits = 0
    for at in range(HEADER.size + valid_frames * frame_bytes, size - frame_bytes + 1, frame_bytes):
        _, pages_after_commit, *found, _, _ = FRAME.unpack(read(FRAME.size, at))
        # Skip frames of an earlier use of the file, which have other salts.
        commits += bool(pages_after_commit and found == salts)
        if commits >= 2:
            raise Corrupt(
                f"index {path}: its write-ahead log is damaged at frame {valid_frames + 1}: commits that were durable "
                "are lost"
            )


def _sums(data: bytes, order: str) -> tuple[int, int]:
    a = b = 0
    for x, y in struct.iter_unpack(f"{order}II", data):
        a = (a + x + b) & _MASK
        b = (b + y + a) & _MASK
    return a, b
