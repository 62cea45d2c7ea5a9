"""Bounds and intervals of backups."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import MIB

INDEX_PART_BYTES: Final = 4 * MIB  # the parts of an index's copy; a part that did not change is not stored again
COPIES_IN_FLIGHT: Final = 4  # each holds one chunk in memory
COPY_BLOCK_BYTES: Final = 1 * MIB  # the rate is applied to blocks of this size
SQLITE_PAGES_PER_STEP: Final = 2048
DIGEST_BYTES: Final = 20
MAX_MANIFEST_BYTES: Final = 1024 * MIB
EXTENTS_PER_PAGE: Final = 5000
# The least attempts of one backup, when a store ends, a container moves or storage is away meanwhile; the pause before
# the second one, which is doubled each time up to a bound; and how long it tries unless --wait says otherwise.
ATTEMPTS: Final = 5
ATTEMPT_PAUSE_SECONDS: Final = 1.0
MAX_ATTEMPT_PAUSE_SECONDS: Final = 30.0
INDEX_ROWS_PER_COMMIT: Final = 2000  # of an index that is copied record by record
COPY_CACHE_BYTES: Final = 0  # each block of an index on an object store is read once

# -- backup -----------------------------------------------------------------------------------
BACKUP_SIGN_SECONDS: Final = 2.0  # between two signs of a backup that copies
