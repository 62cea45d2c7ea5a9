"""Reads the durable log's files: headers, runs, the tail, replay.  Blocking; changes nothing.

A *run* is the sequence of valid records from the start of a file, with consecutive frame numbers.

Torn tail versus rot.  A crash leaves a torn tail: records that were written and never synced, each lost or damaged or
intact.  Rot is damage to records that were synced.  In both cases a record fails its checksum.  The `durable` number
in every later record and header distinguishes them: it says which frames were known durable when it was written.  So a
missing frame at or below the highest such number was durable once: the log is Corrupt, and nothing may be dropped.

See docs/formats/durable-log.md, Reading and Opening.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import Corrupt
from sarit.core.limits import LOG_BLOCK_BYTES, LOG_READ_BYTES
from sarit.log.port import Frame
from sarit.log.records import (
    FRAME,
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
    first_number,
    parse_file_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sarit.env.ports import File, Files


@dataclass(slots=True)
class Listing:
    """A log's directory, sorted by sequence."""

    logs: list[LogFile] = field(default_factory=list)
    recycled: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    last_sequence: int = 0

    @property
    def last_epoch(self) -> int:
        """The epoch of the newest file; 0 when there is none."""
        return self.logs[-1].header.epoch if self.logs else 0


def list_files(files: Files, directory: str, container: int) -> Listing:
    """What the directory holds.  Raises Corrupt (a header), OSError."""
    listing = Listing()
    # Sorted, and sequence numbers have leading zeros: the files come in order of sequence.
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
        else:
            # A damaged header is Corrupt, never a torn tail: it was synced before the file got this name.
            log = _read_header(files, path)
            header = log.header
            if (header.container, header.sequence) != (container, sequence):
                raise Corrupt(f"{path} says it is file {header.sequence} of container {header.container}")
            if header.epoch < listing.last_epoch:
                raise Corrupt(f"{path} is of epoch {header.epoch}, after one of epoch {listing.last_epoch}")
            listing.logs.append(log)
    return listing


def _read_header(files: Files, path: str) -> LogFile:
    file = files.open(path, "read")
    try:
        head = file.pread(LOG_BLOCK_BYTES + RECORD_HEADER_BYTES, 0)
        header = FileHeader.parse(head[:LOG_BLOCK_BYTES], path)
        return LogFile(path, header, file.size(), first_number(head[LOG_BLOCK_BYTES:], header.tag))
    finally:
        file.close()


class RunReader:
    """Reads the run of a file window by window."""

    def __init__(self, file: File, header: FileHeader, read_bytes: int = LOG_READ_BYTES) -> None:
        self._file = file
        self._tag = header.tag
        self._seed = header.crc
        self._epoch = header.epoch
        self._read_bytes = read_bytes
        # Bytes that the record at `position` needs, if it does not fit in a window.
        self._need = 0
        self.position = LOG_BLOCK_BYTES
        # Number of the last frame; the highest `durable` of the run; whether any tag was found after its end.
        self.last: int | None = None
        self.durable = 0
        self.ended = False
        self.torn = False

    def next_records(self) -> list[Record]:
        """The records of the next window; may be none.  Afterwards `ended` says whether the run is over."""
        requested = max(self._read_bytes, self._need)
        data = self._file.pread(requested, self.position)
        window = Window(data, self.position, self._tag, self._seed, self._epoch)
        # A short read: there is nothing after this window.
        at_end = len(data) < requested
        records: list[Record] = []
        at = 0
        while True:
            found = window.record(at)
            if isinstance(found, Record) and self._follows(found):
                records.append(found)
                at = found.end - self.position
                continue
            if isinstance(found, int) and found > 0 and not at_end:
                # The record continues after the window: the next window begins with it and holds it whole.
                self._need = found
                break
            # The zeros between two groups: go on at the next block, once.  At a block already, the run is over.
            block = aligned(self.position + at, LOG_BLOCK_BYTES) - self.position
            if block == at:
                self.ended = True
                break
            at = block
        self.position += at
        return records

    def _follows(self, record: Record) -> bool:
        # A watermark repeats the number of the last frame, so it is not part of the sequence.
        if record.kind == FRAME:
            if self.last is not None and record.number != self.last + 1:
                return False
            self.last = record.number
        self.durable = max(self.durable, record.durable)
        return True

    def durable_past_end(self) -> int:
        """The highest `durable` of valid records after the end of the run; 0 when there is none.  Sets `torn`."""
        assert self.ended
        position, highest = self.position, 0
        while True:
            # To the end of the file: the order in which the disk wrote unsynced blocks is unknown.
            data = self._file.pread(self._read_bytes, position)
            window = Window(data, position, self._tag, self._seed, self._epoch)
            at = 0
            while (tag := data.find(self._tag, at)) >= 0:
                # A payload may contain the tag by chance, so every hit is parsed as a record.
                at = tag + 1
                self.torn = True
                found = self._record_at(window, tag - TAG_AT)
                if found is not None:
                    highest = max(highest, found.durable)
                    at = max(at, found.end - position)
            if len(data) < self._read_bytes:
                return highest
            position += len(data) - (RECORD_HEADER_BYTES - 1)  # a header may cross the border of the window

    def _record_at(self, window: Window, at: int) -> Record | None:
        position = window.position + at
        if at < 0 or position % RECORD_ALIGNMENT:
            return None
        found = window.record(at)
        while isinstance(found, int) and found > 0:  # its header or its payload continues after the window
            data = self._file.pread(found, position)
            if len(data) < found:
                return None
            found = Window(data, position, self._tag, self._seed, self._epoch).record(0)
        return found if isinstance(found, Record) else None


