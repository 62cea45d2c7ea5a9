"""Bounds, intervals and sizes of the log on BookKeeper."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

# -- wire and metadata ------------------------------------------------------------------------------
# What ZooKeeper takes for one node by default.
BOOKKEEPER_MAX_METADATA_BYTES: Final = 1 * MIB - KIB
BOOKKEEPER_MAX_ENSEMBLE_SIZE: Final = 256
BOOKKEEPER_MAX_ENSEMBLES: Final = 10_000
BOOKKEEPER_MAX_CUSTOM_ENTRIES: Final = 1000
# A bookie closes a connection that sends more (its nettyMaxFrameSizeBytes, by default).
BOOKKEEPER_MAX_FRAME_BYTES: Final = 5 * MIB
BOOKKEEPER_RECEIVE_WINDOW_BYTES: Final = 64 * KIB
# A response from this size on is received into a buffer of its own.
BOOKKEEPER_LARGE_RESPONSE_BYTES: Final = 16 * KIB

# -- ledgers and log --------------------------------------------------------------------------------
LEDGER_ENTRY_BYTES: Final = 1 * MIB  # of an entry's payload, with what Sarit says of it
LEDGER_FRAMES_IN_FLIGHT: Final = 4
LEDGER_BYTES_IN_FLIGHT: Final = 16 * MIB
LEDGER_BYTES: Final = 512 * MIB
# An older ledger is closed: only the entries of closed ledgers are mended by BookKeeper itself.
LEDGER_SECONDS: Final = 3600.0
LEDGER_ENSEMBLE_CHANGES: Final = 5
MAX_CHAIN_LEDGERS: Final = 256
MAX_RETIRED_LEDGERS: Final = 16 * KIB  # 16 bytes each, in a register of less than 1 MiB
SLOW_BOOKIE_SECONDS: Final = 2.0
SPARE_BOOKIE_RETRY_SECONDS: Final = 5.0  # also of one that was slow
LOST_BOOKIE_RETRY_SECONDS: Final = 1.0  # of one whose connection ended, or that refused: it says at once if it still is
NEEDED_BOOKIE_RETRY_SECONDS: Final = 0.5  # while fewer than a quorum get entries
NO_QUORUM_SECONDS: Final = 10.0
MAX_BOOKIE_QUEUE_BYTES: Final = 32 * MIB
BUSY_BOOKIE_SECONDS: Final = 0.05  # after an answer "too many requests"
# An acknowledgement of bookies proves ownership for so long.  Far below the pause before a ledger is deleted.
LEDGER_PROOF_SECONDS: Final = 60.0
LEDGER_PROOF_TIMEOUT_SECONDS: Final = 10.0
# The wall clock went on by so much more than the monotonic one: the machine may have stood still.
LEDGER_CLOCK_STEP_SECONDS: Final = 30.0
LEDGER_IDLE_SECONDS: Final = 0.2  # then an entry without a frame tells the bookies what is confirmed
LEDGER_PROOF_INTERVAL_SECONDS: Final = 20.0
LEDGER_DELETION_SECONDS: Final = 600.0
# Retired that long ago by the wall clock: deleted at once by a new owner.  No clocks differ by so much.
LEDGER_LONG_RETIRED_SECONDS: Final = 86_400.0
LEDGER_TICK_SECONDS: Final = 0.25
CHAIN_CHANGE_SECONDS: Final = 1.0  # between two changes that only free space
RECOVERY_READS_AHEAD: Final = 16
REPLAY_READS_AHEAD: Final = 32
SECOND_BOOKIE_SECONDS: Final = 0.5  # a read asks another bookie after that time
LEDGER_READ_TIMEOUT_SECONDS: Final = 10.0
LEDGER_RECOVERY_TIMEOUT_SECONDS: Final = 30.0
LEDGER_CLOSE_TIMEOUT_SECONDS: Final = 10.0
# A log that closes gives up its frames when none becomes durable for so long: time for one ledger without a quorum.
LEDGER_LAST_FRAMES_SECONDS: Final = 30.0
METADATA_RETRY_SECONDS: Final = 0.1

# -- bookies ----------------------------------------------------------------------------------------
BOOKIE_CONNECT_SECONDS: Final = 2.0
# After a connection ended, or could not be made: doubled each time, up to the second.
BOOKIE_RETRY_SECONDS: Final = 0.1
BOOKIE_MAX_RETRY_SECONDS: Final = 1.0
# Bytes that its socket has not taken: more is refused.  The log itself stops at MAX_BOOKIE_QUEUE_BYTES.
BOOKIE_MAX_QUEUED_BYTES: Final = 64 * MIB
# A connection ends when nothing comes for so long though a request waits; or one request waits for so long.
BOOKIE_SILENT_SECONDS: Final = 10.0
BOOKIE_REQUEST_SECONDS: Final = 30.0
BOOKIE_TICK_SECONDS: Final = 1.0
# Who is registered is read that often, since a watch may be lost.
BOOKIE_POLL_SECONDS: Final = 10.0
