"""Connections of a backup to the stores of a node on this machine (`process/backup_source.py` says what is spoken)."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Invalid, Unavailable
from sarit.process.backup_source import socket_name
from sarit.process.limits import MAX_BACKUP_LINE_BYTES
from sarit.store.backup_session import PROTOCOL
from sarit.store.limits import BACKUP_IDLE_SECONDS

if TYPE_CHECKING:
    from sarit.env.ports import Files

_SOCKETS: Final = re.compile(r"backup(?:-(\d+))?\.socket")


class TryAgain(Unavailable):
    """This attempt has failed; another one may succeed."""


class Refused(Unavailable):
    """This attempt has failed, and so would others until somebody has done something."""


class NodeConnection:
    """An open connection to one store, which keeps its chunks until `close`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._asking = asyncio.Lock()
        self.containers: frozenset[int] = frozenset()

    def __repr__(self) -> str:
        return f"<NodeConnection to the store of containers {sorted(self.containers)}>"

    @classmethod
    async def open(cls, path: str) -> NodeConnection:
        """Connect to a socket, and begin a backup.  Raises Unavailable, TryAgain, OSError."""
        connection = cls(*await asyncio.open_unix_connection(path, limit=MAX_BACKUP_LINE_BYTES))
        try:
            found = await connection.ask(BACKUP_IDLE_SECONDS, backup=PROTOCOL)
            connection.containers = frozenset(map(int, found["containers"]))
        except BaseException:
            await connection.close()
            raise
        return connection

    async def ask(self, timeout_seconds: float, **message: object) -> dict[str, Any]:
        """Ask the node for one step, and return its answer.  Raises TryAgain, Refused."""
        async with self._asking:
            try:
                async with asyncio.timeout(timeout_seconds):
                    self._writer.write(json.dumps(message).encode() + b"\n")
                    await self._writer.drain()
                    line = await self._reader.readline()
                found: dict[str, Any] = json.loads(line or b'{"error": "the node has stopped", "again": true}')
            except TimeoutError:
                raise TryAgain(f"the node did not answer for {timeout_seconds:.0f} s") from None
            except (OSError, ValueError) as error:
                raise TryAgain(f"the node ended the backup: {error}") from None
        if "error" in found:
            raise (TryAgain if found.get("again") else Refused)(f"the node ended the backup: {found['error']}")
        return found

    async def close(self) -> None:
        """Close the connection, after which the store deletes garbage again."""
        self._writer.close()


async def connect(files: Files, data_dir: str) -> list[NodeConnection]:
    """Connect to all stores of the node that runs on a data directory.

    Raises Invalid (no node runs there, or it cannot be backed up), Unavailable, TryAgain."""
    numbers = [found[1] for name in files.list(data_dir) if (found := _SOCKETS.fullmatch(name))]
    connections: list[NodeConnection] = []
    try:
        # Connects to the stores in order of number: of two backups, the one that gets the first store continues.
        for number in sorted(numbers, key=lambda each: int(each or 0)):
            path = f"{data_dir}/{socket_name(None if number is None else int(number))}"
            try:
                connections.append(await NodeConnection.open(path))
            except (FileNotFoundError, ConnectionRefusedError):
                continue  # this store has ended; `check_whole` finds a missing store by its containers
            except PermissionError:
                raise Invalid(f"{data_dir} belongs to another user: back it up as the user of the node") from None
            except OSError as error:
                raise Invalid(f"the node on {data_dir} cannot be reached: {error}") from None
        if not connections:
            raise Invalid(
                f"no node that can be backed up runs on {data_dir}: start `sarit standalone` there; a cluster "
                "is named with --cluster"
            )
    except BaseException:
        for connection in connections:
            await connection.close()
        raise
    return connections