@dataclass(slots=True)
class Tail:
    """Where the log ends.

    `end`: the last frame.  `durable`: every frame up to it is known to have been durable.  `carried`: the frames above
    `durable`, which the next epoch copies into its first file.  `empty`: files without a frame."""

    end: int = 0
    durable: int = 0
    carried: list[Record] = field(default_factory=list)
    empty: list[LogFile] = field(default_factory=list)


def find_tail(files: Files, logs: list[LogFile], read_bytes: int = LOG_READ_BYTES) -> Tail:
    """Read the newest files, backwards up to the first that holds a frame.  Raises Corrupt, OSError."""
    tail = Tail()
    for at in range(len(logs) - 1, -1, -1):
        log = logs[at]
        tail.durable = max(tail.durable, log.header.durable)
        file = files.open(log.path, "read")
        try:
            last = _read_tail(RunReader(file, log.header, read_bytes), tail)
        finally:
            file.close()
        if last is not None:
            tail.end = last
            break
        tail.empty.append(log)
        tail.end = log.header.base
        # The whole newest epoch has no frame.  Its base is the end: frames of earlier epochs above it are void.
        if at and logs[at - 1].header.epoch != log.header.epoch:
            break
    if tail.end < tail.durable:
        raise Corrupt(
            f"{logs[-1].path}: frames {tail.end + 1} to {tail.durable} of the durable log were on the disk once and "
            "are lost or damaged: restore this container from a backup"
        )
    # From the newest file to the oldest: the last frame of each is one less than the first of the next.
    for log, following in zip(reversed(logs), [None, *reversed(logs)], strict=False):
        if following is None:
            log.last = tail.end
        else:
            log.last = following.last if following.first is None else following.first - 1
    return tail


def _read_tail(reader: RunReader, tail: Tail) -> int | None:
    while not reader.ended:
        # `carried` is filtered at each window: it holds about one group then, not all frames of the file.
        records = reader.next_records()
        tail.durable = max(tail.durable, reader.durable)
        tail.carried = [
            record for record in (*tail.carried, *records) if record.kind == FRAME and record.number > tail.durable
        ]
    tail.durable = max(tail.durable, reader.durable_past_end())
    tail.carried = [record for record in tail.carried if record.number > tail.durable]
    if reader.torn:
        coverage_probe("torn_tail_found")
    if tail.carried:
        coverage_probe("tail_carried_over")
    return reader.last


def replay(
    files: Files, logs: list[LogFile], after: int, end: int, read_bytes: int = LOG_READ_BYTES
) -> Iterator[list[Frame]]:
    """Frames above `after` up to `end`, a window at a time.  Raises Corrupt, OSError."""
    expected = after + 1
    for at, log in enumerate(logs):
        if expected > end:
            return
        following = next((later.first for later in logs[at + 1 :] if later.first is not None), None)
        if following is not None and following <= expected:
            continue  # all its frames are at or below `after`
        # The base of every later epoch voids the frames above it; that epoch has copies of those which count.
        valid_to = min(
            (later.header.base for later in logs[at + 1 :] if later.header.epoch > log.header.epoch), default=end
        )
        file = files.open(log.path, "read")
        try:
            reader = RunReader(file, log.header, read_bytes)
            while not reader.ended:
                frames: list[Frame] = []
                for record in reader.next_records():
                    if record.kind != FRAME or record.number < expected or record.number > valid_to:
                        continue
                    if record.number != expected:
                        raise Corrupt(f"{log.path}: frames {expected} to {record.number - 1} are missing or damaged")
                    expected += 1
                    frames.append(Frame(record.number, record.epoch, record.payload))
                yield frames
            # Without the preallocated blocks: `LocalLog.backlog_bytes` counts with this number from now on.
            log.size = reader.position
        finally:
            file.close()
    if expected <= end:
        raise Corrupt(f"{logs[-1].path}: frames {expected} to {end} are missing or damaged")
