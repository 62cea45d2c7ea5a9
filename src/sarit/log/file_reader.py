"""Reads the durable log's files: headers, runs, the tail, replay, and damage.  All calls block, and change nothing.

A *run* is the sequence of valid records from the start of a file, with consecutive frame numbers.

Torn tail versus rot.  A crash leaves a torn tail: records that were written and never synced, each lost or damaged or
intact.  Rot is damage to records that were synced.  In both cases a record fails its checksum.  The `durable` number
in every later record and header distinguishes them: it says which frames were known durable when it was written.  So a
missing frame at or below the highest such number was durable once: the log is Corrupt, and nothing may be dropped.

Missing ends.  The newest file has no later record.  If it is gone, the file before it says that another one followed;
if it was cut, it is shorter than its header says.  Nobody knows which frames were in the missing part, so the log is
Corrupt in both cases.

Rot below a checkpoint.  Frames that the checkpoint covers are not needed: a run goes on after damage that affects only
such frames.

See docs/formats/durable-log.md, Reading and Opening.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import Corrupt
from sarit.log.history import Listing, UnreadableFile, history_problem
from sarit.log.limits import LOG_BLOCK_BYTES, LOG_READ_BYTES
from sarit.log.port import Frame
from sarit.log.records import (
    FRAME,
    LOG,
    NEW,
    RECORD_ALIGNMENT,
    RECORD_HEADER_BYTES,
    RECYCLED,
    TAG_AT,
    FileHeader,
    LogFile,
    Record,
    Window,
    aligned,
    claimed_number,
    parse_file_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sarit.env.ports import File, Files
    from sarit.log.port import LogHistory


def list_files(files: Files, directory: str, container: int) -> Listing:
    """List the log files of a container.  Raises Invalid (a file of another format version), OSError."""
    listing = Listing()
    # The names come sorted, and have leading zeros, so the files are in order of sequence.
    for name in files.list(directory):
        parsed = parse_file_name(name)
        if parsed is None:
            continue
        sequence, kind = parsed
        path = f"{directory}/{name}"
        listing.last_sequence = max(listing.last_sequence, sequence)
        if kind == RECYCLED:
            listing.recycled.append(path)
        elif kind == NEW:
            listing.unfinished.append(path)
        elif kind == LOG:
            # A damaged header is rot, never a torn tail, since it was synced before the file got this name.
            try:
                log = _read_header(files, path)
            except Corrupt:
                listing.unreadable.append(UnreadableFile(sequence, path))
                continue
            header = log.header
            if (header.container, header.sequence) != (container, sequence):
                listing.foreign.append(f"{path} says it is file {header.sequence} of container {header.container}")
            elif listing.logs and header.identity != listing.logs[-1].header.identity:
                listing.foreign.append(f"{path} is of another log than {listing.logs[-1].path}")
            elif header.epoch < listing.last_epoch:
                listing.foreign.append(f"{path} is of epoch {header.epoch}, after one of epoch {listing.last_epoch}")
            listing.logs.append(log)
    return listing


def _read_header(files: Files, path: str) -> LogFile:
    file = files.open(path, "read")
    try:
        header = FileHeader.parse(file.pread(LOG_BLOCK_BYTES, 0), path)
        found = RunReader(file, header).record_at(LOG_BLOCK_BYTES)
        first = found.number if found is not None and found.kind == FRAME else None
        return LogFile(path, header, file.size(), first)
    finally:
        file.close()


@dataclass(frozen=True, slots=True)
class Gap:
    """A run goes on after damage at byte `position`: frames `first` to `last` are missing (none when first > last).

    `first` is None when the damage is at the beginning of the file."""

    position: int
    first: int | None
    last: int


class RunReader:
    """A reader of the run of a file, window by window.

    Frames up to `covered` may be missing: the run goes on after damage that affects only such frames."""

    def __init__(self, file: File, header: FileHeader, read_bytes: int = LOG_READ_BYTES, covered: int = 0) -> None:
        self._file = file
        self._tag = header.tag
        self._seed = header.crc
        self._epoch = header.epoch
        self._read_bytes = read_bytes
        self._covered = covered
        # How many bytes the record at `position` needs, if it does not fit in a window.
        self._need = 0
        self.position = self._run_end = LOG_BLOCK_BYTES
        # `last`: the last frame.  `durable`: the highest `durable` of the run.  `torn`: a tag was found after its end.
        self.last: int | None = None
        self.durable = 0
        self.ended = False
        self.torn = False
        # Whether a valid record, in the run or after it, says that another file followed.
        self.followed = False
        self.gaps: list[Gap] = []
        # After the run has ended: the highest `durable` of valid records after it, and the highest number that a
        # damaged record after it claims to have.
        self.durable_past_end = 0
        self.claimed_past_end = 0

    def next_records(self) -> list[Record]:
        """Return the records of the next window, perhaps none, and set `ended` if the run is over."""
        requested = max(self._read_bytes, self._need)
        data = self._file.pread(requested, self.position)
        window = self._window(data, self.position)
        # A short read is the end of the file.
        at_end = len(data) < requested
        records: list[Record] = []
        at = 0
        while True:
            found = window.record(at)
            if isinstance(found, Record) and self._follows(found):
                records.append(found)
                at = found.end - self.position
                self._run_end = found.end
                continue
            if isinstance(found, int) and found > 0 and not at_end:
                # Begin the next window with this record, which continues after the window, and read all of it.
                self._need = found
                self.position += at
                return records
            # Skip the zeros between two groups, up to the next block, once.  At a block already, the run is over.
            block = aligned(self.position + at, LOG_BLOCK_BYTES) - self.position
            if block == at:
                self._need = 0
                self.position += at
                # Search from the end of the run, since a damaged record in the block before may look like the zeros.
                self._go_on_after_damage(self._run_end)
                return records
            at = block

    def _follows(self, record: Record) -> bool:
        # A watermark repeats the number of the last frame, so it is not part of the sequence.
        if record.kind == FRAME:
            if self.last is not None and record.number != self.last + 1:
                return False
            self.last = record.number
        self.durable = max(self.durable, record.durable)
        self.followed |= record.followed
        return True

    def _go_on_after_damage(self, position: int) -> None:
        """Find the record after byte `position` with which the run goes on, else end the run.

        The run goes on if all missing frames are covered, or if none is missing: then only a watermark is damaged."""
        allowed = max(self._covered, self.last or 0) + 1
        for record in self._records_after(position):
            # Take the number of the next frame: a watermark follows the frame of its number.
            number = record.number + (record.kind != FRAME)
            if (self.last or 0) < number <= allowed:
                first = None if self.last is None else self.last + 1
                self.gaps.append(Gap(position, first, number - 1))
                self.position, self.last = record.position, number - 1
                self._run_end = record.position
                self.durable_past_end = 0
                return
            self.durable_past_end = max(self.durable_past_end, record.durable)
            self.followed |= record.followed
        self.ended = True

    def _records_after(self, position: int) -> Iterator[Record]:
        """Yield the valid records from `position` to the end of the file, whatever their numbers."""
        # Search to the end of the file, since the disk may have written unsynced blocks in any order.
        while True:
            data = self._file.pread(self._read_bytes, position)
            at = 0
            while (tag := data.find(self._tag, at)) >= 0:
                # Parse every hit as a record: a payload may contain the tag by chance.
                at = tag + 1
                self.torn = True
                start = position + tag - TAG_AT
                found = self.record_at(start)
                if found is not None:
                    yield found
                    at = max(at, found.end - position)
                elif tag >= TAG_AT:
                    claimed = claimed_number(data[tag - TAG_AT : tag - TAG_AT + RECORD_HEADER_BYTES], start)
                    self.claimed_past_end = max(self.claimed_past_end, claimed)
            if len(data) < self._read_bytes:
                return
            position += len(data) - (RECORD_HEADER_BYTES - 1)  # a header may cross the border of the window

    def record_at(self, position: int) -> Record | None:
        """Return the valid record that begins at byte `position`, if any."""
        if position < LOG_BLOCK_BYTES or position % RECORD_ALIGNMENT:
            return None
        found: Record | int = RECORD_HEADER_BYTES
        while isinstance(found, int) and found > 0:  # read the header of the record, then all of it
            data = self._file.pread(found, position)
            if len(data) < found:
                return None
            found = self._window(data, position).record(0)
        return found if isinstance(found, Record) else None

    def _window(self, data: bytes, position: int) -> Window:
        return Window(data, position, self._tag, self._seed, self._epoch)


@dataclass(slots=True)
class Tail:
    """The end of a log.

    `end`: the last frame.  `durable`: every frame up to this one was durable once.  `carried`: the frames above
    `durable`, which the next epoch copies into its first file.  `empty`: files without a frame.  `claimed`: the highest
    number that a damaged record at the end claims to have.  `missing_end`: a message if the log's end is missing."""

    end: int = 0
    durable: int = 0
    carried: list[Record] = field(default_factory=list)
    empty: list[LogFile] = field(default_factory=list)
    claimed: int = 0
    missing_end: str = ""

    @property
    def reached(self) -> int:
        """The highest frame of which the log has a trace."""
        return max(self.end, self.durable, self.claimed)


