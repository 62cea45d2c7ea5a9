"""Where the data of a store is: its log, its indexes and its long-term storage, opened by the settings of a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from sarit.env.ports import Env
    from sarit.index.port import IndexProvider
    from sarit.log.port import LogProvider
    from sarit.process.observation.metrics import Metrics
    from sarit.process.settings import NodeConfig
    from sarit.storage.port import ChunkStorage


@dataclass(frozen=True, slots=True)
class StoreParts:
    """Where the data of a store is."""

    logs: LogProvider
    indexes: IndexProvider
    storage: ChunkStorage


async def open_parts(
    config: NodeConfig, env: Env, node: str, metrics: Metrics, closing: AsyncExitStack
) -> StoreParts:  # fmt: skip
    """Open the parts of a node's store, or of one of its stores.  Raises Invalid, Unavailable, OSError.

    `node`: its id, for a log on BookKeeper, whose connections `closing` ends.  Storage has threads from here on."""
    from sarit.process.places.indexes import open_indexes
    from sarit.storage.open import open_storage

    logs: LogProvider
    if config.log_url is None:
        from sarit.log.local import LocalLogProvider

        logs = LocalLogProvider(env, f"{config.data_dir}/log", config.limits.log_file_bytes, metrics.log)
    else:
        from sarit.process.places.bookkeeper_logs import open_bookkeeper_logs

        opening = open_bookkeeper_logs(config.log_url, env, node, metrics.log)
        logs = await closing.enter_async_context(opening)
    indexes = open_indexes(config, env, statistics=metrics.index)
    return StoreParts(logs, indexes, metrics.metered(await open_storage(config.chunks_url, env)))
