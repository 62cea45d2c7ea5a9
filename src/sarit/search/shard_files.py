"""The files of shards on their way into blobs, and from there into local directories."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import crc32c

from sarit.core.errors import Corrupt, Unavailable
from sarit.search.limits import UPLOAD_BYTES
from sarit.search.state import StoredFile

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from pathlib import Path
    from typing import TypeAlias

    from sarit.env.ports import Buffer, Files, Worker
    from sarit.search.ports import Blobs

    Run: TypeAlias = Callable[[Callable[[], int]], Awaitable[int]]

_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_\-][A-Za-z0-9_.\-]{0,200}")
_SHOWN_CHARACTERS: Final = 80


async def upload(blobs: Blobs, blob: str, contents: Mapping[str, Buffer]) -> list[StoredFile]:
    """Append files to a blob, and return where they are.  Raises Unavailable."""
    found: list[StoredFile] = []
    waiting: list[tuple[str, bytes]] = []
    size = 0
    for name, content in contents.items():
        if len(content) > UPLOAD_BYTES:
            found.append(await _upload_large(blobs, blob, name, content))
            continue
        if size + len(content) > UPLOAD_BYTES:
            found += await _upload_small(blobs, blob, waiting)
            waiting, size = [], 0
        waiting.append((name, bytes(content)))
        size += len(content)
    return found + await _upload_small(blobs, blob, waiting)


async def _upload_small(blobs: Blobs, blob: str, files: list[tuple[str, bytes]]) -> list[StoredFile]:
    if not files:
        return []
    offset = await blobs.append(blob, [content for _, content in files])
    found = []
    for name, content in files:
        found.append(StoredFile(name, blob, offset, len(content), crc32c.crc32c(content)))
        offset += len(content)
    return found


async def _upload_large(blobs: Blobs, blob: str, name: str, content: Buffer) -> StoredFile:
    """Append a file in pieces, one after the other: an indexer that was replaced may still append to the blob."""
    checksum, begin, end = 0, 0, 0
    for at in range(0, len(content), UPLOAD_BYTES):
        piece = bytes(content[at : at + UPLOAD_BYTES])
        offset = await blobs.append(blob, [piece])
        if at == 0:
            begin = offset
        elif offset != end:
            raise Unavailable(f"another process appends to blob {blob} at the same time")
        end = offset + len(piece)
        checksum = crc32c.crc32c(piece, checksum)
    return StoredFile(name, blob, begin, len(content), checksum)


async def download(
    blobs: Blobs, files: Iterable[StoredFile], directory: Path, local: Files, worker: Worker
) -> None:  # fmt: skip
    """Write files into a directory, which is made.  Raises Corrupt, NotFound, Unavailable, OSError."""
    await worker.run(lambda: local.make_dirs(str(directory)))
    for file in files:
        await fetch(blobs, file, directory, local, worker.run, UPLOAD_BYTES)


def check_names(files: Iterable[StoredFile]) -> None:
    """Raises Corrupt: a file has a name that leads out of its directory, or that no file of a shard has."""
    for file in files:
        if _FILE_NAME.fullmatch(file.name) is None:
            raise Corrupt(f"a file of a shard cannot be named {file.name[:_SHOWN_CHARACTERS]!a}: no proper name")


async def fetch(
    blobs: Blobs, file: StoredFile, directory: Path, local: Files, run: Run, piece_bytes: int
) -> None:  # fmt: skip
    """Copy a file from its blob into a directory, over one of the same name, by pieces.

    `run`: runs what blocks.  Raises Corrupt, NotFound, Unavailable, OSError."""
    check_names([file])
    path, at, checksum = str(directory / file.name), 0, 0
    while not at or at < file.length:  # an empty file is written, too
        length = min(piece_bytes, file.length - at)
        piece = await blobs.read(file.blob, file.offset + at, length) if length else b""
        checksum = await run(partial(_write, local, path, piece, at, checksum))
        at += max(1, length)
    if checksum != file.checksum:
        raise Corrupt(_damaged(file))


def _write(local: Files, path: str, piece: bytes, offset: int, checksum: int) -> int:
    """Write a piece of a file, and return the checksum of everything up to its end.

    The file is opened here: a caller that is cancelled must not close it while a thread writes."""
    if not offset:
        with suppress(FileNotFoundError):
            local.remove(path)
    written = local.open(path, "write" if offset else "create")
    try:
        written.pwrite([piece], offset)
    finally:
        written.close()
    return int(crc32c.crc32c(piece, checksum))


async def read_file(blobs: Blobs, file: StoredFile) -> bytes:
    """Return the content of a small file.  Raises Corrupt, NotFound, Unavailable."""
    content = await blobs.read(file.blob, file.offset, file.length)
    if crc32c.crc32c(content) != file.checksum:
        raise Corrupt(_damaged(file))
    return content


def _damaged(file: StoredFile) -> str:
    return f"file {file.name} of an index is not what was stored in blob {file.blob}: its checksum differs"