def check_tail(tail: Tail, logs: list[LogFile]) -> None:
    """Check that no needed frame is missing at the end that was durable, or may have been.  Raises Corrupt."""
    if tail.end < tail.durable:
        raise Corrupt(damage_text(logs[-1].path, tail.end + 1, tail.durable))
    if tail.missing_end:
        raise Corrupt(f"{tail.missing_end}: all frames above {tail.end} that it held are lost; put it back")


def damage_text(path: str, first: int, last: int) -> str:
    """Return the error message for needed frames that cannot be read."""
    return f"{path}: frames {first} to {last} of the durable log were on the disk once and are lost or damaged"


def survey_tail(files: Files, logs: list[LogFile], read_bytes: int = LOG_READ_BYTES, *, covered: int = 0) -> Tail:
    """Find the end of a log, by reading its files from the newest back to the first that holds a frame.

    Frames up to `covered` are not needed.  `Tail.end` is below `covered` only if the log never had that frame, and
    below `durable` only if needed frames are missing.  Raises OSError."""
    tail = Tail()
    for at in range(len(logs) - 1, -1, -1):
        log = logs[at]
        tail.durable = max(tail.durable, log.header.durable)
        file = files.open(log.path, "read")
        try:
            reader = RunReader(file, log.header, read_bytes, covered)
            last = _read_tail(reader, tail)
        finally:
            file.close()
        made = log.header.blocks * LOG_BLOCK_BYTES
        if log.size < made:  # no code shortens a log file
            tail.missing_end = f"{log.path}: the end of this log file is missing: it has {log.size} bytes of {made}"
        elif reader.followed and log is logs[-1]:
            tail.missing_end = f"the newest file of the durable log is missing, the one after {log.path}"
        if last is not None:
            tail.end = last
            break
        tail.empty.append(log)
        tail.end = log.header.base
        # Stop at a newest epoch without a frame: frames of earlier epochs above its base are void.
        if at and logs[at - 1].header.epoch != log.header.epoch:
            break
    if tail.reached >= covered:
        # Frames up to `covered` count as durable even if they are missing here, since the checkpoint has them.
        tail.end = max(tail.end, covered)
        tail.durable = max(tail.durable, covered)
        tail.carried = [record for record in tail.carried if record.number > tail.durable]
    # Set the last frame of each file, from the newest to the oldest: one less than the first frame of the next file.
    for log, following in zip(reversed(logs), [None, *reversed(logs)], strict=False):
        if following is None:
            log.last = tail.end
        else:
            log.last = following.last if following.first is None else following.first - 1
    return tail


