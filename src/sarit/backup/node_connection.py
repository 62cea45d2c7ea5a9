"""The connection of a backup to its node (`node/backup_source.py` says what is spoken)."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from sarit.core.errors import Invalid, Unavailable
from sarit.node.backup_source import PROTOCOL, SOCKET
from sarit.node.limits import (
    BACKUP_ARRIVAL_SECONDS,
    BACKUP_COMMIT_SECONDS,
    BACKUP_IDLE_SECONDS,
    BACKUP_SIGN_SECONDS,
    MAX_BACKUP_LINE_BYTES,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import TypeVar

    T = TypeVar("T")


class NodeConnection:
    """An open connection: the node keeps its chunks until `close`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, data_dir: str) -> NodeConnection:
        """Connect to the node that runs on a data directory, and ask for a backup.

        Raises Invalid (no node runs there, or it cannot be backed up)."""
        try:
            reader, writer = await asyncio.open_unix_connection(f"{data_dir}/{SOCKET}", limit=MAX_BACKUP_LINE_BYTES)
        except (FileNotFoundError, ConnectionRefusedError):
            raise Invalid(
                f"no node that can be backed up runs on {data_dir}: start `sarit standalone` there.  A node with "
                "--processes or --index-storage and a cluster cannot be backed up yet"
            ) from None
        except PermissionError:
            raise Invalid(f"{data_dir} belongs to another user: back it up as the user of the node") from None
        except OSError as error:
            raise Invalid(f"the node on {data_dir} cannot be reached: {error}") from None
        connection = cls(reader, writer)
        await connection._send(backup=PROTOCOL)
        return connection

    async def committed(self) -> tuple[int, int]:
        """The next container whose index is to be read, and its frame.  Raises Unavailable."""
        message = await self._receive(BACKUP_ARRIVAL_SECONDS + BACKUP_COMMIT_SECONDS)
        return int(message["committed"]), int(message["frame"])

    async def read(self, container: int) -> None:
        """A read transaction shows the index of the container."""
        await self._send(read=container)

    async def while_kept(self, work: Coroutine[Any, Any, T]) -> T:
        """Do `work` while the node keeps its chunks.  Raises Unavailable (it does not any more), and what it raises."""
        task, keeping = asyncio.ensure_future(work), asyncio.ensure_future(self._keep())
        try:
            await asyncio.wait((task, keeping), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                keeping.result()
            return task.result()
        finally:
            for each in (task, keeping):
                each.cancel()
            await asyncio.gather(task, keeping, return_exceptions=True)

    async def close(self) -> None:
        """The node deletes what is garbage from here on."""
        self._writer.close()

    async def _keep(self) -> None:
        while True:
            await self._send(copying=True)
            await self._receive(BACKUP_IDLE_SECONDS)
            await asyncio.sleep(BACKUP_SIGN_SECONDS)

    async def _send(self, **message: object) -> None:
        try:
            self._writer.write(json.dumps(message).encode() + b"\n")
            await self._writer.drain()
        except OSError as error:
            raise Unavailable(f"the node ended the backup: {error}") from None

    async def _receive(self, timeout_seconds: float) -> dict[str, Any]:
        try:
            async with asyncio.timeout(timeout_seconds):
                line = await self._reader.readline()
            message: dict[str, Any] = json.loads(line or b'{"error": "the node has stopped"}')
        except TimeoutError:
            raise Unavailable(f"the node did not answer for {timeout_seconds:.0f} s") from None
        except (OSError, ValueError) as error:
            raise Unavailable(f"the node ended the backup: {error}") from None
        if "error" in message:
            raise Unavailable(f"the node ended the backup: {message['error']}")
        return message
