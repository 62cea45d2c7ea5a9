"""The files of shards on their way into blobs, and from there into local directories."""

from __future__ import annotations

from typing import TYPE_CHECKING

import crc32c

from sarit.core.errors import Corrupt, Unavailable
from sarit.search.limits import UPLOAD_BYTES
from sarit.search.state import StoredFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from sarit.env.ports import Buffer, Files, Worker
    from sarit.search.ports import Blobs


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
        await _download(blobs, file, directory, local, worker)


async def _download(blobs: Blobs, file: StoredFile, directory: Path, local: Files, worker: Worker) -> None:
    # Names in a state are those of files; one that leads elsewhere is damage.
    if "/" in file.name or file.name in ("", ".", ".."):
        raise Corrupt(f"a file of a shard cannot be named {file.name[:80]!a}")
    written = await worker.run(lambda: local.open(str(directory / file.name), "create"))
    try:
        checksum = 0
        for at in range(0, file.length, UPLOAD_BYTES):
            piece = await blobs.read(file.blob, file.offset + at, min(UPLOAD_BYTES, file.length - at))
            checksum = crc32c.crc32c(piece, checksum)
            await worker.run(lambda at=at, piece=piece: written.pwrite([piece], at))  # type: ignore[misc]
    finally:
        await worker.run(written.close)
    if checksum != file.checksum:
        raise Corrupt(f"file {file.name} of a shard is not what was stored in blob {file.blob}")


async def read_file(blobs: Blobs, file: StoredFile) -> bytes:
    """Return the content of a small file.  Raises Corrupt, NotFound, Unavailable."""
    content = await blobs.read(file.blob, file.offset, file.length)
    if crc32c.crc32c(content) != file.checksum:
        raise Corrupt(f"file {file.name} is not what was stored in blob {file.blob}")
    return content
