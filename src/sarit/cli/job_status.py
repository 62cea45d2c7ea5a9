"""The jobs that make an index or a table of a stream, for commands: how far they are, and other settings for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sarit.cli.options import count_of
from sarit.core.errors import SaritError
from sarit.env.real import real_env

if TYPE_CHECKING:
    from sarit.client.blocking.client import Client
    from sarit.client.streams.job_status import JobStatus
    from sarit.core.names import StreamName

_MS_PER_SECOND: Final = 1000


def lag_bytes(client: Client, name: StreamName, job: JobStatus) -> int | None:
    """Return how many bytes of a stream a job has not done yet; None: it is not known where the job is."""
    if (begin := job.begin) is None:
        return None
    reader = client.stream(name).batch(begin, "tail", skip_truncated=True)
    return sum(part.length for part in reader.slices)


def time_since(committed_ms: int) -> str:
    """Return how long ago a commit was made, for people; 0: none was."""
    if not committed_ms:
        return "none"
    seconds = max(0, real_env().clock.wall_ms() - committed_ms) // _MS_PER_SECOND
    return f"{count_of(seconds, 'second')} ago"


def replace_job(client: Client, name: StreamName, kind: str, old: bytes, new: bytes, job: str = "main") -> None:
    """Replace a job by one with other settings, which begins at its start: those of a job never change.

    If the new ones are refused, the old job is created again.  Raises Invalid, Unavailable."""
    handle = client.stream(name)
    handle.delete_job(kind, job)
    try:
        handle.create_job(kind, new, job)
    except SaritError:
        handle.create_job(kind, old, job)
        raise
