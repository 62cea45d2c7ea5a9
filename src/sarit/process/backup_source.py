"""Lets a backup ask the stores of a node on this machine: over a Unix socket in the data directory.

`sarit backup create` connects to it: who may write to the data directory may back it up.  A node of several processes
has one for each store.  The command copies everything itself, from the files of the node; a store only stands still for
a moment and deletes no chunk while the connection lasts (`store/backup_session.py` says which steps there are).

Each line of JSON is a step, and is answered by one line:

    backup   {"backup": 2}
    store    {"containers": [0, 3], "of": 4}
    backup   {"prepare": true}
    store    {"prepared": true}
    ...
    backup   {"copying": true}                  every BACKUP_SIGN_SECONDS, at any time
    store    {"copying": true}

Instead of an answer the store may say {"error": "why", "again": true}, and the backup ends; `again`: another attempt
may succeed.  It ends with the connection, too.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import SaritError
from sarit.env.background import Background
from sarit.process.limits import MAX_BACKUP_LINE_BYTES, MAX_SOCKET_PATH_BYTES
from sarit.store.backup_session import BackupEnded
from sarit.store.limits import BACKUP_IDLE_SECONDS

if TYPE_CHECKING:
    from sarit.env.ports import Env
    from sarit.store.backup_session import Backups, BackupSession

_log = logging.getLogger("sarit.process")

_SOCKET: Final = "backup{}.socket"
_ONLY_OWNER: Final = 0o600


def socket_name(store: int | None) -> str:
    """Return the name of the socket of a store in the data directory; None: of a node in one process."""
    return _SOCKET.format("" if store is None else f"-{store}")


class BackupSource:
    """Listens in the data directory of a node, once its store serves.  `number`: of a store of several."""

    def __init__(self, backups: Backups, directory: str, env: Env, number: int | None = None) -> None:
        self._backups = backups
        self._path = f"{directory}/{socket_name(number)}"
        self._files = env.files
        self._server: asyncio.Server | None = None
        self._background = Background.critical(_log, "a backup")

    def __repr__(self) -> str:
        return f"<BackupSource {self._path}, {self._backups!r}>"

    async def start(self) -> None:
        """Listen.  A node that cannot listen here serves all the same, and cannot be backed up."""
        if len(os.fsencode(self._path)) > MAX_SOCKET_PATH_BYTES:
            _log.warning(
                "this node cannot be backed up while it runs: %s is longer than %d bytes", self._path,
                MAX_SOCKET_PATH_BYTES,
            )  # fmt: skip
            return
        try:
            # Replaces the socket that an earlier node left: no other node runs, since the data directory is locked.
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
        self._backups.stop()
        await self._background.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._background.spawn(self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection, session = _Connection(reader, writer), None
        try:
            async with asyncio.timeout(BACKUP_IDLE_SECONDS):
                request = await connection.receive()
            session = self._backups.begin(request)
            await connection.send(**session.begun())
            await _answer_steps(connection, session)
            _log.info("the backup has ended")
        except (SaritError, TimeoutError, OSError, ValueError) as error:
            _log.warning("a backup ended before it was complete: %s", error or type(error).__name__)
            again = isinstance(error, BackupEnded) and error.again
            with suppress(OSError, TimeoutError):
                await connection.send(error=str(error) or "the backup was silent for too long", again=again)
        finally:
            if session is not None:
                session.end("the backup has ended", again=False)
            writer.close()


async def _answer_steps(connection: _Connection, session: BackupSession) -> None:
    """Until the end of the connection, which is noticed during a step, too.  Raises what ended the session."""
    receiving = asyncio.ensure_future(connection.receive())
    try:
        while True:
            await asyncio.wait((receiving, session.over), return_when=asyncio.FIRST_COMPLETED)
            if not receiving.done():
                session.over.result()
            message = receiving.result()
            if not message:
                return
            receiving = asyncio.ensure_future(connection.receive())
            answering = asyncio.ensure_future(session.answer(message))
            try:
                await asyncio.wait((answering, receiving), return_when=asyncio.FIRST_COMPLETED)
                if not answering.done() and not receiving.result():
                    return
                await connection.send(**await answering)
            finally:
                answering.cancel()
                await asyncio.gather(answering, return_exceptions=True)
    finally:
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)


class _Connection:
    """Lines of JSON.  Raises TimeoutError, OSError, ValueError."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self) -> dict[str, Any]:
        """Return the next line; nothing at the end of the connection."""
        line = await self._reader.readline()
        if not line:
            return {}
        found = json.loads(line)
        if not isinstance(found, dict) or not found:
            raise ValueError("not a message of a backup")
        return found

    async def send(self, **message: object) -> None:
        """Send a line."""
        # Of a transport that has closed itself uvloop raises RuntimeError.
        if self._writer.is_closing():
            raise ConnectionResetError("the connection is closed")
        self._writer.write(json.dumps(message).encode() + b"\n")
        async with asyncio.timeout(BACKUP_IDLE_SECONDS):
            await self._writer.drain()
