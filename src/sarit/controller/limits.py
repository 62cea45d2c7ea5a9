"""Bounds of the controller."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

CREATION_ID_BYTES: Final = 16
# The highest number of an epoch that a record can hold (a compact int).
MAX_EPOCH: Final = 2**30 - 1
# How far behind the last epoch of a mirror its promotion begins: behind all that the source may have had meanwhile.
PROMOTED_EPOCHS: Final = 1_000_000
# If the clock is further than this from a stream's newest recorded cut, it may be wrong ...
MAX_CLOCK_GAP_MS: Final = 3_600_000
# ... so retention by time does not use it for so long, in which an operator can react to the warning.
CLOCK_DOUBT_MS: Final = 3_600_000
# The creation of a group may write a subscription for each of its streams.
MAX_STREAMS_OF_GROUP: Final = 1000

# -- the controller's API ----------------------------------------------------------------------
MAX_WRITER_ID_BYTES: Final = KIB  # part of a table's key
MAX_OUTCOME_WAIT_SECONDS: Final = 30.0
MAX_LISTED_TRANSACTIONS: Final = 500
MAX_STREAMS_COUNTED_FOR_PRUNING: Final = 10_000
MAX_CALLS_PER_NAME: Final = 500  # calls waiting for one stream, group or table; others must find room

# -- controller --------------------------------------------------------------------------------
# How long after a start writers may renew leases that ended while no controller ran.
RESTART_LEASE_GRACE_MS: Final = 30_000
# The longest time that a transaction can be kept open.
MAX_TRANSACTION_MS: Final = 24 * 3600 * 1000
COMMIT_RETRY_SECONDS: Final = 0.5
# How long a call for a transaction's state waits for a completion in progress, to spare the client another call.
TRANSACTION_STATE_WAIT_SECONDS: Final = 0.05
# How long the records of completed transactions are retained at least.
COMPLETED_TRANSACTION_MS: Final = 10 * 60 * 1000
# How far back the latest completed transactions are first searched for.
FIRST_COMPLETED_SPAN_MS: Final = 1000
SCOPE_INCARNATION_BYTES: Final = 8
# The least pause between two maintenance rounds, however short the intervals are.
MIN_ROUND_PAUSE_SECONDS: Final = 0.01
RECOVERY_SWEEP_SECONDS: Final = 1.0
# How long pending work is left to the controller that began it.
RECOVERY_GRACE_SECONDS: Final = 5.0
WATERMARK_READ_BYTES: Final = MIB
# How many parts of transactions that are being committed one look examines at most.
MAX_PARTS_EXAMINED: Final = 4096
# How often a cut is measured again in which a transaction was half merged, before it is recorded as such.
CLEAN_CUT_ATTEMPTS: Final = 3
# How often the cut of a growing stream is recorded in its timeline.
TIMELINE_INTERVAL_SECONDS: Final = 60.0
# (age, span) in ms: of the cuts up to that age, one per span is retained.  A stream that always grows has 60, 138, 144.
TIMELINE_AGES_MS: Final = ((3_600_000, 60_000), (24 * 3_600_000, 600_000), (7 * 24 * 3_600_000, 3_600_000))
TIMELINE_OLDEST_SPAN_MS: Final = 24 * 3_600_000
# The most timeline cuts of one stream: those of the first week, and one a day for 58 days more.
MAX_TIMELINE_CUTS: Final = 400
MAX_TIMELINE_STREAMS: Final = 100_000
# A tag is part of a table key.
MAX_TAG_BYTES: Final = 1024
MAX_SCALING_EVENT_SEGMENTS: Final = 50_000  # of all events in one reply
# How many configurations one reply lists: the event loop is blocked while a page is encoded.
STREAM_CONFIGS_PER_PAGE: Final = 200

# How often a controller checks whether another one has changed the rules of access.
RULES_INTERVAL_SECONDS: Final = 2.0
MAX_RULES: Final = 10_000

# -- quotas
MAX_QUOTAS: Final = 1000
# How often a controller checks whether another one has changed the quotas, and one of them gives them to the stores.
QUOTA_INTERVAL_SECONDS: Final = 2.0
# A scope that was full may write again when it uses less than this part of its storage quota.
QUOTA_FULL_UNTIL: Final = 0.98
MAX_JOBS_OF_STREAM: Final = 32
# How many links may hold one stream, and how many holds one batch writes.
MAX_HOLDS_OF_STREAM: Final = 32
HOLDS_AT_ONCE: Final = 500
MAX_JOB_NAME_CHARACTERS: Final = 64
MAX_JOB_SETTINGS_BYTES: Final = 16_384
MAX_JOB_STATE_BYTES: Final = 65_536
MAX_JOB_HELD_SEGMENTS: Final = 16_384
MAX_JOB_PROBLEM_CHARACTERS: Final = 500

# Where the versions of a mirror's tables begin: no version that a client has from the source is ever one of the mirror.
MIRROR_TABLE_POSITION: Final = 1 << 48
