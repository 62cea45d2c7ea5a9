"""Damage to the node's directory between two of its lives.

- *A missing piece*: the log files of a container, those of its newest epoch, the newest one alone, or its index are
  away, as on a disk that is not mounted.  The node must refuse to start and say so.  Then the piece is put back.
- *Rot that a checkpoint covers*: one bit of a log record whose frame the index holds.  The node must start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from sarit.core.errors import Corrupt, Invalid, Unavailable
from sarit.index import keys
from sarit.log.file_reader import RunReader, list_files
from sarit.log.records import FRAME, RECORD_HEADER_BYTES

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from sarit.index.memory import MemoryIndexes
    from sarit.log.records import LogFile, Record
    from simulation.disk import SimulatedDisk
    from simulation.options import Options
    from simulation.trace import Trace

_PROBABILITY: Final = 0.2


@dataclass(frozen=True, slots=True)
class TakenPiece:
    """What is away; `put_back()` undoes it."""

    what: str
    put_back: Callable[[], None]

    def complaint(self, error: BaseException | None) -> str | None:
        """What is wrong with how a start ended; None when it was refused for this reason, or did not get that far."""
        if error is None:
            return f"a node started without {self.what}"
        if isinstance(error, Unavailable | OSError):
            return None
        named = isinstance(error, Corrupt | Invalid) and ("missing" in str(error) or "older copy" in str(error))
        return None if named else f"{type(error).__name__}: a node without {self.what}: {error}"


class Directory(Protocol):
    """The node's directory, as far as it can be damaged: see `Cluster`."""

    options: Options
    indexes: MemoryIndexes
    trace: Trace

    @property
    def disk(self) -> SimulatedDisk:
        """The disk as it is now."""

    def rng(self, name: str) -> random.Random:
        """The random generator of this name."""


class RestartFaults:
    """Draws the damage before each start."""

    def __init__(self, cluster: Directory, data: str) -> None:
        self._cluster = cluster
        self._rng = cluster.rng("damage")
        self._data = data

    def take_piece(self) -> TakenPiece | None:
        """Take a piece of a directory on which a node has served; usually None."""
        cluster = self._cluster
        meta = f"{self._data}/meta"
        if not cluster.options.missing_pieces or self._rng.random() >= _PROBABILITY or not cluster.disk.exists(meta):
            return None
        container = self._rng.randrange(cluster.options.containers)
        what = self._rng.choice(("log", "newest epoch", "newest file", "index"))
        if b'"complete": true' not in cluster.disk.content(meta) or self._known(container)[1] == 0:
            return None
        return self._take_index(container) if what == "index" else self._take_log(container, what)

    def _take_index(self, container: int) -> TakenPiece:
        taken = self._cluster.indexes.take(container)
        return TakenPiece(
            f"the index of container {container}", lambda: self._cluster.indexes.put_back(container, taken)
        )

    def _take_log(self, container: int, what: str) -> TakenPiece | None:
        disk, epoch = self._cluster.disk, self._known(container)[0]
        logs = self._logs(container)
        if what == "newest epoch":
            if logs[-1].header.epoch != epoch or logs[0].header.epoch == epoch:
                return None  # the index does not know it yet, or it would be the whole log
            logs = [log for log in logs if log.header.epoch == epoch]
        if what == "newest file":
            # With a file after it that was made and holds nothing yet.
            last = max((at for at, log in enumerate(logs) if log.first is not None), default=0)
            if last == 0 or logs[last - 1].header.epoch != logs[last].header.epoch:
                return None  # the same as one of the others
            logs = logs[last:]
        if not all(disk.may_be_taken(log.path) for log in logs):
            return None
        taken = {log.path: disk.take(log.path) for log in logs}

        def put_back() -> None:
            for path, inode in taken.items():
                self._cluster.disk.put_back(path, inode)

        self._cluster.trace.probe(f"taken_{what.replace(' ', '_')}")
        return TakenPiece(f"the {what} of container {container}", put_back)

    def rot(self) -> None:
        """Flip a bit of a log record that a checkpoint covers; usually nothing."""
        if not self._cluster.options.covered_rot or self._rng.random() >= 2 * _PROBABILITY:
            return
        container = self._rng.randrange(self._cluster.options.containers)
        frame = self._known(container)[1]
        if not self._cluster.disk.exists(f"{self._data}/log/{container}"):
            return
        places = [(log, record) for log in self._logs(container) for record in self._covered(log, frame)]
        if not places:
            return
        log, record = self._rng.choice(places)
        # The last covered frame keeps its header: without any trace of it the log would be an older copy.
        skipped = RECORD_HEADER_BYTES if record.number == frame else 0
        length = RECORD_HEADER_BYTES + len(record.payload) - skipped
        offset = record.position + skipped + self._rng.randrange(max(length, 1))
        self._cluster.disk.flip(log.path, offset, self._rng.randrange(8))
        self._cluster.trace.note("fault", f"rot in frame {record.number} of container {container}, below {frame}")
        self._cluster.trace.probe("covered_rot")

    def _covered(self, log: LogFile, frame: int) -> list[Record]:
        disk = self._cluster.disk
        if not disk.may_be_taken(log.path):
            return []
        records: list[Record] = []
        file = disk.open(log.path, "read")
        reader = RunReader(file, log.header, covered=frame)
        while not reader.ended:
            records += [record for record in reader.next_records() if record.kind == FRAME and record.number <= frame]
        file.close()
        return records

    def _logs(self, container: int) -> list[LogFile]:
        return list_files(self._cluster.disk, f"{self._data}/log/{container}", container).logs

    def _known(self, container: int) -> tuple[int, int]:
        """The epoch of the log and the frame of the checkpoint that the index holds; 0 where it has none."""
        rows = self._cluster.indexes.snapshot(container)
        log, frame = rows.get(keys.meta_key("log")), rows.get(keys.meta_key("frame"))
        return (
            0 if log is None else keys.parse_log_value(log)[1],
            0 if frame is None else keys.parse_attribute_value(frame),
        )
