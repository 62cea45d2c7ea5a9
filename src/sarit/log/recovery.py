"""Reads a container's log files: which frames are durable, and whether the log is damaged.

A torn tail (what a crash left of writes never acknowledged) is dropped.  Anything else that
is missing is damage: it is reported as Corrupt, and nothing is cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.core.errors import Corrupt
from sarit.core.limits import KIB, MIB
from sarit.log.format import SECTOR_BYTES, FileHeader, decode_header, later_records, parse_file_name, read_record
from sarit.log.port import Frame

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sarit.env.ports import Files

_READ_BYTES = 4 * MIB
_ZERO_PROBE_BYTES = 64 * KIB


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of the log that holds frames, or held some."""

    path: str
    header: FileHeader
    seed: int


@dataclass(frozen=True, slots=True)
class Listing:
    """What stands in a log directory."""

    files: list[LogFile]
    unused: list[str]
    last_sequence: int
    last_epoch: int


def list_log(files: Files, directory: str, container: int) -> Listing:
    """The log's files in order.  Blocks.  Raises Corrupt, OSError."""
    found: list[LogFile] = []
    unused: list[str] = []
    last_sequence = last_epoch = 0
    for name in files.list(directory):
        path = f"{directory}/{name}"
        ids = parse_file_name(name)
        if ids is None:
            if name.startswith("spare-"):
                unused.append(path)
            continue
        last_epoch, last_sequence = max(last_epoch, ids[0]), max(last_sequence, ids[1])
        file = files.open(path, "read")
        try:
            header = decode_header(file.pread(SECTOR_BYTES, 0))
        finally:
            file.close()
        if header is None or (header[0].epoch, header[0].sequence) != ids:
            unused.append(path)
            continue
        if header[0].container != container:
            raise Corrupt(f"{path} belongs to container {header[0].container}, not {container}")
        found.append(LogFile(path, *header))
    found.sort(key=lambda file: file.header.sequence)
    return Listing(found, unused, last_sequence, last_epoch)


def read_file(files: Files, file: LogFile) -> memoryview:
    """All bytes of a log file.  Blocks."""
    handle = files.open(file.path, "read")
    try:
        data = memoryview(bytearray(handle.size()))
        for at in range(0, len(data), _READ_BYTES):
            if handle.pread_into(data[at : at + _READ_BYTES], at) < len(data[at : at + _READ_BYTES]):
                raise Corrupt(f"{file.path} ended while it was read")
        return data
    finally:
        handle.close()


def frames_of(file: LogFile, data: memoryview, expected: int, following: LogFile | None) -> Iterator[Frame]:
    """The durable frames of one file, checked against the next one.

    `expected`: the number the first frame must have.  Raises Corrupt."""
    if file.header.first_frame != expected:
        raise Corrupt(f"{file.path} begins with frame {file.header.first_frame}, but frame {expected} must follow")
    at = SECTOR_BYTES
    while (record := read_record(file.seed, data, at)) is not None:
        if record.number != expected:
            raise Corrupt(f"{file.path} holds frame {record.number} at {at}, not {expected}")
        yield Frame(record.number, file.header.epoch, record.payload)
        expected += 1
        at = record.end
    if following is not None:
        if following.header.first_frame != expected:
            raise Corrupt(
                f"{file.path} is damaged at {at}: frame {expected} is missing, "
                f"but {following.path} goes on with {following.header.first_frame}"
            )
        return
    for record in later_records(file.seed, data, at):
        if record.synced >= expected:
            raise Corrupt(
                f"{file.path} is damaged at {at}: frame {expected} is missing, but frame {record.number} "
                f"behind it was written when {record.synced} was durable"
            )
