"""Where the indexes of a node are: in its data directory, or on an object store (`--index-storage`).

A place on an object store belongs to one node, as long-term storage does: two nodes would take the indexes from each
other.  The owner chunk says whose it is (`ownership.py`).
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from sarit.core.errors import Invalid, Unavailable
from sarit.core.extras import require
from sarit.process.ownership.claims import claim_owner_chunk
from sarit.storage.open import open_storage, parse_s3, s3_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.env.ports import Env
    from sarit.index.port import IndexProvider
    from sarit.index.slate import SlateIndexProvider
    from sarit.index.statistics import IndexStatistics
    from sarit.process.ownership.claims import DirectoryClaim
    from sarit.process.settings import NodeConfig

_log = logging.getLogger("sarit.process")


def open_indexes(
    config: NodeConfig, env: Env, environ: Mapping[str, str] | None = None, statistics: IndexStatistics | None = None
) -> IndexProvider:
    """Return the indexes of a node.  Blocks.  Raises Invalid (the extra is not installed, or the URL is wrong),
    OSError.

    `environ` stands for the process's environment variables."""
    if config.index_url is not None:
        cache_bytes = config.limits.index_cache_bytes * config.limits.containers
        return open_shared_indexes(config.index_url, cache_bytes, environ, statistics)
    from sarit.index.sqlite import SqliteIndexProvider

    directory = f"{config.data_dir}/index"
    env.files.make_dirs(directory)
    return SqliteIndexProvider(env, directory, config.limits.index_cache_bytes)


def open_shared_indexes(
    url: str, cache_bytes: int, environ: Mapping[str, str] | None = None, statistics: IndexStatistics | None = None
) -> SlateIndexProvider:
    """Indexes on the object store at `url`, with a cache for all of them.  Sends no request yet.  Raises Invalid.

    `statistics`: where their requests are counted."""
    bucket, prefix = parse_s3(url)
    require("cluster", "an index on an object store")
    from sarit.index.slate import open_on_s3

    config = s3_config(os.environ if environ is None else environ)
    return open_on_s3(bucket, prefix, config, cache_bytes, statistics)


async def claim_index_storage(config: NodeConfig, env: Env, claim: DirectoryClaim) -> None:
    """Check that the place of the indexes belongs to this node, or take a new one.

    Call it after long-term storage was claimed.  Raises Invalid, Unavailable (only before the first claim)."""
    if config.index_url is None or config.index_url == config.storage_url:
        return
    place = await open_storage(config.index_url, env)
    written = claim.complete and not config.accept_data_loss
    try:
        await claim_owner_chunk(place, claim.node, config.containers, written=written, new=not claim.complete)
    except Invalid as error:
        raise Invalid(f"--index-storage {config.index_url}: {error}") from None
    except Unavailable as error:
        if not written:
            raise
        _log.warning("the storage of the indexes is unavailable; it belonged to this node at its last start: %s", error)
    finally:
        await place.close()
