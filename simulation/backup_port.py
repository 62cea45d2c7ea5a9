"""Where a backup reaches a store: a port of the simulated network takes the place of its Unix socket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sarit.process.backup_source import BackupSource

if TYPE_CHECKING:
    from sarit.env.ports import Env
    from sarit.store.backup_session import Backups

BACKUP_PORT: Final = 9091


async def offer_backups(backups: Backups, host: str, env: Env) -> BackupSource:
    """Let a backup connect to a store.  Stop the source before the store."""
    source = BackupSource(backups, "/data", env)
    await asyncio.start_server(source._accept, host, BACKUP_PORT)
    return source
