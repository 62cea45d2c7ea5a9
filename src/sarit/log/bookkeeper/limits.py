"""Bounds, intervals and sizes of the log on BookKeeper."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

# -- wire and metadata ------------------------------------------------------------------------------
# The most bytes that ZooKeeper stores in one node by default.
BOOKKEEPER_MAX_METADATA_BYTES: Final = 1 * MIB - KIB
BOOKKEEPER_MAX_ENSEMBLE_SIZE: Final = 256
BOOKKEEPER_MAX_ENSEMBLES: Final = 10_000
BOOKKEEPER_MAX_CUSTOM_ENTRIES: Final = 1000
# A bookie closes a connection that sends a longer frame (the default of its nettyMaxFrameSizeBytes).
BOOKKEEPER_MAX_FRAME_BYTES: Final = 5 * MIB
BOOKKEEPER_RECEIVE_WINDOW_BYTES: Final = 64 * KIB
# A response of at least this size is received into a buffer of its own.
BOOKKEEPER_LARGE_RESPONSE_BYTES: Final = 16 * KIB

# -- ledgers and log --------------------------------------------------------------------------------
LEDGER_ENTRY_BYTES: Final = 1 * MIB  # the most bytes of an entry's payload, with Sarit's header
LEDGER_FRAMES_IN_FLIGHT: Final = 4
LEDGER_BYTES_IN_FLIGHT: Final = 16 * MIB
LEDGER_BYTES: Final = 512 * MIB
# A ledger of this age is closed, since BookKeeper re-replicates only the entries of closed ledgers.
LEDGER_SECONDS: Final = 3600.0
LEDGER_ENSEMBLE_CHANGES: Final = 5
MAX_CHAIN_LEDGERS: Final = 256
MAX_RETIRED_LEDGERS: Final = 16 * KIB  # 16 bytes each, in a register of less than 1 MiB
SLOW_BOOKIE_SECONDS: Final = 2.0
SPARE_BOOKIE_RETRY_SECONDS: Final = 5.0  # the pause of a bookie that was slow, and between two searches for a spare one
LOST_BOOKIE_RETRY_SECONDS: Final = 1.0  # the pause of a bookie whose connection ended, or that refused an entry
NEEDED_BOOKIE_RETRY_SECONDS: Final = 0.5  # the longest such pause while fewer bookies than a quorum get entries
NO_QUORUM_SECONDS: Final = 10.0
MAX_BOOKIE_QUEUE_BYTES: Final = 32 * MIB
BUSY_BOOKIE_SECONDS: Final = 0.05  # the pause after an answer "too many requests"
# How long an acknowledgement of bookies proves ownership: far shorter than the pause before a ledger is deleted.
LEDGER_PROOF_SECONDS: Final = 60.0
LEDGER_PROOF_TIMEOUT_SECONDS: Final = 10.0
# The machine counts as suspended if the wall clock went on by so much more than the monotonic one.
LEDGER_CLOCK_STEP_SECONDS: Final = 30.0
LEDGER_IDLE_SECONDS: Final = 0.2  # an idle log sends an entry without a frame, which tells bookies what is confirmed
LEDGER_PROOF_INTERVAL_SECONDS: Final = 20.0
LEDGER_DELETION_SECONDS: Final = 600.0
# A new owner deletes a ledger at once that was retired so long ago by the wall clock: no clocks differ by so much.
LEDGER_LONG_RETIRED_SECONDS: Final = 86_400.0
LEDGER_TICK_SECONDS: Final = 0.25
CHAIN_CHANGE_SECONDS: Final = 1.0  # the least time between two changes of the chain that only free space
RECOVERY_READS_AHEAD: Final = 16
REPLAY_READS_AHEAD: Final = 32
SECOND_BOOKIE_SECONDS: Final = 0.5  # a read asks another bookie after this time without an answer
LEDGER_READ_TIMEOUT_SECONDS: Final = 10.0
LEDGER_RECOVERY_TIMEOUT_SECONDS: Final = 30.0
LEDGER_CLOSE_TIMEOUT_SECONDS: Final = 10.0
# A log that closes fails its frames when none becomes durable for so long: enough to leave a ledger without a quorum.
LEDGER_LAST_FRAMES_SECONDS: Final = 30.0
METADATA_RETRY_SECONDS: Final = 0.1

# -- bookies ----------------------------------------------------------------------------------------
BOOKIE_CONNECT_SECONDS: Final = 2.0
# The pause after a connection ended, or could not be made; doubles up to the maximum.
BOOKIE_RETRY_SECONDS: Final = 0.1
BOOKIE_MAX_RETRY_SECONDS: Final = 1.0
# Requests are refused while a bookie's socket has not taken so many bytes; the log stops at MAX_BOOKIE_QUEUE_BYTES.
BOOKIE_MAX_QUEUED_BYTES: Final = 64 * MIB
# A connection to a bookie ends when a request waits and nothing comes for so long.
BOOKIE_SILENT_SECONDS: Final = 10.0
BOOKIE_REQUEST_SECONDS: Final = 30.0  # a connection to a bookie ends when one request waits for so long
BOOKIE_TICK_SECONDS: Final = 1.0
# How often the registered bookies are read, since a notification of ZooKeeper may be lost.
BOOKIE_POLL_SECONDS: Final = 10.0
