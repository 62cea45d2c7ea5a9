"""A chunk's file while it is written: temporary name, pieces each synced by itself, its own name.

All calls of `ChunkFile` block and belong on a `Worker`; they raise OSError and Exists.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from sarit.core.errors import Exists

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sarit.env.ports import Buffer, File, Files


def slices(parts: Sequence[Buffer], limit: int) -> Iterator[list[Buffer]]:
    """`parts` in groups of exactly `limit` bytes, the last one shorter; nothing is copied."""
    group: list[Buffer] = []
    room = limit
    for part in parts:
        rest = part
        while len(rest) >= room:
            view = memoryview(rest)
            group.append(view[:room])
            yield group
            rest = view[room:]
            group, room = [], limit
        if len(rest):
            group.append(rest)
            room -= len(rest)
    if group:
        yield group


class ChunkFile:
    """One new file: `begin`, `add` any number of times, then `finish`, or `abandon` at any point."""

    def __init__(self, files: Files, temporary: str, folder: str, target: str) -> None:
        self._files = files
        self._temporary = temporary
        self._folder = folder
        self._target = target
        self._file: File | None = None
        self._written = 0

    def __repr__(self) -> str:
        return f"<ChunkFile {self._target}, {self._written} bytes>"

    def begin(self) -> None:
        """Make the temporary file."""
        if self._files.exists(self._target):
            raise Exists(f"{self._target} exists")
        self._file = self._files.open(self._temporary, "create")

    def add(self, piece: Sequence[Buffer]) -> None:
        """Write the next bytes; durable when this returns."""
        assert self._file is not None
        self._written += self._file.pwrite(piece, self._written)
        self._file.datasync()

    def finish(self) -> None:
        """Give the file its name; durable, name and all, when this returns."""
        file, self._file = self._file, None
        assert file is not None
        try:
            if not self._written:
                file.datasync()
        finally:
            file.close()
        self._files.make_dirs(self._folder)
        self._files.rename(self._temporary, self._target)
        self._files.sync_dir(self._folder)

    def abandon(self) -> None:
        """Leave nothing under the temporary name; harmless after `finish`."""
        file, self._file = self._file, None
        with suppress(OSError):
            if file is not None:
                file.close()
        with suppress(OSError):
            self._files.remove(self._temporary)