def _read_tail(reader: RunReader, tail: Tail) -> int | None:
    while not reader.ended:
        # Filter `carried` after each window, so that it holds about one group, not all frames of the file.
        records = reader.next_records()
        tail.durable = max(tail.durable, reader.durable)
        tail.carried = [
            record for record in (*tail.carried, *records) if record.kind == FRAME and record.number > tail.durable
        ]
    tail.durable = max(tail.durable, reader.durable_past_end)
    tail.claimed = max(tail.claimed, reader.claimed_past_end)
    tail.carried = [record for record in tail.carried if record.number > tail.durable]
    if reader.torn:
        coverage_probe("torn_tail_found")
    if reader.gaps:
        coverage_probe("covered_rot_passed")
    if tail.carried:
        coverage_probe("tail_carried_over")
    return reader.last


def replay(
    files: Files, logs: list[LogFile], after: int, end: int, read_bytes: int = LOG_READ_BYTES
) -> Iterator[list[Frame]]:
    """Yield the frames above `after` up to `end`, a window at a time.  Raises Corrupt, OSError."""
    expected = after + 1
    for at, log in enumerate(logs):
        if expected > end:
            return
        following = next((later.first for later in logs[at + 1 :] if later.first is not None), None)
        if following is not None and following <= expected:
            continue  # all frames of this file are at or below `after`
        valid_to = _valid_to(logs, at, end)
        file = files.open(log.path, "read")
        try:
            # Let the reader skip all damage: the number of the next frame shows which frames are missing.
            reader = RunReader(file, log.header, read_bytes, valid_to)
            while not reader.ended and expected <= valid_to:
                frames: list[Frame] = []
                for record in reader.next_records():
                    if record.kind != FRAME or record.number < expected or record.number > valid_to:
                        continue
                    if record.number != expected:
                        raise Corrupt(damage_text(log.path, expected, record.number - 1))
                    expected += 1
                    frames.append(Frame(record.number, record.epoch, record.payload))
                yield frames
            # Leave the preallocated blocks out of the size, which `LocalLog.backlog_bytes` uses from now on.
            log.size = reader.position
        finally:
            file.close()
    if expected <= end:
        raise Corrupt(damage_text(logs[-1].path, expected, end))


