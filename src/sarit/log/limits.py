"""Bounds, sizes and intervals of the durable log, by name, unit last."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

# -- container and durable log --------------------------------------------------------------
MAX_FRAME_BYTES: Final = 32 * MIB
LOG_FRAMES_IN_FLIGHT: Final = 2  # frames in flight of a log on the local disk: one is written, the next one waits
LOG_FILE_BYTES: Final = 64 * MIB
# The first files of a log are short; later ones are longer by this factor while the log holds more than one.
FIRST_LOG_FILE_BYTES: Final = 1 * MIB
LOG_FILE_GROWTH: Final = 4
LOG_GROUP_BYTES: Final = 8 * MIB
LOG_READ_BYTES: Final = 4 * MIB
LOG_WATERMARK_SECONDS: Final = 0.5
LOG_SPACE_TIMEOUT_SECONDS: Final = 10.0
LOG_SPACE_RETRY_SECONDS: Final = 0.25
MAX_RECYCLED_LOG_FILES: Final = 16
# A log that has needed no new file for so long keeps only a few recycled files.
LOG_IDLE_SECONDS: Final = 600.0
IDLE_RECYCLED_LOG_FILES: Final = 2

# -- log, storage, index -----------------------------------------------------------------------
# Formats on disk (docs/formats/durable-log.md): these numbers cannot change without a new version of the format.
LOG_BLOCK_BYTES: Final = 4 * KIB  # each group of records begins at a multiple of this
LOG_SALT_BYTES: Final = 12  # the salt in a file's header, which records of the file's former use do not match
LOG_TAG_BYTES: Final = 4  # the part of the salt that each record repeats
LOG_JOIN_BELOW_BYTES: Final = 4 * KIB  # parts of a frame are joined up to this size, since a call per part costs more
# Up to this size a checksum holds the interpreter lock.  Taking the lock back takes longer (with a busy event loop, a
# whole switch interval) than the checksum of a MiB: 50 us.
LOG_CRC_HOLD_LOCK_BYTES: Final = 1024 * KIB
