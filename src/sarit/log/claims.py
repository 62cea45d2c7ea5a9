"""Opens the durable log on local files: claims it, checks it, and begins a new epoch.  All calls block.

Theory of operation.  `claim_files` locks the directory and lists it.  From then on no other process changes the log, so
its owner can read in the index what the log must hold (`LogHistory`).  `begin_epoch` compares the two, finds the end of
the log and writes the first file of the new epoch.  Until then nothing is written: a refused log stays as it was.

With `accept_loss` such a log is opened all the same, and a warning says what is lost.  No byte is deleted: files that
do not belong to the log any more get names that end in `.aside`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Corrupt, Invalid, Unavailable
from sarit.core.limits import LOG_IDENTITY_BYTES
from sarit.log.allocator import LogFileAllocator, WritableFile
from sarit.log.file_reader import LogReport, Tail, check_tail, examine_log, list_files, survey_tail
from sarit.log.history import Listing, history_problem
from sarit.log.limits import MAX_RECYCLED_LOG_FILES
from sarit.log.port import LogHistory
from sarit.log.records import ASIDE, LogFile

if TYPE_CHECKING:
    from sarit.env.ports import Env, File, Files

_log = logging.getLogger("sarit.log")

# The history for an owner without an index, which accepts the log as it is.
NO_HISTORY: Final = LogHistory(None, 0, 0)


@dataclass(frozen=True, slots=True)
class ClaimedFiles:
    """A locked directory, and its listing at that moment."""

    lock: File
    directory: str
    container: int
    listing: Listing


@dataclass(frozen=True, slots=True)
class OpenedFiles:
    """The files that an opening found and made.  `empty`: files without a needed frame.  `end`: the last frame."""

    lock: File
    logs: list[LogFile]
    empty: list[str]
    end: int
    file: WritableFile
    maker: LogFileAllocator


@dataclass(slots=True)
class _Plan:
    """The plan of a new epoch: its number, the files it finds, and the end of the log after which it begins."""

    listing: Listing
    tail: Tail
    epoch: int
    identity: bytes


def claim_files(env: Env, directory: str, container: int) -> ClaimedFiles:
    """Lock the directory and list it.

    Raises Invalid, Unavailable (another process owns the log), OSError."""
    files = env.files
    files.make_dirs(directory)
    lock = files.open(directory, "read")
    try:
        # Lock before the first read, so that what is read cannot change any more.
        if not lock.lock():
            raise Unavailable(f"another process owns the log in {directory}")
        return ClaimedFiles(lock, directory, container, list_files(files, directory, container))
    except BaseException:
        lock.close()
        raise


def begin_epoch(
    env: Env, claimed: ClaimedFiles, history: LogHistory | None, file_bytes: int,
    max_recycled: int = MAX_RECYCLED_LOG_FILES, *, accept_loss: bool = False,
) -> OpenedFiles:  # fmt: skip
    """Find the end of the log and begin a new epoch.  `history`: None for an owner without an index.

    Raises Corrupt (nothing is changed then), OSError."""
    files, directory = env.files, claimed.directory
    try:
        plan = _judge(files, claimed, history)
        if accept_loss and history is not None:
            # Find damage now that replay would find only after the new epoch has begun.
            _require_whole(examine_log(files, directory, claimed.container, history))
    except Corrupt as error:
        if not accept_loss or history is None:
            raise
        plan = _accept(env, claimed, history, str(error))
    return _make_first_file(env, claimed, plan, file_bytes, max_recycled)


def begin_after(env: Env, claimed: ClaimedFiles, history: LogHistory, file_bytes: int) -> OpenedFiles:
    """Make a log for a container that was restored from a backup, and has none.

    The log continues after the frame of the checkpoint, in a later epoch.  Raises Invalid (there is a log), OSError."""
    if claimed.listing.logs or claimed.listing.unreadable:
        raise Invalid(f"{claimed.directory} holds a log already")
    tail = Tail(end=history.frame, durable=history.frame)
    plan = _Plan(claimed.listing, tail, history.epoch + 1, env.random.bytes(LOG_IDENTITY_BYTES))
    return _make_first_file(env, claimed, plan, file_bytes, MAX_RECYCLED_LOG_FILES)


def _make_first_file(env: Env, claimed: ClaimedFiles, plan: _Plan, file_bytes: int, max_recycled: int) -> OpenedFiles:
    """Make the first file of a new epoch, which fences earlier owners."""
    files, directory = env.files, claimed.directory
    listing, tail = plan.listing, plan.tail
    maker = LogFileAllocator(
        files, env.random, directory, claimed.container, file_bytes, max_recycled, plan.identity
    )  # fmt: skip
    # Count on from all files, also recycled, unfinished and set aside ones: no sequence number is used twice.
    maker.next_sequence = listing.last_sequence + 1
    maker.discard(listing.unfinished)
    if listing.recycled:
        files.sync_dir(directory)  # a crash may have preceded this sync, and old names must not return
        maker.adopt(listing.recycled)
    # Once this file has its name, frames of earlier epochs above its base are void.  The file has copies of those up to
    # the end of the log, synced with the header, so that all frames up to the end are durable.
    file = maker.make(plan.epoch, tail.durable, tail.end, tail.carried, opening=True)
    empty = [log.path for log in tail.empty] + [unreadable.path for unreadable in listing.unreadable]
    logs = [log for log in listing.logs if log.path not in empty]
    return OpenedFiles(claimed.lock, logs, empty, tail.end, file, maker)


def open_files(env: Env, directory: str, container: int, file_bytes: int) -> OpenedFiles:
    """Claim a log and begin an epoch, without an index.  Raises Corrupt, Invalid, Unavailable, OSError."""
    claimed = claim_files(env, directory, container)
    try:
        return begin_epoch(env, claimed, None, file_bytes)
    except BaseException:
        claimed.lock.close()
        raise


def _judge(files: Files, claimed: ClaimedFiles, history: LogHistory | None) -> _Plan:
    """Check a log against its history.  Returns the plan of the new epoch.  Raises Corrupt."""
    listing = claimed.listing
    covered = 0 if history is None else history.frame
    if history is None and (listing.unreadable or listing.foreign):
        raise Corrupt(listing.foreign[0] if listing.foreign else f"{listing.unreadable[0].path}: its header is damaged")
    tail = survey_tail(files, listing.logs, covered=covered)
    problem = None if history is None else history_problem(claimed.directory, listing, tail.reached, history)
    if problem is not None:
        raise Corrupt(problem)
    check_tail(tail, listing.logs)
    for unreadable in listing.unreadable:
        _log.warning(
            "the header of %s is damaged; a checkpoint covers its frames: nothing is lost", unreadable.path
        )  # fmt: skip
    identity = listing.identity or (b"" if history is None else history.identity or b"")
    epoch = max(listing.last_epoch, 0 if history is None else history.epoch) + 1
    return _Plan(listing, tail, epoch, identity)


def _require_whole(report: LogReport) -> None:
    """Check that no needed frame is damaged.  Raises Corrupt."""
    for damage in report.damage:
        if damage.needed:
            raise Corrupt(str(damage))


# -- with --accept-data-loss ---------------------------------------------------------------------


def _accept(env: Env, claimed: ClaimedFiles, history: LogHistory, reason: str) -> _Plan:
    """Return the plan of a new epoch after the frames that are left, and log what is lost."""
    files, listing = env.files, claimed.listing
    number, frame = claimed.container, history.frame
    report = examine_log(files, claimed.directory, number, history)
    whole = bool(listing.logs) and not (listing.foreign or listing.needed_unreadable(frame))
    epoch = max(listing.last_epoch, history.epoch) + 1
    assert listing.identity is not None or not whole
    if whole and history.identity is None and report.first_lost is None:
        # Accept the whole log if the index is new: the log has all frames from the first one on.
        _log.warning("container %d: accepted (%s): nothing is lost, the log holds everything", number, reason)
        tail = survey_tail(files, listing.logs, covered=frame)
        return _Plan(listing, tail, epoch, listing.identity or b"")
    if whole and report.problem is None and report.first_lost is not None:
        end = report.first_lost - 1
        _log.warning("container %d: data loss accepted: all frames above %d are lost (%s)", number, end, reason)
        # End the log before the first lost frame: the base of the new epoch voids all later frames.
        return _Plan(listing, Tail(end=end, durable=end), epoch, listing.identity or b"")
    _log.warning(
        "container %d: data loss accepted: what was acknowledged above frame %d, the last one of the checkpoint, is "
        "lost (%s)", number, frame, reason,
    )  # fmt: skip
    _set_aside(files, claimed.directory, listing)
    listing.logs.clear()
    listing.unreadable.clear()
    # Give the log a new identity, so that the old log, if it comes back, is recognized as another one.
    return _Plan(listing, Tail(end=frame, durable=frame), epoch, env.random.bytes(LOG_IDENTITY_BYTES))


def _set_aside(files: Files, directory: str, listing: Listing) -> None:
    paths = [log.path for log in listing.logs] + [unreadable.path for unreadable in listing.unreadable]
    for path in sorted(paths):
        files.rename(path, f"{path.rpartition('.')[0]}.{ASIDE}")
    files.sync_dir(directory)
