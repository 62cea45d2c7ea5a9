"""Logs on real bookies, for tests that make a provider without waiting."""

from __future__ import annotations

import uuid
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from sarit.env.real import real_env
from sarit.log.bookkeeper.log import BookKeeperLogs
from sarit.process.places.bookkeeper_logs import open_bookkeeper_logs
from tests.unit.log.bookkeeper.world import SMALL

if TYPE_CHECKING:
    from sarit.log.port import ClaimedLog, DurableLog, LogProvider
    from tests.components.bookkeeper import BookKeeperCluster


class RealLogs:
    """Providers on one cluster, with chains of their own.  `close` ends their connections."""

    def __init__(self, cluster: BookKeeperCluster) -> None:
        self.url = f"bookkeeper://{cluster.zookeeper.hosts}/ledgers"
        self.node = uuid.uuid4().hex
        self._open = AsyncExitStack()

    def provider(self) -> LazyProvider:
        """As a new process would have it."""
        return LazyProvider(self)

    async def connect(self) -> LogProvider:
        """Sessions and connections of its own."""
        found = await self._open.enter_async_context(open_bookkeeper_logs(self.url, real_env(), self.node))
        assert isinstance(found, BookKeeperLogs)
        found.settings = SMALL
        return found

    async def close(self) -> None:
        await self._open.aclose()


class LazyProvider:
    """Connects at its first call."""

    def __init__(self, logs: RealLogs) -> None:
        self._logs = logs
        self._provider: LogProvider | None = None

    async def claim(self, container: int) -> ClaimedLog:
        if self._provider is None:
            self._provider = await self._logs.connect()
        return await self._provider.claim(container)

    async def open(self, container: int) -> DurableLog:
        return await (await self.claim(container)).open(None)
