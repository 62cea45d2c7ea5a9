"""Bounds of the controller."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

CREATION_ID_BYTES: Final = 16
# A clock that is further from the newest recorded cut of a stream at a start may be wrong ...
MAX_CLOCK_GAP_MS: Final = 3_600_000
# ... so retention by time does not follow it for so long: time for somebody to read the warning.
CLOCK_DOUBT_MS: Final = 3_600_000
# Each stream of a group may be a subscription, which its creation writes.
MAX_STREAMS_OF_GROUP: Final = 1000

# -- the controller's API ----------------------------------------------------------------------
MAX_WRITER_ID_BYTES: Final = KIB  # part of a table's key
MAX_OUTCOME_WAIT_SECONDS: Final = 30.0
MAX_LISTED_TRANSACTIONS: Final = 500
MAX_STREAMS_COUNTED_FOR_PRUNING: Final = 10_000
MAX_CALLS_PER_NAME: Final = 500  # of those, calls on one stream, group or table: calls on others must find a place

# -- controller --------------------------------------------------------------------------------
# After a start, for writers whose lease ended while no controller ran: to connect again and renew it.
RESTART_LEASE_GRACE_MS: Final = 30_000
# A transaction cannot be kept open longer.
MAX_TRANSACTION_MS: Final = 24 * 3600 * 1000
COMMIT_RETRY_SECONDS: Final = 0.5
# How long a question for the state of a transaction waits for a completion that is under way.
TRANSACTION_STATE_WAIT_SECONDS: Final = 0.05
# Records of completed transactions are retained at least that long.
COMPLETED_TRANSACTION_MS: Final = 10 * 60 * 1000
# The latest completed transactions are searched for back to this time first, then further.
FIRST_COMPLETED_SPAN_MS: Final = 1000
SCOPE_INCARNATION_BYTES: Final = 8
# Between two maintenance rounds, however short the intervals.
MIN_ROUND_PAUSE_SECONDS: Final = 0.01
RECOVERY_SWEEP_SECONDS: Final = 1.0
# Pending work younger than that belongs to the controller that began it.
RECOVERY_GRACE_SECONDS: Final = 5.0
WATERMARK_READ_BYTES: Final = MIB
# Cuts that say when a stream reached which offsets: one for each interval in which it grew.
TIMELINE_INTERVAL_SECONDS: Final = 60.0
# Up to an age, one of each span is retained, both in ms: 60, 138 and 144 of a stream that grows all the time.
TIMELINE_AGES_MS: Final = ((3_600_000, 60_000), (24 * 3_600_000, 600_000), (7 * 24 * 3_600_000, 3_600_000))
TIMELINE_OLDEST_SPAN_MS: Final = 24 * 3_600_000
# Of one stream: that many days, beyond the first week, are 58.
MAX_TIMELINE_CUTS: Final = 400
MAX_TIMELINE_STREAMS: Final = 100_000
# Part of a table key.
MAX_TAG_BYTES: Final = 1024
MAX_SCALING_EVENT_SEGMENTS: Final = 50_000  # of all events in one answer
# A list of streams with their configurations: the loop stands still for a page.
STREAM_CONFIGS_PER_PAGE: Final = 200

# How long a rule that another controller has changed may stay unknown here.
RULES_INTERVAL_SECONDS: Final = 2.0
MAX_RULES: Final = 10_000

# -- quotas
MAX_QUOTAS: Final = 1000
# How long a quota that another controller has changed may stay unknown, and how often stores get them.
QUOTA_INTERVAL_SECONDS: Final = 2.0
# A scope that is full may write again when so much of its quota is used.
QUOTA_FULL_UNTIL: Final = 0.98
MAX_JOBS_OF_STREAM: Final = 32
MAX_JOB_NAME_CHARACTERS: Final = 64
MAX_JOB_SETTINGS_BYTES: Final = 16_384
MAX_JOB_STATE_BYTES: Final = 65_536
