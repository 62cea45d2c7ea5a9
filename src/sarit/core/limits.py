"""Units, and numbers of formats and of the wire that several packages read, by name, unit last.

Every other bound is in the `limits.py` of the package that reads it: of several, the lowest.  Settings that an operator
chooses are in `process/settings.py`.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# -- wire --------------------------------------------------------------------------------------
EVENT_HEADER_BYTES: Final = 8

# Networks of clients (`core/networks.py`): how many are cached, and the most characters of one that is no address.
MAX_CACHED_NETWORKS: Final = 4096
MAX_NETWORK_CHARACTERS: Final = 64

# -- serialized forms ---------------------------------------------------------------------------
MAX_JAVA_TEXT_BYTES: Final = 0xFFFF
# The most bytes of text in a compressed stream cut, so that a small hostile one cannot fill memory.
MAX_CUT_TEXT_BYTES: Final = 16 * MIB

# -- tables ----------------------------------------------------------------------------------
MAX_TABLE_KEY_BYTES: Final = 8192
MAX_TABLE_VALUE_BYTES: Final = MIB - 8192

# -- numbers the protocol gives a meaning ------------------------------------------------------
NULL_ATTRIBUTE_VALUE: Final = -(1 << 63)
NOT_EXISTS: Final = -1

# -- log lines ---------------------------------------------------------------------------------
REPEATED_LOG_SECONDS: Final = 60.0  # between two log lines on one lasting condition
MAX_REPEATED_LOG_KEYS: Final = 1000
MAX_REQUEST_ID_CHARACTERS: Final = 64  # the most characters of a client's request id in log lines

# -- log, storage -----------------------------------------------------------------------------
LOG_IDENTITY_BYTES: Final = 16  # random, created with the log: the index knows it, and so do all files of the log
# The most flushed bytes between two known offsets at which appends began (storage/starts.py).
BOUNDARY_STEP_BYTES: Final = 256 * KIB

# -- controller --------------------------------------------------------------------------------
TRANSACTION_ID_BYTES: Final = 16
MIN_TRANSACTION_LEASE_MS: Final = 10_000
MAX_TRANSACTION_LEASE_MS: Final = 600_000
# Requests to scale that wait for evaluation.  More are dropped: stores repeat them.
MAX_SCALE_REQUESTS: Final = 10_000

# How often the bytes of scopes with a quota of storage are counted.
QUOTA_MEASURE_SECONDS: Final = 30.0
