"""Which copy of a data directory uses long-term storage.

A data directory that was copied has its original's node id, so that the mark of the owner (`owner.py`) lets both in;
each would sweep what the other wrote.  So every start leaves a mark of its own in long-term storage, a chunk named by a
number that rises, with a random token in it.  The data directory holds, in the file `last-start`, the marks that it has
left since the newest it has seen there, and is written first: after a crash between the two it knows a mark that is not
there, which does no harm.  A mark that is there and unknown to the directory is of another copy (docs/decisions/0308).
"""

from __future__ import annotations

import json
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Corrupt, Exists, Invalid, NotFound, Unavailable
from sarit.core.limits import KEPT_START_MARKS, MAX_UNSEEN_START_MARKS
from sarit.node.storage_owner import MARKER_FOLDER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.storage.port import ChunkStorage

VERSION: Final = 1
TOKEN_CHARACTERS: Final = 32
_PREFIX: Final = f"{MARKER_FOLDER}/start-"
_REMEDY: Final = (
    f"start the other one; or, if no other will ever be started again, delete {_PREFIX}* from long-term storage"
)


@dataclass(frozen=True, slots=True, order=True)
class Start:
    """The mark of one start."""

    number: int
    token: str

    @property
    def name(self) -> str:
        """The chunk that holds it."""
        return f"{_PREFIX}{self.number:012d}"


def encode(starts: Sequence[Start]) -> bytes:
    """The content of `last-start`."""
    marks = [[start.number, start.token] for start in starts]
    return json.dumps({"version": VERSION, "marks": marks, "check": _check(marks)}).encode() + b"\n"


def decode(data: bytes) -> list[Start]:
    """Raises Corrupt, Invalid (it is of a newer version)."""
    try:
        content = json.loads(data)
        version, marks, check = content["version"], content.get("marks"), content.get("check")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Corrupt("it is no record of starts") from None
    if version != VERSION:
        raise Invalid(f"last-start is of format {version}; this version of Sarit reads {VERSION}")
    if not marks or check != _check(marks):
        raise Corrupt("its check sum is another")
    return [Start(int(number), str(token)) for number, token in marks]


def _check(marks: object) -> str:
    return f"{zlib.crc32(json.dumps(marks).encode()):08x}"


async def newest(storage: ChunkStorage) -> Start | None:
    """The mark of the latest start, if there is any.  Raises Unavailable, Invalid (it is damaged)."""
    numbers = await _numbers(storage)
    return await _read(storage, numbers[-1]) if numbers else None


def following(known: Sequence[Start], found: Start | None, token: str) -> list[Start]:
    """What the data directory is to hold for its next start, the new mark last.

    `known`: what it holds; `found`: the newest mark in long-term storage.  Raises Invalid: that is of another copy."""
    kept = list(known)
    if found is not None:
        # A listing may be behind, so that an older mark than any known is shown: it says nothing.
        if found not in kept and not (kept and found.number < kept[0].number):
            raise Invalid(f"another copy of this data directory was started on its long-term storage since: {_REMEDY}")
        kept = [start for start in kept if start.number >= found.number]
    number = kept[-1].number if kept else 0
    return [*kept[:1], *kept[1:][-MAX_UNSEEN_START_MARKS:], Start(number + 1, token)]


async def leave(storage: ChunkStorage, start: Start) -> None:
    """Leave the mark of a start.  Raises Unavailable (it may be there or not), Invalid (another copy was faster)."""
    with suppress(Exists):  # a request that was sent twice, or another's: the look says
        await storage.write(start.name, [start.token.encode()])
    if await _read(storage, start.number) != start:
        raise Invalid(f"another copy of this data directory starts on its long-term storage: {_REMEDY}")


async def forget(storage: ChunkStorage, newest: Start) -> None:
    """Delete the marks of starts long past.  A few stay, for a copy whose listing is behind."""
    with suppress(Unavailable):  # the next start tries again
        for number in await _numbers(storage):
            if number <= newest.number - KEPT_START_MARKS:
                await storage.delete(Start(number, "").name)


async def _numbers(storage: ChunkStorage) -> list[int]:
    found = []
    async for name, _ in storage.list(MARKER_FOLDER):
        number = name.removeprefix(_PREFIX)
        if number != name and number.isdecimal():
            found.append(int(number))
    return sorted(found)


async def _read(storage: ChunkStorage, number: int) -> Start | None:
    name = Start(number, "").name
    try:
        token = bytes(await storage.read(name, 0, TOKEN_CHARACTERS)).decode("ascii", "replace")
    except NotFound:
        return None  # deleted as too old, and still listed
    except Corrupt as error:
        raise Invalid(
            f"long-term storage has a damaged mark of a start ({error}): delete {name}, if no other copy of this data "
            "directory is in use"
        ) from None
    return Start(number, token)
