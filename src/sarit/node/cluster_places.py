"""The log and the index of a cluster, where its description says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.limits_cluster import SHARED_LOG_FILE_BYTES
from sarit.log.local import LocalLogProvider
from sarit.node.cluster_settings import directory_of
from sarit.node.indexes import open_shared_indexes
from sarit.store.flow_control.free_space import log_file_bytes

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from sarit.env.ports import Env
    from sarit.index.port import IndexProvider
    from sarit.log.port import LogProvider
    from sarit.node.cluster_settings import ClusterMeta


def log_size(env: Env, meta: ClusterMeta) -> int:
    """The size of a log file, if logs are files.  Blocks.  Raises OSError."""
    directory = meta.log_directory
    if directory is None:
        return SHARED_LOG_FILE_BYTES
    return min(SHARED_LOG_FILE_BYTES, log_file_bytes(env.files.volume_bytes(directory), meta.containers))


async def open_logs(closing: AsyncExitStack, meta: ClusterMeta, env: Env, file_bytes: int) -> LogProvider:
    """The durable logs, until `closing` ends."""
    return LocalLogProvider(env, directory_of(meta.log, "--log"), file_bytes)


def open_indexes(meta: ClusterMeta, env: Env, cache_bytes: int) -> IndexProvider:
    """The indexes.  Blocks.  Raises Invalid (the extra is not installed), OSError."""
    directory = meta.index_directory
    if directory is None:
        return open_shared_indexes(meta.index)
    from sarit.index.sqlite import SqliteIndexProvider

    env.files.make_dirs(directory)
    return SqliteIndexProvider(env, directory, cache_bytes)
