"""Fixed bounds and intervals of a store's connections, by name, unit last."""

from __future__ import annotations

from typing import Final

# A connection whose client has sent no complete request (where tokens are asked for: none with a valid one) for so long
# after it opened is ended.
FIRST_REQUEST_SECONDS: Final = 30.0
# Of one connection in a turn of the event loop: as many as a frame of the log has operations.
FRAMES_PER_TURN: Final = 256
# Frames that bring nothing (`connection_budget.py`), at once and per second: of a connection that has asked for nothing
# yet, and of others.  Clients send one Hello, and a KeepAlive every few seconds.
STRANGER_FRAME_BUDGET: Final = 20
STRANGER_FRAMES_PER_SECOND: Final = 2.0
FRAME_BUDGET: Final = 200
FRAMES_PER_SECOND: Final = 20.0
MAX_FRAME_WAIT_SECONDS: Final = 60.0
# Refused tokens of all connections of a host; one costs about 50 us.
HOST_REFUSALS: Final = 1000
HOST_REFUSALS_PER_SECOND: Final = 200.0
MAX_REFUSED_HOSTS: Final = 4096
# Of one connection: a writer of large events has one at a time, and some are left by attempts that failed.
MAX_TRANSIENT_SEGMENTS: Final = 1000
# Between two appends, and two frames, that are measured.  To measure an append costs a tenth of a small one.
SAMPLE_SECONDS: Final = 0.001

# -- backup -----------------------------------------------------------------------------------

BACKUP_ARRIVAL_SECONDS: Final = 30.0  # until all flushers have ended their cycle, in which they also compact
BACKUP_HOLD_SECONDS: Final = 2.0  # nothing is acknowledged meanwhile; a store that is not released by then goes on
BACKUP_COMMIT_SECONDS: Final = 60.0  # until a container has committed its checkpoint
BACKUP_CHECK_SECONDS: Final = 0.5  # between two looks at whether a backup may go on
BACKUP_IDLE_SECONDS: Final = 30.0  # without a message of the backup its hold on chunks ends
MAX_BACKUP_SECONDS: Final = 48 * 3600.0  # chunks are not deleted meanwhile
