"""Bugs planted by name: the simulation must find each within 50 seeds (docs/testing.md has the table).

A mutant is a context manager that puts a wrong function in the place of a right one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from simulation.mutants import logs, stores

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

MUTANTS: Final[dict[str, Callable[[], AbstractContextManager[None]]]] = {
    "ack-before-fsync": logs.ack_before_fsync,
    "failed-fsync-retried": logs.failed_fsync_retried,
    "recovery-drops-last-frame": logs.recovery_drops_last_frame,
    "torn-tail-not-copied": logs.torn_tail_not_copied,
    "writer-number-unchecked": stores.writer_number_unchecked,
    "log-truncated-before-commit": stores.log_truncated_before_commit,
    "table-read-once": stores.table_read_once,
    "checkpoint-cancelled-on-stop": stores.checkpoint_cancelled_on_stop,
    "unsaved-segment-evicted": stores.unsaved_segment_evicted,
    "garbage-before-commit": stores.garbage_before_commit,
    "old-session-kept": stores.old_session_kept,
    "read-before-durable": stores.read_before_durable,
}
