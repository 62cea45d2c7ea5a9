"""Bounds of export and import."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

# A longer one in a file is damage.
MAX_EXPORTED_EVENT_BYTES: Final = 64 * MIB
# An export that is killed repeats so much, or one Parquet file.
EXPORT_NOTE_BYTES: Final = 16 * MIB
EXPORT_PART_BYTES: Final = 64 * MIB
EXPORT_PART_EVENTS: Final = 1_000_000
# One transaction of an import.
IMPORT_BATCH_BYTES: Final = 4 * MIB
IMPORT_BATCH_EVENTS: Final = 20_000
IMPORT_READ_BYTES: Final = MIB
# By which an import knows its file.
FILE_BEGIN_BYTES: Final = 4 * KIB
TRANSFER_SHOW_SECONDS: Final = 0.5
# All that a stream may have, and the quotes of JSON.
MAX_PROPERTIES_FILE_BYTES: Final = 512 * KIB

# Parquet.  A small file may decode to gigabytes; by these an import of any file takes less than 600 MiB.  A page is
# held compressed, decompressed and in rows, and pages of one row group count together.
MAX_PARQUET_PAGE_BYTES: Final = 128 * MIB
MAX_PARQUET_DICTIONARY_VALUES: Final = 1 << 20
# Values inside lists of one row group: one row may have all of them.
MAX_PARQUET_HEADERS: Final = 8 << 20
PARQUET_BATCH_BYTES: Final = 64 * MIB
PARQUET_BATCH_ROWS: Final = 10_000
PARQUET_HEADER_BYTES: Final = 400  # of Python's objects for one header
PARQUET_VALUE_BYTES: Final = 16  # of a value that is no bytes, with its levels
MAX_PARQUET_NAMES_SHOWN: Final = 10
