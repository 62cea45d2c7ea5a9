"""Where a backup reads the indexes: one snapshot of each, beside the store that writes to it.

A copy is an SQLite database in either case, so a backup of a cluster and one of a node have the same form.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from sarit.core.errors import Unavailable
from sarit.index import keys
from sarit.index.port import WriteBatch
from sarit.index.sqlite import SqliteIndexProvider
from sarit.ops.backup.index_copy import IndexSnapshot
from sarit.ops.backup.limits import INDEX_ROWS_PER_COMMIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.env.ports import Env, Files, Worker
    from sarit.index.slate import SlateIndexProvider
    from sarit.index.slate_snapshot import SlateSnapshot
    from sarit.ops.backup.pacer import Progress

_EVERYTHING: Final = b"", b"\xff" * 64
_UNFINISHED: Final = "index-unfinished"


class Snapshot(Protocol):
    """The index of one container at one moment."""

    async def copy(self, target: str, progress: Progress) -> None:
        """Write the index to a new SQLite file, and end the snapshot.  Raises Unavailable, Corrupt, OSError."""

    async def close(self) -> None:
        """End the snapshot, whether or not it was copied; closing twice is harmless."""


class Indexes(Protocol):
    """The indexes of an installation."""

    async def snapshot(self, number: int, frame: int) -> Snapshot:
        """Return a snapshot of an index.  Raises Unavailable when it does not show the checkpoint of `frame`."""


class SqliteIndexes:
    """Files of this machine.  `path_of`: that of a container's index."""

    def __init__(self, files: Files, worker: Worker, path_of: Callable[[int], str]) -> None:
        self._files = files
        self._worker = worker
        self._path_of = path_of

    async def snapshot(self, number: int, frame: int) -> Snapshot:
        """Begin a read transaction, which is the snapshot."""
        path = self._path_of(number)
        return _SqliteSnapshot(
            self._files, self._worker, path, number, await self._worker.run(partial(IndexSnapshot, path, frame))
        )


class _SqliteSnapshot:
    def __init__(self, files: Files, worker: Worker, path: str, number: int, snapshot: IndexSnapshot) -> None:
        self._files = files
        self._worker = worker
        self._path = path
        self._number = number
        self._snapshot = snapshot

    async def copy(self, target: str, progress: Progress) -> None:
        progress.begin(f"index {self._number}", await self._worker.run(self._length))
        await self._worker.run(partial(self._snapshot.copy, self._files, target, progress.add))

    async def close(self) -> None:
        """End the read transaction, and a copy that is being made, since nobody waits for it any more."""
        self._snapshot.stop()
        await self._worker.run(self._snapshot.close)

    def _length(self) -> int:
        file = self._files.open(self._path, "read")
        try:
            return file.size()
        finally:
            file.close()


class SlateIndexes:
    """Databases on an object store."""

    def __init__(self, env: Env, worker: Worker, provider: SlateIndexProvider) -> None:
        self._env = env
        self._worker = worker
        self._provider = provider

    async def snapshot(self, number: int, frame: int) -> Snapshot:
        """Take a checkpoint of SlateDB, which keeps the objects that it names."""
        # Imported here: only an index on an object store needs this library.
        from sarit.index.slate_snapshot import take_snapshot

        found = await take_snapshot(self._provider, number)
        try:
            (stored,) = await found.get([keys.meta_key("frame")])
            shown = 0 if stored is None else keys.parse_attribute_value(stored)
            if shown != frame:
                raise Unavailable(f"index {number} shows frame {shown}, not {frame} of the checkpoint: try again")
        except BaseException:
            await found.close()
            raise
        return _SlateCopy(self._env, self._worker, number, found)


class _SlateCopy:
    def __init__(self, env: Env, worker: Worker, number: int, snapshot: SlateSnapshot) -> None:
        self._env = env
        self._worker = worker
        self._number = number
        self._snapshot = snapshot

    async def copy(self, target: str, progress: Progress) -> None:
        """Copy the index record by record, each of which is checked."""
        progress.begin(f"index {self._number}", None)
        # Copies into a new folder, since the index provider chooses the name of the file.
        folder = f"{target.rpartition('/')[0]}/{_UNFINISHED}"
        await self._worker.run(partial(clear_folder, self._env.files, folder))
        index = await SqliteIndexProvider(self._env, folder).open(self._number)
        try:
            at, end = _EVERYTHING
            while rows := await self._snapshot.scan(at, end, INDEX_ROWS_PER_COMMIT):
                await index.commit(WriteBatch(puts=dict(rows)))
                progress.add(sum(len(key) + len(value) for key, value in rows))
                at = keys.after(rows[-1][0])
        finally:
            await index.close()
            await self._snapshot.close()
        await self._worker.run(partial(_take, self._env.files, folder, target))

    async def close(self) -> None:
        await self._snapshot.close()


def path_of_copy(work: str, number: int) -> str:
    """Return where the copy of an index is while a backup stores it."""
    return f"{work}/index-{number}"


def remove_copies(files: Files, work: str, containers: int) -> None:
    """Remove what a backup has left in `work`, and nothing else that is there.  Blocking."""
    for number in range(containers):
        path = path_of_copy(work, number)
        for name in (path, f"{path}-journal"):
            with suppress(FileNotFoundError):
                files.remove(name)
    if files.exists(f"{work}/{_UNFINISHED}"):
        clear_folder(files, f"{work}/{_UNFINISHED}")


def clear_folder(files: Files, folder: str) -> None:
    """Create a folder, or remove the files in it.  Blocking."""
    files.make_dirs(folder)
    for name in files.list(folder):
        files.remove(f"{folder}/{name}")


def _take(files: Files, folder: str, target: str) -> None:
    """Move the one file of a folder; SQLite has put its WAL into it when it was closed.  Raises Unavailable."""
    names = files.list(folder)
    if len(names) != 1:
        raise Unavailable(f"the copy of an index in {folder} is not whole: {', '.join(names) or 'there is no file'}")
    with suppress(FileNotFoundError):
        files.remove(target)
    files.rename(f"{folder}/{names[0]}", target)
