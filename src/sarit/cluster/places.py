"""Opens the log and the index of a cluster by its description."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sarit.cluster.limits import SHARED_LOG_FILE_BYTES
from sarit.core.errors import Invalid
from sarit.log.local import LocalLogProvider
from sarit.process.places.bookkeeper_logs import open_bookkeeper_logs
from sarit.process.places.indexes import open_shared_indexes
from sarit.storage.open import directory_of
from sarit.store.flow_control.free_space import log_file_bytes

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from sarit.cluster.settings import ClusterMeta
    from sarit.env.ports import Env
    from sarit.index.port import IndexProvider
    from sarit.index.statistics import IndexStatistics
    from sarit.log.port import ConfirmableLogs
    from sarit.log.statistics import LogStatistics


def log_size(env: Env, meta: ClusterMeta) -> int:
    """Return the size of a log file in bytes, for logs in a directory.  Blocks.  Raises OSError."""
    directory = meta.log_directory
    if directory is None:
        return SHARED_LOG_FILE_BYTES
    return min(SHARED_LOG_FILE_BYTES, log_file_bytes(env.files.volume_bytes(directory), meta.containers))


async def open_cluster_logs(
    closing: AsyncExitStack, meta: ClusterMeta, env: Env, file_bytes: int, statistics: LogStatistics | None = None
) -> ConfirmableLogs:
    """Open the durable logs, which `closing` closes.

    Raises Invalid, Unavailable: there is no BookKeeper, or it has too few bookies."""
    if meta.log_directory is not None:
        return LocalLogProvider(env, meta.log_directory, file_bytes, statistics)
    # The chains of ledgers are stored under the id of the cluster.
    return await closing.enter_async_context(open_bookkeeper_logs(meta.log, env, meta.cluster, statistics))


def default_index(log: str, storage: str) -> str:
    """Return the default URL of the index: beside a directory of logs, or long-term storage on S3.  Raises Invalid."""
    if urlsplit(log).scheme == "file":
        return f"file://{posixpath.join(posixpath.dirname(directory_of(log, '--log')), 'index')}"
    if urlsplit(storage).scheme == "s3":
        return storage
    raise Invalid(
        "--index s3://bucket/prefix is needed: the index cannot be in long-term storage that is no object store"
    )


def open_indexes(
    meta: ClusterMeta, env: Env, cache_bytes: int, statistics: IndexStatistics | None = None
) -> IndexProvider:
    """Open the indexes.  Blocks.  Raises Invalid (the extra is not installed), OSError."""
    directory = meta.index_directory
    if directory is None:
        return open_shared_indexes(meta.index, cache_bytes * meta.containers, statistics=statistics)
    from sarit.index.sqlite import SqliteIndexProvider

    env.files.make_dirs(directory)
    return SqliteIndexProvider(env, directory, cache_bytes)
