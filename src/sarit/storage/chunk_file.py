"""The file of a chunk while it is written: with a temporary name, in pieces that are each synced, then renamed.

The file is written in whole blocks with O_DIRECT (docs/decisions/0304).  Small pieces go through the page cache and are
dropped from it after their sync.  The last piece is padded, and the file then truncated to its length.

The order matters: sync the content, then rename, then sync the folder, so that a file with the final name is always
complete.

All calls of `ChunkFile` block and belong on a `Worker`; they raise OSError and Exists.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from sarit.core.errors import Exists
from sarit.env.limits import DISK_BLOCK_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.env.ports import Buffer, File, Files
    from sarit.storage.port import Observe


class Pieces:
    """A sequence of `parts` that is cut into pieces without a copy."""

    def __init__(self, parts: Sequence[Buffer]) -> None:
        self._parts = iter(parts)
        self._rest: Buffer = b""
        self.left = sum(map(len, parts))

    def __repr__(self) -> str:
        return f"<Pieces, {self.left} bytes left>"

    def take(self, size: int) -> list[Buffer]:
        """Return the next `size` bytes, fewer when fewer are left."""
        piece: list[Buffer] = []
        size = min(size, self.left)
        self.left -= size
        while size:
            rest = self._rest or next(self._parts)
            if len(rest) > size:
                view = memoryview(rest)
                rest, self._rest = view[:size], view[size:]
            else:
                self._rest = b""
            if len(rest):
                piece.append(rest)
                size -= len(rest)
        return piece


class ChunkFile:
    """One new chunk file: call `begin`, `add` for each piece, `finish`; or only `write`; or `abandon` at any point."""

    def __init__(self, files: Files, temporary: str, folder: str, target: str, observe: Observe | None = None) -> None:
        self._files = files
        self._observe = observe
        self._temporary = temporary
        self._folder = folder
        self._target = target
        self._file: File | None = None
        self._written = 0
        self.cancelled = False  # set by the event loop when the caller has given up

    def __repr__(self) -> str:
        return f"<ChunkFile {self._target}, {self._written} bytes>"

    def write(self, piece: Sequence[Buffer]) -> None:
        """Write a chunk of one piece, unless it is `cancelled`."""
        if self.cancelled:
            return
        self.begin()
        if piece:
            self.add(piece)
        self.finish()

    def begin(self) -> None:
        """Create the temporary file.  Raises Exists when the final name is taken."""
        # This check only saves a useless write: `finish` decides, since another process may take the name meanwhile.
        if self._files.exists(self._target):
            raise Exists(f"{self._target} exists")
        self._files.open(self._temporary, "create").close()
        # The mode "blocks" requires that the file exists.
        self._file = self._files.open(self._temporary, "blocks")

    def add(self, piece: Sequence[Buffer]) -> None:
        """Write the next bytes: whole blocks, unless they are the last.  Durable when this returns."""
        assert self._file is not None
        assert self._written % DISK_BLOCK_BYTES == 0, self
        size = sum(map(len, piece))
        padding = -size % DISK_BLOCK_BYTES
        if self._observe is not None:
            self._observe(piece)
        at = self._written
        self._file.pwrite([*piece, bytes(padding)] if padding else piece, at)
        self._written += size
        if padding:
            # Truncate before the sync, which also makes the length durable.
            self._file.truncate(self._written)
        self._file.datasync()
        self._file.forget(at, size)

    def finish(self) -> None:
        """Rename the file to its final name; name and content are durable when this returns.

        Raises Exists when another process took the name since `begin`: two nodes may start on one directory at once."""
        file, self._file = self._file, None
        assert file is not None
        try:
            if not self._written:
                # Sync an empty chunk: `add` has synced all others.
                file.datasync()
        finally:
            file.close()
        self._files.make_dirs(self._folder)
        try:
            self._files.rename_new(self._temporary, self._target)
        except FileExistsError:
            raise Exists(f"{self._target} exists") from None
        # `.incoming/` need not be synced: the next opening removes a temporary name that a crash brings back.
        self._files.sync_dir(self._folder)

    def abandon(self) -> None:
        """Close and remove the temporary file; harmless after `finish`."""
        file, self._file = self._file, None
        with suppress(OSError):
            if file is not None:
                file.close()
        with suppress(OSError):
            self._files.remove(self._temporary)
