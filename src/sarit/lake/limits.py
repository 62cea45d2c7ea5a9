"""Bounds of streams as Iceberg tables."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

# -- settings of a table, as users choose them ---------------------------------------------------
MAX_ICEBERG_SETTINGS_BYTES: Final = 4 * KIB  # of the settings of one table, encoded
MAX_NAMESPACE_LEVELS: Final = 8  # of a table's name in its catalog
MAX_ICEBERG_NAME_CHARACTERS: Final = 128  # of a catalog, a level of a namespace and a table, as in Hive
MIN_COMMIT_INTERVAL_SECONDS: Final = 1
MAX_COMMIT_INTERVAL_SECONDS: Final = 86_400
DEFAULT_COMMIT_INTERVAL_SECONDS: Final = 60
MIN_TARGET_FILE_BYTES: Final = 1 * MIB
MAX_TARGET_FILE_BYTES: Final = 512 * MIB
DEFAULT_TARGET_FILE_BYTES: Final = 128 * MIB
# How long snapshots stay: a query that began on one has so long to end.
MIN_SNAPSHOT_AGE_SECONDS: Final = 60
MAX_SNAPSHOT_AGE_SECONDS: Final = 366 * 86_400
DEFAULT_SNAPSHOT_AGE_SECONDS: Final = 86_400

# -- catalogs of a node, as operators configure them ---------------------------------------------
MAX_CATALOGS: Final = 100
MAX_CATALOG_PROPERTIES: Final = 100  # of one catalog
MAX_CATALOG_PROPERTY_CHARACTERS: Final = 8192  # of the name and the value of one
MIN_HIDDEN_CHARACTERS: Final = 4  # shorter secrets are not searched for in texts: words have them, too
MAX_SHOWN_CATALOG_ERROR_CHARACTERS: Final = 500  # of what a catalog's library says of a failure

# -- committers ----------------------------------------------------------------------------------
ROW_GROUP_BYTES: Final = 16 * MIB  # of Arrow, that are collected for one row group of a Parquet file
MAX_LAKE_ERROR_CHARACTERS: Final = 300  # of the error of a dead letter, and of a library
METADATA_FILES_KEPT: Final = 100  # of earlier versions of a table
MAX_SUMMARY_CUT_CHARACTERS: Final = 128 * KIB  # of a cut in the metadata of a table
COMMIT_ATTEMPTS: Final = 4  # of one intent with the same files, when others commit at the same time
MAX_COUNT_DIGITS: Final = 18  # of a number in the summary of a snapshot
MAX_SAMPLE_EVENTS: Final = 2000  # of a commit, from which columns of JSON are inferred
SAMPLE_EVENTS_OF_BATCH: Final = 100  # of each batch
# How often a committer that waits polls the tail of its stream: this part of its interval, within bounds.
TAIL_POLLS_PER_INTERVAL: Final = 6
MIN_TAIL_POLL_SECONDS: Final = 0.25
MAX_TAIL_POLL_SECONDS: Final = 10.0

# -- maintenance -----------------------------------------------------------------------------------
MAX_SNAPSHOTS_KEPT: Final = 10_000  # of one table: each commit writes the list of all of them
EXPIRED_SNAPSHOTS_AT_ONCE: Final = 1000  # by one round
NUMBERED_METADATA_KEPT: Final = 100  # copies of metadata by number: a reader that has read a number opens its copy
