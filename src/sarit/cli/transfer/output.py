"""Where an export goes: a file of lines or records that grows, or a directory of Parquet files."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from sarit.cli.transfer import raw_format
from sarit.cli.transfer.limits import EXPORT_PART_BYTES, EXPORT_PART_EVENTS
from sarit.cli.transfer.parquet_format import PART_NAMES, part_name, write_part
from sarit.cli.transfer.rows import to_json
from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from sarit.cli.transfer.rows import Row


class Output(Protocol):
    """Takes rows.  `note` makes durable what it has taken, and returns what `resume` needs; None: not now."""

    def write(self, rows: list[Row]) -> None:
        """Take rows.  Raises OSError."""

    def note(self, *, last: bool = False) -> dict[str, Any] | None:
        """`last`: nothing follows."""


class LinesOutput:
    """One file, or standard output."""

    def __init__(self, path: str, *, raw: bool, noted: dict[str, Any] | None) -> None:
        """`noted`: what `note` returned last; whatever follows it in the file is dropped."""
        self._raw = raw
        self._crc = int(noted["crc"]) if noted else 0
        self._events = int(noted["events"]) if noted else 0
        self._standard = path == "-"
        self._file: BinaryIO = sys.stdout.buffer if self._standard else _opened(path, noted)
        if noted is None and raw:
            self._file.write(raw_format.HEAD)

    def write(self, rows: list[Row]) -> None:
        if self._raw:
            data = b"".join(map(raw_format.encode, rows))
            self._crc = raw_format.checksum(data, self._crc)
        else:
            data = b"".join(to_json(row) + b"\n" for row in rows)
        self._events += len(rows)
        self._file.write(data)

    def note(self, *, last: bool = False) -> dict[str, Any] | None:
        # Note the position before the end of the file, because an export resumed after its end writes that end again.
        noted = None if self._standard else {"bytes": self._file.tell(), "crc": self._crc, "events": self._events}
        if last and self._raw:
            self._file.write(raw_format.end(self._events, self._crc))
        self._file.flush()
        if not self._standard:
            os.fsync(self._file.fileno())
        return noted


class PartsOutput:
    """A directory of Parquet files, each of which is whole."""

    def __init__(self, path: str, noted: dict[str, Any] | None) -> None:
        if path == "-":
            raise Invalid("Parquet goes to a directory, not to standard output: name one, or give --as jsonl")
        self._directory = Path(path)
        self._parts = int(noted["parts"]) if noted else 0
        self._rows: list[Row] = []
        self._bytes = 0
        self._directory.mkdir(exist_ok=noted is not None)
        # What was written after the last note.
        for found in self._directory.glob(PART_NAMES):
            if found.name >= part_name(self._parts):
                found.unlink()

    def write(self, rows: list[Row]) -> None:
        self._rows += rows
        self._bytes += sum(len(row.event) for row in rows)

    def note(self, *, last: bool = False) -> dict[str, Any] | None:
        if not last and self._bytes < EXPORT_PART_BYTES and len(self._rows) < EXPORT_PART_EVENTS:
            return None
        if self._rows or (last and not self._parts):
            write_part(self._directory / part_name(self._parts), self._rows)
            self._parts += 1
        self._rows, self._bytes = [], 0
        return {"parts": self._parts}


def _opened(path: str, noted: dict[str, Any] | None) -> BinaryIO:
    if noted is None:
        return Path(path).open("xb")
    file = Path(path).open("r+b")  # noqa: SIM115
    if os.fstat(file.fileno()).st_size < noted["bytes"]:
        raise Invalid(f"{path} is shorter than its file of progress says: delete both, and begin again")
    file.truncate(noted["bytes"])
    file.seek(noted["bytes"])
    return file
