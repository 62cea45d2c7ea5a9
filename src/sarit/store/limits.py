"""Fixed bounds and intervals of a store's connections, by name, unit last."""

from __future__ import annotations

from typing import Final

# A connection whose client has sent no complete request for so long after it opened is ended.
FIRST_REQUEST_SECONDS: Final = 30.0
# Between two appends, and two frames, that are measured.  To measure an append costs a tenth of a small one.
SAMPLE_SECONDS: Final = 0.001

# -- backup -----------------------------------------------------------------------------------

BACKUP_ARRIVAL_SECONDS: Final = 30.0  # until all flushers have ended their cycle, in which they also compact
BACKUP_HOLD_SECONDS: Final = 2.0  # nothing is acknowledged meanwhile; a store that is not released by then goes on
BACKUP_COMMIT_SECONDS: Final = 60.0  # until a container has committed its checkpoint
BACKUP_CHECK_SECONDS: Final = 0.5  # between two looks at whether a backup may go on
BACKUP_IDLE_SECONDS: Final = 30.0  # without a message of the backup its hold on chunks ends
MAX_BACKUP_SECONDS: Final = 48 * 3600.0  # chunks are not deleted meanwhile