def _valid_to(logs: list[LogFile], at: int, end: int) -> int:
    """Return the last valid frame of a file.

    The base of every later epoch voids the frames above it; that epoch has copies of those that stay valid."""
    epoch = logs[at].header.epoch
    return min((later.header.base for later in logs[at + 1 :] if later.header.epoch > epoch), default=end)


# -- damage, for `sarit verify` ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogDamage:
    """Damage in a log file, from byte `position` on.

    `first` to `last`: the frames that cannot be read; None where that is not known, `last` < `first` without any.
    `needed`: whether no checkpoint covers these frames, so that they are lost."""

    path: str
    position: int
    first: int | None
    last: int | None
    needed: bool

    def __str__(self) -> str:
        lost = "lost" if self.needed else "a checkpoint covers them: nothing is lost"
        if self.first is not None and self.last is not None and self.last < self.first:
            return f"{self.path}: a record without data at byte {self.position} is damaged: nothing is lost"
        first = "?" if self.first is None else self.first
        last = "?" if self.last is None else self.last
        return f"{self.path}: frames {first} to {last} at byte {self.position} are missing or damaged ({lost})"


@dataclass(slots=True)
class LogReport:
    """The findings of an examination of a log.  `problem`: why it is not the log that the index knows, or None."""

    identity: bytes | None
    epoch: int
    end: int
    problem: str | None = None
    damage: list[LogDamage] = field(default_factory=list)

    def add(self, path: str, position: int, first: int | None, last: int, covered: int) -> None:
        """Add a range of missing frames, in two parts if the checkpoint covers only a part of it."""
        if first is not None and first <= covered < last:
            self.damage.append(LogDamage(path, position, first, covered, needed=False))
            first = covered + 1
        self.damage.append(LogDamage(path, position, first, last, needed=last > covered))

    @property
    def first_lost(self) -> int | None:
        """The first lost frame; None when none is lost."""
        lost = [damage.first for damage in self.damage if damage.needed and damage.first is not None]
        return min(lost, default=None)


def examine_log(files: Files, directory: str, container: int, history: LogHistory) -> LogReport:
    """Read all of a log that nobody has opened.  Returns what is damaged, and what is lost thereby.

    Changes nothing, needs no lock.  Raises Invalid (another format version), OSError."""
    listing = list_files(files, directory, container)
    covered, logs = history.frame, listing.logs
    tail = survey_tail(files, logs, covered=covered)
    report = LogReport(listing.identity, listing.last_epoch, tail.end)
    report.problem = history_problem(directory, listing, tail.reached, history)
    needed = listing.needed_unreadable(covered)
    report.damage += [LogDamage(file.path, 0, None, None, needed=file in needed) for file in listing.unreadable]
    known = max(tail.end, tail.durable)
    expected: int | None = None
    if tail.missing_end:
        report.damage.append(LogDamage(tail.missing_end, logs[-1].size, tail.end + 1, None, needed=True))
    for at, log in enumerate(logs):
        expected = _examine_file(files, log, _valid_to(logs, at, known), expected, report, covered)
    if expected is not None and expected <= tail.durable:
        report.add(logs[-1].path, 0, expected, tail.durable, covered)
    return report


def _examine_file(
    files: Files, log: LogFile, valid_to: int, expected: int | None, report: LogReport, covered: int
) -> int | None:
    """Examine a file whose frames are valid up to `valid_to`.  Returns the number of the next expected frame."""
    file = files.open(log.path, "read")
    try:
        reader = RunReader(file, log.header, covered=valid_to)
        while not reader.ended:
            for record in reader.next_records():
                if record.kind != FRAME or record.number > valid_to:
                    continue
                if expected is None:
                    # The log may begin at any frame up to the first uncovered one, since older files are recycled.
                    expected = min(covered + 1, record.number)
                if record.number > expected:
                    report.add(log.path, record.position, expected, record.number - 1, covered)
                expected = max(expected, record.number + 1)
    finally:
        file.close()
    for gap in reader.gaps:
        if gap.first is None or gap.last < gap.first:
            # Report a gap without a frame, or with unknown frames; other missing frames are reported above.
            report.damage.append(LogDamage(log.path, gap.position, gap.first, gap.last, needed=False))
    return expected
