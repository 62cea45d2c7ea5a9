"""Lets a backup read the indexes of a running node at one moment, and keeps the chunks that they name.

`sarit backup create` connects to a Unix socket in the data directory: who may write there may back it up.  It copies
everything itself, from the files of the node; the node only makes a joint checkpoint
(`store/tiering/joint_checkpoint.py`) and deletes no chunk while the connection lasts.  One backup runs at a time.

Lines of JSON, in this order:

    backup   {"backup": 1}
    node     {"committed": 0, "frame": 812}     the index of container 0 shows the moment: begin to read it
    backup   {"read": 0}                        a read transaction of SQLite shows it for as long as it is needed
    ...                                         the same for each container
    backup   {"copying": true}                  every BACKUP_SIGN_SECONDS
    node     {"copying": true}

Instead of an answer the node may say {"error": "why"}, and the backup ends.  It ends with the connection, too, and when
nothing comes for BACKUP_IDLE_SECONDS: a backup that dies or stops must not keep garbage for ever.  It also ends when
storage or the disk of the node is nearly full, when a container recovers, and after MAX_BACKUP_SECONDS.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Invalid, SaritError, Unavailable
from sarit.env.background import Background
from sarit.node.limits import (
    BACKUP_ARRIVAL_SECONDS,
    BACKUP_COMMIT_SECONDS,
    BACKUP_IDLE_SECONDS,
    MAX_BACKUP_LINE_BYTES,
    MAX_BACKUP_SECONDS,
    MAX_SOCKET_PATH_BYTES,
)
from sarit.store.tiering.chunk_gc import DeletionHold
from sarit.store.tiering.joint_checkpoint import JointCheckpoint

if TYPE_CHECKING:
    from sarit.env.ports import Env
    from sarit.store.opening import Opened
    from sarit.store.store import SegmentStore

_log = logging.getLogger("sarit.node")

SOCKET: Final = "backup.socket"
PROTOCOL: Final = 1
_ONLY_OWNER: Final = 0o600


class BackupSource:
    """Listens in the data directory of a node, once its store serves."""

    def __init__(self, store: SegmentStore, directory: str, env: Env) -> None:
        self._store = store
        self._path = f"{directory}/{SOCKET}"
        self._clock = env.clock
        self._files = env.files
        self._server: asyncio.Server | None = None
        self._running = False
        self._background = Background.critical(_log, "a backup")

    def __repr__(self) -> str:
        return f"<BackupSource {self._path}, {'a backup runs' if self._running else 'idle'}>"

    async def start(self) -> None:
        """Listen.  A node that cannot listen here serves all the same, and cannot be backed up."""
        if len(os.fsencode(self._path)) > MAX_SOCKET_PATH_BYTES:
            _log.warning(
                "this node cannot be backed up while it runs: %s is longer than %d bytes", self._path,
                MAX_SOCKET_PATH_BYTES,
            )  # fmt: skip
            return
        try:
            # It replaces what an earlier node left; the data directory is locked.
            self._server = await asyncio.start_unix_server(self._accept, self._path, limit=MAX_BACKUP_LINE_BYTES)
            os.chmod(self._path, _ONLY_OWNER)
        except OSError as error:
            _log.warning("this node cannot be backed up while it runs: %s: %s", self._path, error)

    async def stop(self) -> None:
        """End a backup that runs."""
        if self._server is not None:
            self._server.close()
            with suppress(OSError):
                self._files.remove(self._path)
        await self._background.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._background.spawn(self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(reader, writer)
        try:
            request = await connection.receive()
            if request.get("backup") != PROTOCOL:
                raise Invalid("the backup is of another version of Sarit than the node: use the node's")
            if self._running:
                raise Unavailable("another backup of this node runs: wait for its end")
            self._running = True
            try:
                await self._back_up(connection)
            finally:
                self._running = False
        except (SaritError, TimeoutError, OSError, ValueError) as error:
            _log.warning("a backup ended before it was complete: %s", error or type(error).__name__)
            with suppress(OSError):
                await connection.send(error=str(error) or "the backup was silent for too long")
        finally:
            writer.close()

    async def _back_up(self, connection: _Connection) -> None:
        opened = self._all_containers()
        hold = DeletionHold()
        joint = JointCheckpoint({each.container.number: each.flusher for each in opened})
        for each in opened:
            each.flusher.garbage.hold = hold
        try:
            joint.ask()
            await joint.begun(BACKUP_ARRIVAL_SECONDS)
            for each in opened:
                number = each.container.number
                frame = await joint.committed(number, BACKUP_COMMIT_SECONDS)
                await connection.send(committed=number, frame=frame)
                if (await connection.receive()).get("read") != number:
                    raise Invalid("the backup did not read the index that it was given")
                joint.release(number)
            _log.info("a backup copies: until it ends, no chunk is deleted")
            await self._while_it_copies(connection, opened, hold)
        finally:
            joint.abandon()
            hold.end("the backup has ended")
            for each in opened:
                each.flusher.garbage.hold = None
                each.flusher.wake()

    def _all_containers(self) -> list[Opened]:
        opened = self._store.opened()
        if len(opened) < self._store.limits.containers:
            raise Unavailable("not all containers of the node serve: a backup would not be whole; see the node's log")
        return opened

    async def _while_it_copies(self, connection: _Connection, opened: list[Opened], hold: DeletionHold) -> None:
        end = self._clock.monotonic() + MAX_BACKUP_SECONDS
        # An empty line is the end of the connection.
        while await connection.receive(or_end=True):
            if self._store.budget.disk_full:
                hold.end("the disk of the node is nearly full")
            if self._clock.monotonic() > end:
                hold.end(f"it took longer than {MAX_BACKUP_SECONDS / 3600:.0f} hours")
            if self._store.opened() != opened:
                hold.end("a container of the node recovered meanwhile")
            if hold.ended:
                raise Unavailable(f"{hold.ended}: run the backup again, it goes on with what it has")
            await connection.send(copying=True)
        _log.info("the backup has ended")


class _Connection:
    """Lines of JSON.  Raises TimeoutError, OSError, ValueError."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self, *, or_end: bool = False) -> dict[str, Any]:
        """The next line; with `or_end` an empty one at the end of the connection."""
        async with asyncio.timeout(BACKUP_IDLE_SECONDS):
            line = await self._reader.readline()
        if not line:
            if or_end:
                return {}
            raise ConnectionResetError("it was ended")
        found = json.loads(line)
        if not isinstance(found, dict) or not found:
            raise ValueError("not a message of a backup")
        return found

    async def send(self, **message: object) -> None:
        """Send a line."""
        self._writer.write(json.dumps(message).encode() + b"\n")
        async with asyncio.timeout(BACKUP_IDLE_SECONDS):
            await self._writer.drain()
