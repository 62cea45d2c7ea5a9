"""The tokens by which a node recognizes that a copy of its data directory has started.

A copy of a data directory has the node id of its original, so the owner chunk admits both.  Therefore every start
writes a token of its own to long-term storage: a chunk with a rising number in its name and a random token in it.  The
data directory holds, in the file `last-start`, the tokens that it has written since the newest token it has seen there.
A token in storage that the directory does not know belongs to another copy (docs/decisions/0308).

`last-start` is written before the token chunk.  After a crash between the two, the directory knows a token that does
not exist in storage, which does no harm.  The reverse order would make a node refuse its own storage.
"""

from __future__ import annotations

import json
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Corrupt, Exists, Invalid, NotFound, Unavailable
from sarit.process.limits import MAX_UNSEEN_OWNERSHIP_TOKENS, RETAINED_OWNERSHIP_TOKENS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.storage.port import ChunkStorage

NODE_FOLDER: Final = "node"
TOKENS_VERSION: Final = 1
TOKEN_CHARACTERS: Final = 32
# In long-term storage, CRC-32 in hexadecimal digits follows node id and token: neither chunk is named by the index.
_CHECK_CHARACTERS: Final = 8
_TOKEN_PREFIX: Final = f"{NODE_FOLDER}/start-"
_REMEDY: Final = (
    f"start the other one; or, if no other will ever be started again, delete {_TOKEN_PREFIX}* from long-term storage"
)


def checked(text: str) -> bytes:
    """Append its CRC-32 to the text of a chunk."""
    return f"{text}{zlib.crc32(text.encode()):08x}".encode()


async def read_checked(storage: ChunkStorage, name: str, characters: int) -> str:
    """Return the text that `checked` wrote.  Raises Corrupt, NotFound, Unavailable."""
    try:
        content = bytes(await storage.read(name, 0, characters + _CHECK_CHARACTERS))
    except Corrupt:  # shorter
        # Versions before 2026-11-23 wrote the text alone.
        return bytes(await storage.read(name, 0, characters)).decode("ascii", "replace")
    text = content[:characters].decode("ascii", "replace")
    if content != checked(text):
        raise Corrupt("its checksum does not match")
    return text


@dataclass(frozen=True, slots=True, order=True)
class OwnershipToken:
    """The token of one start."""

    number: int
    token: str

    @property
    def name(self) -> str:
        """The name of its chunk."""
        return f"{_TOKEN_PREFIX}{self.number:012d}"


def encode_tokens(tokens: Sequence[OwnershipToken]) -> bytes:
    """Return the content of `last-start`."""
    marks = [[token.number, token.token] for token in tokens]
    return json.dumps({"version": TOKENS_VERSION, "marks": marks, "check": check_of(marks)}).encode() + b"\n"


def decode_tokens(data: bytes) -> list[OwnershipToken]:
    """`encode_tokens` inverted.  Raises Corrupt, Invalid (a newer version)."""
    try:
        content = json.loads(data)
        version, marks, check = content["version"], content.get("marks"), content.get("check")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Corrupt("it is not a list of ownership tokens") from None
    if version != TOKENS_VERSION:
        raise Invalid(f"last-start is of format {version}; this version of Sarit reads {TOKENS_VERSION}")
    if not marks or check != check_of(marks):
        raise Corrupt("its checksum does not match")
    return [OwnershipToken(int(number), str(token)) for number, token in marks]


def check_of(marks: object) -> str:
    """Compute the CRC-32 of a JSON value as `json.dumps` writes it, as 8 hexadecimal digits."""
    return f"{zlib.crc32(json.dumps(marks).encode()):08x}"


async def newest_token(storage: ChunkStorage) -> OwnershipToken | None:
    """Return the token of the latest start, if any.  Raises Unavailable, Invalid (it is damaged)."""
    numbers = await _token_numbers(storage)
    return await _read_token(storage, numbers[-1]) if numbers else None


def next_tokens(known: Sequence[OwnershipToken], found: OwnershipToken | None, token: str) -> list[OwnershipToken]:
    """Return the tokens that `last-start` must hold for the next start, the new token last.

    `known`: its present content.  `found`: the newest token in long-term storage.  Raises Invalid when `found` belongs
    to another copy."""
    retained = list(known)
    if found is not None:
        # A listing may be stale and show a token older than all known ones: that proves nothing.
        if found not in retained and not (retained and found.number < retained[0].number):
            raise Invalid(f"another copy of this data directory was started on its long-term storage since: {_REMEDY}")
        retained = [entry for entry in retained if entry.number >= found.number]
    # The first is the newest token seen in storage, if any; the others may have been written (unknown outcome).
    number = retained[-1].number if retained else 0
    return [*retained[:1], *retained[1:][-MAX_UNSEEN_OWNERSHIP_TOKENS:], OwnershipToken(number + 1, token)]


async def write_token(storage: ChunkStorage, token: OwnershipToken) -> None:
    """Write the token of this start.  Raises Unavailable (unknown outcome), Invalid (another copy was first)."""
    with suppress(Exists):  # a request that was sent twice, or another copy's token: the read below decides
        await storage.write(token.name, [checked(token.token)])
    if await _read_token(storage, token.number) != token:
        raise Invalid(f"another copy of this data directory starts on its long-term storage: {_REMEDY}")


async def delete_old_tokens(storage: ChunkStorage, newest: OwnershipToken) -> None:
    """Delete the tokens of old starts.  RETAINED_OWNERSHIP_TOKENS stay, for a copy that reads a stale listing."""
    with suppress(Unavailable):  # the next start tries again
        for number in await _token_numbers(storage):
            if number <= newest.number - RETAINED_OWNERSHIP_TOKENS:
                await storage.delete(OwnershipToken(number, "").name)


async def _token_numbers(storage: ChunkStorage) -> list[int]:
    found = []
    async for name, _ in storage.list(NODE_FOLDER):
        number = name.removeprefix(_TOKEN_PREFIX)
        if number != name and number.isdecimal():
            found.append(int(number))
    return sorted(found)


async def _read_token(storage: ChunkStorage, number: int) -> OwnershipToken | None:
    name = OwnershipToken(number, "").name
    try:
        token = await read_checked(storage, name, TOKEN_CHARACTERS)
    except NotFound:
        return None  # deleted, but the listing is stale
    except Corrupt as error:
        raise Invalid(
            f"long-term storage has a damaged ownership token ({error}): delete {name}, if no other copy of this data "
            "directory is in use"
        ) from None
    return OwnershipToken(number, token)
